"""Layer 5: inspection of trained models, and interventions that test what it shows.

Importing this module alone does not import torch.

inspected_model      a model with its task
hooks                the components of a model; hooks that record or replace their outputs
attention_recording  attention weights of a batch
generation_steps     attention weights of one sequence, token by token
head_patterns        attention patterns of the heads
ablation             effects of components, measured by ablation
activation_patching  effects of heads, measured by activation patching
logit_lens           logit lens and direct logit attribution
trace                every tensor of one forward pass
embeddings           token embeddings and position vectors
views/               the views of the Inspect tab
"""
