"""Pretrained models from the Hub beside the one from scratch: the same questions, the same metric. Importing this alone loads nothing."""
