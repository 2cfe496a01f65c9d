"""Feed-forward networks with another activation than ReLU."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .config import ModelConfig


class GeluFeedForward(nn.Module):
    """D -> F -> D with a GELU between (Hendrycks and Gimpel 2016).

    GELU(x) = x * P(a standard normal number <= x), a smooth version of ReLU.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.widen = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.narrow = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        nn.init.xavier_uniform_(self.widen.weight)
        nn.init.xavier_uniform_(self.narrow.weight)

    def forward(self, x_BSD: Tensor) -> Tensor:
        return self.narrow(F.gelu(self.widen(x_BSD)))


class SwiGLU(nn.Module):
    """SwiGLU (Shazeer 2020, section 2): Swish(x W) * x V, where Swish(a) = a * sigmoid(a).

    The gate W is a third matrix. The paper reduces d_ff to two thirds, so that the number of
    parameters stays that of two matrices. Here d_ff is used as configured.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.widen = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.narrow = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        for layer in (self.gate, self.widen, self.narrow):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, x_BSD: Tensor) -> Tensor:
        return self.narrow(F.silu(self.gate(x_BSD)) * self.widen(x_BSD))
