"""Floor 0: the transformer, from scratch. Read config, attention, positions, layers, transformer, in this order.
What can take the place of a part has a file of its own: places, relative and rotary for positions, norms, gated.

automodel wraps it for transformers; only what publishes loads that one.

The files here import each other from this folder only (`from .attention import ...`), so they can travel to the Hub as
they are. Importing this package alone loads no torch.
"""
