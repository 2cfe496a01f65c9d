"""Pretrained models from the Hub: files, cache, download, pipelines and inference.

Importing this package alone loads nothing.
"""
