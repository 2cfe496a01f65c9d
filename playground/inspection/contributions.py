"""How much each sublayer adds to the residual stream of a transformer from scratch.

The contribution of a sublayer at a position is |f(x)| / |x|: the norm of its output relative to the
norm of the residual stream that the output is added to. It is averaged over positions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite

from torch import Tensor, nn

from playground.models.layers import ResidualNorm

from .hooks import record_activations

SMALLEST_NORM = 1e-9  # a stream of zeros must not divide by zero
SUBLAYERS = ("self_attn", "cross_attn", "feed_forward")


def mean_contribution(output_XD: Tensor, stream_XD: Tensor) -> float:
    """Return the contribution of a sublayer's output to the residual stream before it."""
    stream_norm_X = stream_XD.norm(dim=-1).clamp(min=SMALLEST_NORM)
    return float((output_XD.norm(dim=-1) / stream_norm_X).mean())


@contextmanager
def record_contributions(model: nn.Module) -> Iterator[dict[str, float]]:
    """Record the mean contribution of every sublayer in a forward pass, by module name.

    The values of the last pass are there after the block. A value that is not finite is left out,
    as in a model that diverged. The result is empty for a model without these layers.
    """
    contributions: dict[str, float] = {}
    residuals = [name for name, each in model.named_modules() if isinstance(each, ResidualNorm)]
    sublayers = [name.removesuffix("_residual") for name in residuals]
    with record_activations(model, {*residuals, *sublayers}) as calls:
        yield contributions
    for name, residual in zip(sublayers, residuals, strict=True):
        if calls[name]:
            stream_BPD = calls[residual][-1].inputs[0]
            value = mean_contribution(calls[name][-1].output, stream_BPD)
            if isfinite(value):
                contributions[name] = value
