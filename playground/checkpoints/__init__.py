"""Checkpoints: their manifest, their tensors, saving, loading and resuming."""
