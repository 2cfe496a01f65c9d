"""Define and run experiments, length generalization tests and replications.

Importing this layer does not import torch: workers train the runs, and the inspection process
evaluates the models.
"""
