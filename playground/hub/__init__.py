"""Checkpoints on the Hugging Face Hub: packages, model cards, push, pull and the gallery.

Importing this package alone loads nothing.
"""
