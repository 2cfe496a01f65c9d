"""Transformers of one stack: a decoder without an encoder, and an encoder without a decoder.

New letter of shapes: W the tokens of a sequence that holds source and target, or source and blanks.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .attention import causal_mask, padding_mask
from .config import DecoderOnlyConfig, EncoderOnlyConfig, SingleStackConfig
from .embeddings import InputEmbedding, build_output_layer, build_token_embedding
from .initialization import reinitialize
from .kv_cache import KVCache, LayerCache
from .layers import Layer, build_final_norm


class SingleStack(nn.Module):
    """Layers of self-attention, and a linear layer that scores every token at each position."""

    def __init__(self, config: SingleStackConfig, causal: bool) -> None:
        super().__init__()
        self.embedding = InputEmbedding(
            config, build_token_embedding(config.source_vocab_size, config.d_model)
        )
        self.layers = nn.ModuleList(Layer(config, causal) for _ in range(config.n_layers))
        self.norm = build_final_norm(config)
        self.output_proj = build_output_layer(config, self.embedding.token_embedding)
        reinitialize(self, config)

    def apply_layers(
        self,
        x_BTD: Tensor,
        attn_mask: Tensor,
        weights: list[Tensor] | None,
        cache: Sequence[LayerCache] | None = None,
    ) -> Tensor:
        """Return the logits (BTV) of each position, from its embedding."""
        for i, layer in enumerate(self.layers):
            x_BTD = layer(x_BTD, attn_mask, cache=cache[i] if cache else None, self_weights=weights)
        return self.output_proj(self.norm(x_BTD))


class DecoderOnly(SingleStack):
    """A stack with causal attention: it continues a sequence of tokens (Radford et al. 2018)."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__(config, causal=True)
        self.config = config

    def forward(
        self,
        tokens_BT: Tensor,
        weights: list[Tensor] | None = None,
        cache: Sequence[LayerCache] | None = None,
        is_token_BW: Tensor | None = None,
    ) -> Tensor:
        """Return the logits (BTV) of the token that follows each position.

        Sequences are padded on the left. Each layer appends its attention weights (BHTW) to
        `weights`. With a `cache`, tokens_BT are the new tokens only, and `is_token_BW` marks the
        tokens among all W positions, cached ones first; without a cache, W = T. Padding attends to
        itself only; a row of the mask with no True entry would make the softmax NaN.
        """
        if is_token_BW is None:
            is_token_BW = tokens_BT != 0
        length, n_cached = is_token_BW.shape[1], is_token_BW.shape[1] - tokens_BT.shape[1]
        causal_TW = causal_mask(length, tokens_BT.device)[n_cached:]
        identity_TW = torch.eye(length, dtype=torch.bool, device=tokens_BT.device)[n_cached:]
        attn_mask = causal_TW & padding_mask(is_token_BW) | identity_TW
        x_BTD = self.embedding(tokens_BT, n_cached, is_token_BW)
        return self.apply_layers(x_BTD, attn_mask, weights, cache)

    def new_cache(self, batch_size: int, n_positions: int) -> list[LayerCache]:
        """Allocate the caches of all layers, for `n_positions` tokens."""
        like = self.output_proj.weight  # the same device and type
        return [
            LayerCache(KVCache(self.config, batch_size, n_positions, like)) for _ in self.layers
        ]


class EncoderOnly(SingleStack):
    """A stack that predicts the whole target in parallel, each token from the whole input."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__(config, causal=False)
        self.config = config

    def forward(
        self, tokens_BW: Tensor, attn_mask: Tensor, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Return the logits (BWV) of the token at each position.

        Each layer appends its attention weights (BHWW) to `weights`. `attn_mask` is the attention
        mask: True where attention is allowed, broadcast to BHWW.
        """
        return self.apply_layers(self.embedding(tokens_BW), attn_mask, weights)
