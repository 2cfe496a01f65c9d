"""Attention of pretrained models."""
