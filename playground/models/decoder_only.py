"""A decoder without an encoder: it continues a sequence of tokens (Radford et al. 2018).

New letter of shapes: W the tokens of a sequence that holds source and target.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .attention import causal_mask, padding_mask
from .layers import EncoderLayer
from .norms import norm
from .positions import sinusoid, token_table
from .sizes import DecoderOnlyConfig


class RowEmbedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus position embeddings, then dropout.

    Sequences may begin with padding (left padding), so that all of them end in the same column.
    Positions count from the first token after it.
    """

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.tokens = token_table(config.source_vocabulary, config.d_model)
        self.scale = math.sqrt(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        n_positions = config.row_width(config.max_positions, config.max_positions)
        self.positions: Tensor | None
        if not config.places:
            self.positions = None
        elif config.positions == "learned":
            self.positions = nn.Parameter(torch.randn(n_positions, config.d_model))
        else:
            waves_PD = config.position_scale * sinusoid(n_positions, config.d_model)
            self.register_buffer("positions", waves_PD, persistent=False)

    def forward(self, row_BW: Tensor) -> Tensor:
        x_BWD = self.tokens(row_BW) * self.scale
        return self.dropout(
            x_BWD if self.positions is None else x_BWD + self.positions[places(row_BW)]
        )


class DecoderOnly(nn.Module):
    """Layers of causal self-attention, and a linear layer that scores the next token.

    A decoder layer without cross-attention has the parts of an encoder layer. The causal mask makes
    it a decoder.
    """

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = RowEmbedding(config)
        self.layers = nn.ModuleList(
            EncoderLayer(config, causal=True) for _ in range(config.n_layers)
        )
        self.norm = norm(config) if config.norm == "pre" else nn.Identity()
        self.output = nn.Linear(config.d_model, config.target_vocabulary, bias=config.bias)
        nn.init.xavier_uniform_(self.output.weight)
        if config.tie_output:
            self.output.weight = self.embedding.tokens.weight

    def forward(self, row_BW: Tensor, weights: list[Tensor] | None = None) -> Tensor:
        """Return the logits (BWV) of the token that follows each position.

        Each layer appends its attention weights (BHWW) to `weights`. Left padding attends to itself
        only; a row of the mask with no True entry would make the softmax NaN.
        """
        width = row_BW.shape[1]
        itself = torch.eye(width, dtype=torch.bool, device=row_BW.device)
        may_look = causal_mask(width, row_BW.device) & padding_mask(row_BW) | itself
        x_BWD = self.embedding(row_BW)
        for layer in self.layers:
            x_BWD, weights_BHWW = layer(x_BWD, may_look, weigh=weights is not None)
            if weights is not None:
                weights.append(weights_BHWW)
        return self.output(self.norm(x_BWD))


def places(row_BW: Tensor) -> Tensor:
    """Return the position ids (BW) from the first token on; left padding has 0."""
    return ((row_BW != 0).cumsum(1) - 1).clamp(min=0)
