"""Layer 5: inspection of trained models, and interventions that test what it shows.

Importing this module alone does not import torch.

subject               a model with its task
components            the model's components, and the hooks that record or replace their outputs
recording, steps      attention weights of one sequence
heads                 attention patterns of the heads
ablation, patching    effects of the components, measured by interventions
lens                  logit lens and direct logit attribution
walk                  every tensor of one forward pass
embeddings, masks, sizes   independent of the modules above
report                all results as plain data
"""
