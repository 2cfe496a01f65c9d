"""Pretrained models of transformers, which are loaded from the Hub or a folder, and never trusted.

The package knows checkpoints and tasks, but no run and no page. Importing it, or `jobs`, loads
neither torch nor transformers; each kind of job imports its module when the first one runs.
"""
