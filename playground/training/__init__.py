"""Training: settings, presets, batches, schedules, optimizers and the Trainer.

Importing this package alone does not import torch.
"""
