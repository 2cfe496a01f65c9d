"""Attention weights of pretrained models: of one text, and between a text and its translation."""
