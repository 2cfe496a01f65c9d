"""The two norms that may stand around a sublayer.

Shapes: B batch, S tokens, D d_model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import ModelConfig

EPSILON = 1e-5  # as in nn.LayerNorm: a vector of zeros stays one


class RMSNorm(nn.Module):
    """Divides a vector by its root mean square and scales each number (Zhang and Sennrich 2019, section 4, equation 4): layer norm without
    subtracting the mean and without a shift."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x_BSD: Tensor) -> Tensor:
        return x_BSD * (x_BSD.pow(2).mean(-1, keepdim=True) + EPSILON).rsqrt() * self.weight


def norm(config: ModelConfig) -> nn.LayerNorm | RMSNorm:
    """The norm that the config asks for."""
    return (
        RMSNorm(config.d_model)
        if config.norm_kind == "rms"
        else nn.LayerNorm(config.d_model, EPSILON, bias=config.bias)
    )
