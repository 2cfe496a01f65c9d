"""How much each sublayer adds to the residual stream of a transformer from scratch.

The contribution of a sublayer at a position is |f(x)| / |x|: the norm of its output relative to the
norm of the residual stream that the output is added to. It is averaged over positions.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import isfinite

import torch
from torch import Tensor, nn

from playground.models.layers import DecoderLayer, EncoderLayer, ResidualNorm

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
        for layer_name, layer in model.named_modules():
            if not isinstance(layer, EncoderLayer | DecoderLayer):
                continue
            for name in SUBLAYERS:
                if hasattr(layer, name):
                    _hook_sublayer(
                        hooks,
                        f"{layer_name}.{name}",
                        getattr(layer, name),
                        getattr(layer, f"{name}_residual"),
                        contributions,
                    )
        yield contributions


def _hook_sublayer(
    hooks: ExitStack,
    name: str,
    sublayer: nn.Module,
    residual: ResidualNorm,
    contributions: dict[str, float],
) -> None:
    """Record the contribution of one sublayer from its output and the input of its norm.

    The norm receives x before the sublayer (pre-norm), or x + f(x) after it (post-norm).
    """
    stream_BPD = output_BPD = torch.empty(0)

    def on_norm(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal stream_BPD
        stream_BPD = inputs[0]
        if not residual.norm_first:
            store(stream_BPD - output_BPD)

    def on_output(
        _: nn.Module, __: tuple[Tensor, ...], output: Tensor | tuple[Tensor, ...]
    ) -> None:
        nonlocal output_BPD
        output_BPD = output[0] if isinstance(output, tuple) else output
        if residual.norm_first:
            store(stream_BPD)

    def store(x_BPD: Tensor) -> None:
        value = mean_contribution(output_BPD, x_BPD)
        if isfinite(value):
            contributions[name] = value

    hooks.callback(residual.norm.register_forward_pre_hook(on_norm).remove)
    hooks.callback(sublayer.register_forward_hook(on_output).remove)
