"""Attention and word vectors of pretrained models."""
