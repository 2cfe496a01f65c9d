"""Pretrained models: names, download, cache, checks of untrusted files, and pipelines in memory."""
