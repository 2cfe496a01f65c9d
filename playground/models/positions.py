"""Token and position embeddings (Vaswani et al. 2017, sections 3.4 and 3.5).

`places.py` has other position ids for the same table; `relative.py` and `rotary.py` encode
positions inside self-attention.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import ModelConfig
from .places import evenly_spaced_positions, positions_from_end, sample_random_positions


def sinusoidal_positions(n_positions: int, d_model: int) -> Tensor:
    """Return the paper's sine waves (PD).

    Even dimensions are sines, odd ones cosines, with wavelengths from 2 pi to 10000 * 2 pi. The
    rates 10000^(-2i/D) are computed in log space, exp(-2i/D * ln 10000), without large powers.
    """
    rate_d = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))
    angle_Pd = torch.arange(n_positions)[:, None] * rate_d
    return torch.stack([angle_Pd.sin(), angle_Pd.cos()], dim=-1).flatten(1)


class InputEmbedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus position embeddings, then dropout.

    Token embeddings start with a standard deviation of d_model^-0.5, so they are N(0, 1) after
    scaling. Learned position embeddings start at N(0, 1) as well: they need the same scale as token
    embeddings, or attention cannot pick them up.
    """

    positions: Tensor | None

    def __init__(self, config: ModelConfig, tokens: nn.Embedding, side: str = "target") -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.position_type, self.side, self.max_positions = (
            config.position_type,
            side,
            config.max_positions,
        )
        if not config.n_position_vectors:
            self.positions = None
        elif config.position_type == "sinusoidal":
            sinusoidal_PD = config.sinusoidal_scale * sinusoidal_positions(
                config.n_position_vectors, config.d_model
            )
            self.register_buffer("positions", sinusoidal_PD, persistent=False)
        else:
            self.positions = nn.Parameter(torch.randn(config.n_position_vectors, config.d_model))

    def forward(self, tokens_BS: Tensor, first_position: int = 0) -> Tensor:
        """Return the vectors (BSD) of tokens at the positions `first_position`, `first_position` +
        1, ...

        Raises:
            ValueError: for more positions than the model has.
        """
        n_needed = first_position + tokens_BS.shape[1]
        if n_needed > self.max_positions:
            raise ValueError(
                f"the sequence needs {n_needed} positions, but the model has max_positions "
                f"{self.max_positions}; shorten it"
            )
        x_BSD = self.tokens(tokens_BS) * self.scale
        positions_SD = self.position_vectors(tokens_BS, first_position)
        if positions_SD is not None:
            x_BSD = x_BSD + positions_SD
        return self.dropout(x_BSD)

    def position_vectors(self, tokens_BS: Tensor, first_position: int = 0) -> Tensor | None:
        """Return the position vectors: SD, BSD if each sequence has its own, or None."""
        if self.positions is None:
            return None
        return self.positions[self.position_ids(tokens_BS, first_position)]

    def position_ids(self, tokens_BS: Tensor, first_position: int = 0) -> Tensor | slice:
        """Return the indices of the tokens in `positions`: S for all sequences together, or BS."""
        n_tokens, device = tokens_BS.shape[1], tokens_BS.device
        if self.position_type == "learned-from-end" and self.side == "source":
            return positions_from_end(tokens_BS)
        if self.position_type == "randomized" and self.positions is not None:
            if self.training:
                return sample_random_positions(tokens_BS, self.max_positions, len(self.positions))
            return evenly_spaced_positions(
                first_position, n_tokens, self.max_positions, len(self.positions), device
            )
        return slice(first_position, first_position + n_tokens)


def build_token_embedding(vocab_size: int, d_model: int) -> nn.Embedding:
    """Build a table of token embeddings with standard deviation d_model^-0.5."""
    embedding = nn.Embedding(vocab_size, d_model)
    nn.init.normal_(embedding.weight, std=d_model**-0.5)
    return embedding
