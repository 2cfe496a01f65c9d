"""What may take the place of the feed-forward network with its ReLU.

Shapes: B batch, S tokens, D d_model, F d_ff.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .config import ModelConfig


class GeluFeedForward(nn.Module):
    """D -> F -> D with GELU between, x * P(a standard normal number <= x): a ReLU without the corner (Hendrycks and Gimpel 2016)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.widen = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.narrow = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        nn.init.xavier_uniform_(self.widen.weight)
        nn.init.xavier_uniform_(self.narrow.weight)

    def forward(self, x_BSD: Tensor) -> Tensor:
        return self.narrow(F.gelu(self.widen(x_BSD)))


class GatedFeedForward(nn.Module):
    """SwiGLU (Shazeer 2020, section 2): what is widened passes a gate, Swish(x W) * x V, with Swish(a) = a * sigmoid(a).

    The gate is a third matrix. The paper makes d_ff two thirds as large, so that the network weighs what it weighed with two;
    here d_ff is what was asked for.
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
