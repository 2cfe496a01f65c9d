"""A decoder without an encoder: it continues a sequence of tokens (Radford et al. 2018).

New letter of shapes: W the tokens of a sequence that holds source and target.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .attention import causal_mask, padding_mask
from .embeddings import build_token_embedding, sinusoidal_positions
from .initialization import reinitialize
from .layers import EncoderLayer, KVCache, build_norm
from .variant_configs import DecoderOnlyConfig


class DecoderOnlyEmbedding(nn.Module):
    """Token embeddings, times sqrt(d_model) if scaled, plus position embeddings, then dropout.

    Sequences may begin with padding (left padding), so that all of them end in the same column.
    Positions count from the first token after it.
    """

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.token_embedding = build_token_embedding(config.source_vocab_size, config.d_model)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
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

    def forward(self, tokens_BT: Tensor, is_token_BW: Tensor) -> Tensor:
        """Return the vectors (BTD) of the last T of the positions that `is_token_BW` describes."""
        x_BTD = self.token_embedding(tokens_BT) * self.scale
        if self.position_embedding is not None:
            position_BT = left_padded_position_ids(is_token_BW)[:, -tokens_BT.shape[1] :]
            x_BTD = x_BTD + self.position_embedding[position_BT]
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
        self.output_proj = nn.Linear(
            config.d_model, config.target_vocab_size, bias=config.has_output_bias
        )
        nn.init.xavier_uniform_(self.output_proj.weight)
        if config.tie_output_embeddings:
            self.output_proj.weight = self.embedding.token_embedding.weight
        reinitialize(self, config)

    def forward(
        self,
        tokens_BT: Tensor,
        weights: list[Tensor] | None = None,
        cache: Sequence[KVCache] | None = None,
        is_token_BW: Tensor | None = None,
    ) -> Tensor:
        """Return the logits (BTV) of the token that follows each position.

        Each layer appends its attention weights (BHTW) to `weights`. With a `cache`, tokens_BT are
        the new tokens only, and `is_token_BW` marks the tokens among all W positions, cached ones
        first; without a cache, W = T. Left padding attends to itself only; a row of the mask with
        no True entry would make the softmax NaN.
        """
        if is_token_BW is None:
            is_token_BW = tokens_BT != 0
        length, n_cached = is_token_BW.shape[1], is_token_BW.shape[1] - tokens_BT.shape[1]
        causal_TW = causal_mask(length, tokens_BT.device)[n_cached:]
        identity_TW = torch.eye(length, dtype=torch.bool, device=tokens_BT.device)[n_cached:]
        attn_mask = causal_TW & padding_mask(is_token_BW) | identity_TW
        x_BTD = self.embedding(tokens_BT, is_token_BW)
        for i, layer in enumerate(self.layers):
            x_BTD, weights_BHTW = layer(
                x_BTD, attn_mask, cache[i] if cache else None, need_weights=weights is not None
            )
            if weights is not None:
                weights.append(weights_BHTW)
        return self.output_proj(self.norm(x_BTD))

    def new_cache(self, batch_size: int, n_positions: int) -> list[KVCache]:
        """Allocate the caches of all layers, for `n_positions` tokens."""
        like = self.output_proj.weight  # the same device and type
        return [KVCache(self.config, batch_size, n_positions, like) for _ in self.layers]


def left_padded_position_ids(tokens_BW: Tensor) -> Tensor:
    """Return the position ids (BW) from the first token on; left padding (0) has 0."""
    return ((tokens_BW != 0).cumsum(1) - 1).clamp(min=0)
