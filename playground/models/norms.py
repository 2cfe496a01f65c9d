"""Layer norm and RMSNorm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import ModelConfig

NORM_EPS = 1e-5  # as in nn.LayerNorm; it keeps a vector of zeros at zero


class RMSNorm(nn.Module):
    """Divide a vector by its root mean square and scale each number.

    This is layer norm without subtracting the mean and without a shift (Zhang and Sennrich 2019,
    section 4, equation 4).
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x_BSD: Tensor) -> Tensor:
        return x_BSD * (x_BSD.pow(2).mean(-1, keepdim=True) + NORM_EPS).rsqrt() * self.weight


def build_norm(config: ModelConfig) -> nn.LayerNorm | RMSNorm:
    """Build the norm of the config."""
    return (
        RMSNorm(config.d_model)
        if config.norm_type == "rms"
        else nn.LayerNorm(config.d_model, NORM_EPS, bias=config.bias)
    )
