"""Define and run experiments, length generalization tests and replications (layer 7).

Importing this layer does not import torch: workers train the runs, and the inspection process
evaluates the models.
"""
