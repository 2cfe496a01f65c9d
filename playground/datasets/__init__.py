"""Datasets from users: sources, checks, storage, and the task that learns them."""
