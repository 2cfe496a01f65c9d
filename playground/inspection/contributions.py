"""How much each sublayer adds to the residual stream of a transformer from scratch.

The contribution of a sublayer at a position is |f(x)| / |x|: the norm of its output relative to the
norm of the residual stream that the output is added to. It is averaged over positions.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from playground.models.layers import ResidualNorm

SMALLEST_NORM = 1e-9  # a stream of zeros must not divide by zero
SUBLAYERS = ("self_attn", "cross_attn", "feed_forward")


def mean_contribution(output_XD: Tensor, stream_XD: Tensor) -> float:
    """Return the contribution of a sublayer's output to the residual stream before it."""
    stream_norm_X = stream_XD.norm(dim=-1).clamp(min=SMALLEST_NORM)
    return float((output_XD.norm(dim=-1) / stream_norm_X).mean())


@contextmanager
def record_contributions(model: nn.Module) -> Iterator[dict[str, float]]:
    """Record the mean contribution of every sublayer in a forward pass, by module name.

    A later pass replaces the values. A value that is not finite is left out, as in a model that
    diverged. The result is empty for a model without these layers.
    """
    contributions: dict[str, float] = {}
    with ExitStack() as hooks:
        for name, residual in model.named_modules():
            if isinstance(residual, ResidualNorm):
                sublayer = name.removesuffix("_residual")
                _hook_sublayer(
                    hooks, residual, sublayer, model.get_submodule(sublayer), contributions
                )
        yield contributions


def _hook_sublayer(
    hooks: ExitStack,
    residual: ResidualNorm,
    name: str,
    sublayer: nn.Module,
    contributions: dict[str, float],
) -> None:
    """Record the contribution of one sublayer: its output, and the stream that it is added to."""
    stream_BPD = torch.empty(0)

    def on_stream(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal stream_BPD
        stream_BPD = inputs[0]

    def on_output(_: nn.Module, __: tuple[Any, ...], output_BPD: Tensor) -> None:
        value = mean_contribution(output_BPD, stream_BPD)
        if isfinite(value):
            contributions[name] = value

    hooks.callback(residual.register_forward_pre_hook(on_stream).remove)
    hooks.callback(sublayer.register_forward_hook(on_output).remove)
