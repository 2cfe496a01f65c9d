"""A decoder without an encoder: it continues a sequence of tokens (Radford et al. 2018).

New letter of shapes: W the tokens of a sequence that holds source and target.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .attention import causal_mask, padding_mask
from .embeddings import build_token_embedding, sinusoidal_positions
from .layers import EncoderLayer, build_norm
from .variant_configs import DecoderOnlyConfig


class DecoderOnlyEmbedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus position embeddings, then dropout.

    Sequences may begin with padding (left padding), so that all of them end in the same column.
    Positions count from the first token after it.
    """

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.token_embedding = build_token_embedding(config.source_vocab_size, config.d_model)
        self.scale = math.sqrt(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        n_positions = config.sequence_length(config.max_positions, config.max_positions)
        self.position_embedding: Tensor | None
        if not config.n_position_vectors:
            self.position_embedding = None
        elif config.position_type == "learned":
            self.position_embedding = nn.Parameter(torch.randn(n_positions, config.d_model))
        else:
            sinusoidal_PD = config.sinusoidal_scale * sinusoidal_positions(
                n_positions, config.d_model
            )
            self.register_buffer("position_embedding", sinusoidal_PD, persistent=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.token_embedding(tokens_BT) * self.scale
        if self.position_embedding is not None:
            x_BTD = x_BTD + self.position_embedding[left_padded_position_ids(tokens_BT)]
        return self.dropout(x_BTD)


class DecoderOnly(nn.Module):
    """Layers of causal self-attention, and a linear layer that scores the next token.

    A decoder layer without cross-attention has the parts of an encoder layer. The causal mask makes
    it a decoder.
    """

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = DecoderOnlyEmbedding(config)
        self.layers = nn.ModuleList(
            EncoderLayer(config, causal=True) for _ in range(config.n_layers)
        )
        self.norm = build_norm(config) if config.norm_placement == "pre" else nn.Identity()
        self.output_proj = nn.Linear(config.d_model, config.target_vocab_size, bias=config.bias)
        nn.init.xavier_uniform_(self.output_proj.weight)
        if config.tie_output_embeddings:
            self.output_proj.weight = self.embedding.token_embedding.weight

    def forward(self, tokens_BT: Tensor, weights: list[Tensor] | None = None) -> Tensor:
        """Return the logits (BWV) of the token that follows each position.

        Each layer appends its attention weights (BHWW) to `weights`. Left padding attends to itself
        only; a row of the mask with no True entry would make the softmax NaN.
        """
        length = tokens_BT.shape[1]
        identity_TT = torch.eye(length, dtype=torch.bool, device=tokens_BT.device)
        attn_mask = causal_mask(length, tokens_BT.device) & padding_mask(tokens_BT) | identity_TT
        x_BTD = self.embedding(tokens_BT)
        for layer in self.layers:
            x_BTD, weights_BHTT = layer(x_BTD, attn_mask, need_weights=weights is not None)
            if weights is not None:
                weights.append(weights_BHTT)
        return self.output_proj(self.norm(x_BTD))


def left_padded_position_ids(tokens_BT: Tensor) -> Tensor:
    """Return the position ids (BW) from the first token on; left padding has 0."""
    return ((tokens_BT != 0).cumsum(1) - 1).clamp(min=0)
