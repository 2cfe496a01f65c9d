"""Estimate the cost of slow inspection requests from the settings."""

from playground.training.config import RunConfig

MAX_FLOPS_PER_SECOND = 2e10  # multiply-adds per second of one core: an upper bound of the speed
FLOPS_PER_SCORE = 64.0  # multiply-adds per attention score, beside its products
HEAD_SCORE_SEQUENCES = 256  # as in inspection/head_patterns.py
ABLATION_SEQUENCES = 32  # the minimum in inspection/views/ablation.py
TRAINING_STEPS = 6  # likewise, for heads over training


def min_seconds(config: RunConfig, view: str, n: int = 0) -> float:
    """Return a lower bound of the seconds of a slow view; 0 for other views.

    Args:
        view: a slow view of the Inspect tab, or "evaluate" on `n` sequences.
    """
    layers, heads = config.model.n_layers, getattr(config.model, "n_heads", 1)
    parts = 3 * layers * (heads + 1)  # each head of each attention, and each other sublayer
    sequences = {
        "heads": HEAD_SCORE_SEQUENCES,
        "heads-over-training": TRAINING_STEPS * HEAD_SCORE_SEQUENCES,
        "ablation": ABLATION_SEQUENCES * parts,
        "evaluate": n,
    }.get(view, 0)
    low, high = config.task.min_length, config.task.max_sequence_length
    length = (low + high) / 2 + 1
    scores = 3 * layers * heads * length**2
    return (
        sequences
        * (config.model.parameter_count() * length + FLOPS_PER_SCORE * scores)
        / MAX_FLOPS_PER_SECOND
    )
