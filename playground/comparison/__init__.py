"""Pretrained models from the Hub, compared with the model trained here on the same examples.

All models get the same metric. Importing this package alone loads nothing.
"""
