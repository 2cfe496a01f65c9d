"""Where a symbol stands, as a vector added to what it is (Vaswani et al. 2017, sections 3.4 and 3.5).

Other ways to tell a model are in places.py (other rows of the table) and in relative.py and rotary.py (inside self-attention).

Shapes: B batch, S tokens, P positions, D d_model, d half of it (a sine and a cosine share a rate).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import ModelConfig
from .places import drawn, from_the_end, spread


def sinusoid(n_positions: int, d_model: int) -> Tensor:
    """The paper's sine waves (PD): even dimensions sin, odd ones cos, wavelengths from 2 pi to 10000 * 2 pi.

    The rates 10000^(-2i/D) are computed in log space, exp(-2i/D * ln 10000): no large power is ever formed.
    """
    rate_d = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))
    angle_Pd = torch.arange(n_positions)[:, None] * rate_d
    return torch.stack([angle_Pd.sin(), angle_Pd.cos()], dim=-1).flatten(1)


class Embedding(nn.Module):
    """Token vectors times sqrt(d_model), plus position vectors where there are any, then dropout.

    Token vectors start at a standard deviation of d_model^-0.5, so that they are N(0, 1) once scaled. Learned positions
    start at N(0, 1) as well: a position must be as loud as a symbol for attention to find it.
    """

    positions: Tensor | None

    def __init__(self, config: ModelConfig, tokens: nn.Embedding, side: str = "target") -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.kind, self.side, self.max_positions = config.positions, side, config.max_positions
        if not config.places:
            self.positions = None
        elif config.positions == "sinusoidal":
            waves_PD = config.position_scale * sinusoid(config.places, config.d_model)
            self.register_buffer("positions", waves_PD, persistent=False)
        else:
            self.positions = nn.Parameter(torch.randn(config.places, config.d_model))

    def forward(self, tokens_BS: Tensor, first: int = 0) -> Tensor:
        """Vectors (BSD) of tokens that stand at the positions first, first + 1, ...

        Raises:
            ValueError: for positions that the model does not have.
        """
        needed = first + tokens_BS.shape[1]
        if needed > self.max_positions:
            raise ValueError(
                f"{needed} positions are needed, but the model has max_positions {self.max_positions}"
            )
        x_BSD = self.tokens(tokens_BS) * self.scale
        positions_SD = self.placed(tokens_BS, first)
        if positions_SD is not None:
            x_BSD = x_BSD + positions_SD
        return self.dropout(x_BSD)

    def placed(self, tokens_BS: Tensor, first: int = 0) -> Tensor | None:
        """The position vectors of the tokens: SD, or BSD where each sequence has its own; None where none are added."""
        return None if self.positions is None else self.positions[self.rows(tokens_BS, first)]

    def rows(self, tokens_BS: Tensor, first: int = 0) -> Tensor | slice:
        """Which rows of `positions` the tokens take: S, the same for every sequence, or BS."""
        n_tokens, device = tokens_BS.shape[1], tokens_BS.device
        if self.kind == "from-the-end" and self.side == "source":
            return from_the_end(tokens_BS)
        if self.kind == "randomised" and self.positions is not None:
            if self.training:
                return drawn(tokens_BS, self.max_positions, len(self.positions))
            return spread(first, n_tokens, self.max_positions, len(self.positions), device)
        return slice(first, first + n_tokens)


def token_table(vocabulary: int, d_model: int) -> nn.Embedding:
    """A table of token vectors with standard deviation d_model^-0.5."""
    table = nn.Embedding(vocabulary, d_model)
    nn.init.normal_(table.weight, std=d_model**-0.5)
    return table
