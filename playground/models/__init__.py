"""Floor 0: the transformer, from scratch. Read config, attention, positions, layers, transformer, in this order.

automodel wraps it for transformers; only what publishes loads that one.

The files here import each other from this folder only (`from .attention import ...`), so they can travel to the Hub as
they are. Importing this package alone loads no torch.
"""
