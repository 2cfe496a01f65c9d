"""Attention sinks: a token, mostly the first, with a large share of the attention (L layers)."""

from torch import Tensor

# the mean attention on the first token that makes it a sink: at least this share, and this many
# times that of equal weights
SINK_SHARE, SINK_FACTOR = 0.5, 1.5
SINK_REASON = (
    "Proposed reasons: weights must sum to 1, so unused weight needs a place (Xiao et al., 2023); "
    "sinks limit mixing (Barbero et al., 2025)."
)


def is_sink(share_L: Tensor, uniform: float) -> Tensor:
    """Return whether the first token is a sink, from its share and that of equal weights."""
    return share_L > max(SINK_SHARE, SINK_FACTOR * uniform)
