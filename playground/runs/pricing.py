"""What the slow requests to an inspection process cost, estimated from the settings before a process gets them."""

from __future__ import annotations

from playground.training.config import RunConfig

FASTEST = 2e10  # multiply-adds a second of one core: what takes too long at this speed is hopeless
PER_SCORE = 64.0  # multiply-adds that one attention score takes beside its products
HEADS_SEQUENCES = 256  # as inspection/heads.py has
AWAY_SEQUENCES = 32  # the fewest that inspection/shown/proof.py measures on
TRAINING_STEPS = 6  # likewise, of heads over training


def least_seconds(config: RunConfig, view: str, n: int = 0) -> float:
    """Return a lower bound of the seconds that a slow view takes; 0 for other views.

    Args:
        view: a slow view of the Inspect tab, or "evaluate" on `n` sequences.
    """
    layers, heads = config.model.n_layers, getattr(config.model, "n_heads", 1)
    parts = 3 * layers * (heads + 1)  # each head of each attention, and each other sublayer
    sequences = {
        "heads": HEADS_SEQUENCES,
        "heads-over-training": TRAINING_STEPS * HEADS_SEQUENCES,
        "away": AWAY_SEQUENCES * parts,
        "evaluate": n,
    }.get(view, 0)
    low, high = config.task.min_length, config.task.longest
    length = (low + high) / 2 + 1
    scores = 3 * layers * heads * length**2
    return sequences * (config.model.parameter_count() * length + PER_SCORE * scores) / FASTEST
