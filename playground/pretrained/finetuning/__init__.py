"""Fine-tuning of pretrained models on the task of a checkpoint."""
