"""The HTML report of a model: one file without requests and scripts."""
