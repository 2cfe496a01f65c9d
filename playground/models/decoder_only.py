"""A decoder without an encoder: it continues a sequence of tokens (Radford et al. 2018).

New letter of shapes: W the tokens of a sequence that holds source and target.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .attention import causal_mask, padding_mask
from .config import DecoderOnlyConfig
from .embeddings import InputEmbedding, build_token_embedding
from .initialization import reinitialize
from .kv_cache import KVCache, LayerCache
from .layers import Layer, build_final_norm


class DecoderOnly(nn.Module):
    """Layers of causal self-attention, and a linear layer that scores the next token."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = InputEmbedding(
            config, build_token_embedding(config.source_vocab_size, config.d_model)
        )
        self.layers = nn.ModuleList(Layer(config, causal=True) for _ in range(config.n_layers))
        self.norm = build_final_norm(config)
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
        for i, layer in enumerate(self.layers):
            x_BTD = layer(x_BTD, attn_mask, cache=cache[i] if cache else None, self_weights=weights)
        return self.output_proj(self.norm(x_BTD))

    def new_cache(self, batch_size: int, n_positions: int) -> list[LayerCache]:
        """Allocate the caches of all layers, for `n_positions` tokens."""
        like = self.output_proj.weight  # the same device and type
        return [
            LayerCache(KVCache(self.config, batch_size, n_positions, like)) for _ in self.layers
        ]
