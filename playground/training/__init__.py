"""Training: settings, presets, schedules, the Trainer and checkpoints.

Importing this package alone does not import torch.
"""
