"""A benchmark: a checkpoint, pretrained models and baselines on the same examples."""
