"""The transformer from scratch, and other architectures to compare it with.

docs/reading.md leads through the files.

A name ends with the shape of its tensor, one letter for each dimension (Shazeer 2024, "Shape
suffixes"). The letters have the same meaning in every file:

    B  batch: sequences                     H  attention heads (query heads)
    S  source tokens (or tokens)            G  heads of keys and values, at most H
    T  target tokens                        K  size of a head: numbers in a query or a key
    Q  queries: positions that attend       k  half of K: pairs of numbers
    M  memory: positions attended to        D  d_model, the width of the model
    P  positions                            d  half of D: pairs of numbers
    L  layers                               F  d_ff, the width of the feed-forward network
    V  vocabulary: tokens that are scored

The values of a head have `value_size` numbers, which may differ from K. A file names only the
letters that are new in it.

The files `automodel*.py` wrap the models for transformers; only publishing imports them. The files
here import only each other (`from .attention import ...`), so they can be uploaded to the Hub
unchanged. Importing this package alone does not import torch.
"""
