"""Attention, word vectors and tokenizers of pretrained models."""
