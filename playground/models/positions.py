"""Where a symbol stands, as a vector added to what it is (Vaswani et al. 2017, sections 3.4 and 3.5).

Shapes: B batch, S tokens, P positions, D d_model.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import ModelConfig


def sinusoid(n_positions: int, d_model: int) -> Tensor:
    """The paper's sine waves (PD): even dimensions sin, odd ones cos, wavelengths from 2 pi to 10000 * 2 pi.

    The rates 10000^(-2i/D) are computed in log space, exp(-2i/D * ln 10000): no large power is ever formed.
    """
    rate_d = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))
    angle_Pd = torch.arange(n_positions)[:, None] * rate_d
    return torch.stack([angle_Pd.sin(), angle_Pd.cos()], dim=-1).flatten(1)


class Embedding(nn.Module):
    """Token vectors times sqrt(d_model), plus position vectors, then dropout.

    Token vectors start at a standard deviation of d_model^-0.5, so that they are N(0, 1) once scaled. Learned positions
    start at N(0, 1) as well: a position must be as loud as a symbol for attention to find it.
    """

    def __init__(self, config: ModelConfig, tokens: nn.Embedding) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.randn(config.max_positions, config.d_model))
        else:
            waves_PD = config.position_scale * sinusoid(config.max_positions, config.d_model)
            self.register_buffer("positions", waves_PD, persistent=False)

    def forward(self, tokens_BS: Tensor, first: int = 0) -> Tensor:
        """Vectors (BSD) of tokens that stand at the positions first, first + 1, ..."""
        positions_SD = self.positions[first : first + tokens_BS.shape[1]]
        return self.dropout(self.tokens(tokens_BS) * self.scale + positions_SD)


def token_table(vocabulary: int, d_model: int) -> nn.Embedding:
    """A table of token vectors with standard deviation d_model^-0.5."""
    table = nn.Embedding(vocabulary, d_model)
    nn.init.normal_(table.weight, std=d_model**-0.5)
    return table
