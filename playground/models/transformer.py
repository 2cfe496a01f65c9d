"""The encoder-decoder transformer (Vaswani et al. 2017, section 3.1).

`encode` turns the source into the memory, `decode` computes a vector for each target position, and
`output_proj` turns each vector into a score for every token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from .attention import causal_mask, padding_mask
from .config import TransformerConfig
from .embeddings import InputEmbedding, build_output_layer, build_token_embedding
from .initialization import reinitialize
from .kv_cache import KVCache, LayerCache, MemoryCache
from .layers import Layer, build_final_norm


@dataclass
class AttentionWeights:
    """The attention weights, which sum to one for each query. Every call appends its layers."""

    encoder: list[Tensor] = field(default_factory=list)  # BHSS
    decoder: list[Tensor] = field(default_factory=list)  # BHTT
    cross: list[Tensor] = field(default_factory=list)  # BHTS


class Transformer(nn.Module):
    """Encoder and decoder stacks over embeddings, and a linear layer that scores every token.

    Sources (BS) end with EOS, targets (BT) begin with SOS. Token 0 pads both at their end.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        target_tokens = build_token_embedding(config.target_vocab_size, config.d_model)
        source_tokens = target_tokens
        if not config.share_embeddings:
            source_tokens = build_token_embedding(config.source_vocab_size, config.d_model)
        self.source_embedding = InputEmbedding(config, source_tokens, side="source")
        self.target_embedding = InputEmbedding(config, target_tokens, side="target")
        self.encoder_layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.decoder_layers = nn.ModuleList(
            Layer(config, causal=True, has_cross_attention=True) for _ in range(config.n_layers)
        )
        self.encoder_norm = build_final_norm(config)
        self.decoder_norm = build_final_norm(config)
        self.output_proj = build_output_layer(config, target_tokens)
        reinitialize(self, config)

    def forward(
        self, source_BS: Tensor, target_BT: Tensor, weights: AttentionWeights | None = None
    ) -> Tensor:
        """Return the logits (BTV) of the token that follows each target position.

        Each layer appends its attention weights to those in `weights`, if they are given.
        """
        memory_BSD = self.encode(source_BS, weights)
        x_BTD = self.decode(target_BT, memory_BSD, source_BS, weights=weights)
        return self.output_proj(x_BTD)

    def encode(self, source_BS: Tensor, weights: AttentionWeights | None = None) -> Tensor:
        """Return the memory (BSD): a vector for each source position, computed from all of them."""
        attn_mask = padding_mask(source_BS)
        x_BSD = self.source_embedding(source_BS)
        for layer in self.encoder_layers:
            x_BSD = layer(x_BSD, attn_mask, self_weights=weights.encoder if weights else None)
        return self.encoder_norm(x_BSD)

    def decode(
        self,
        target_BT: Tensor,
        memory_BSD: Tensor,
        source_BS: Tensor,
        cache: Sequence[LayerCache] | None = None,
        weights: AttentionWeights | None = None,
    ) -> Tensor:
        """Return a vector (BTD) for each target position, from the target so far and the memory.

        With a `cache`, target_BT are the new tokens only, and the cache is extended by them. The
        target needs no padding mask: its padding comes after every token, where the causal mask
        hides it.
        """
        n_cached, n_new = cache[0].self_attn.length if cache else 0, target_BT.shape[1]
        self_attn_mask = None  # a single new token attends to all positions so far
        if n_new > 1:
            self_attn_mask = causal_mask(n_cached + n_new, target_BT.device)[n_cached:]
        cross_attn_mask = padding_mask(source_BS)
        x_BTD = self.target_embedding(target_BT, first_position=n_cached)
        for i, layer in enumerate(self.decoder_layers):
            x_BTD = layer(
                x_BTD,
                self_attn_mask,
                memory_BSD,
                memory_mask=cross_attn_mask,
                cache=cache[i] if cache else None,
                self_weights=weights.decoder if weights else None,
                cross_weights=weights.cross if weights else None,
            )
        return self.decoder_norm(x_BTD)

    def log_probs(self, x_BTD: Tensor) -> Tensor:
        """Return the log-probabilities (BTV) of the next token."""
        return self.output_proj(x_BTD).log_softmax(-1)

    def new_cache(self, batch_size: int, n_positions: int) -> list[LayerCache]:
        """Allocate the caches of all decoder layers, for `n_positions` target positions."""
        like = self.output_proj.weight  # the same device and type
        return [
            LayerCache(KVCache(self.config, batch_size, n_positions, like), MemoryCache())
            for _ in self.decoder_layers
        ]
