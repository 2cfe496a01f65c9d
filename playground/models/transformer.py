"""The encoder-decoder transformer (Vaswani et al. 2017, section 3.1).

`encode` turns the source into the memory, `decode` computes a vector for each target position, and
`output_proj` turns each vector into a score for every token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from torch import Tensor, nn

from .attention import causal_mask, padding_mask
from .config import ModelConfig
from .embeddings import InputEmbedding, build_token_embedding
from .initialization import reinitialize
from .layers import DecoderLayer, EncoderLayer, KVCache, build_norm


@dataclass
class AttentionWeights:
    """The attention weights of one forward pass, a tensor for each layer.

    For each query the weights sum to one.
    """

    encoder: list[Tensor] = field(default_factory=list)  # BHSS
    decoder: list[Tensor] = field(default_factory=list)  # BHTT
    cross: list[Tensor] = field(default_factory=list)  # BHTS


class Transformer(nn.Module):
    """Encoder and decoder stacks over embeddings, and a linear layer that scores every token.

    Sources are BS, targets BT, both padded with token 0. With pre-norm each stack ends with a final
    norm, because the sum of its residual connections is not normalized. With post-norm there is
    none, as in the paper.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        target_tokens = build_token_embedding(config.target_vocab_size, config.d_model)
        source_tokens = target_tokens
        if not config.share_embeddings:
            source_tokens = build_token_embedding(config.source_vocab_size, config.d_model)
        self.source_embedding = InputEmbedding(config, source_tokens, side="source")
        self.target_embedding = InputEmbedding(config, target_tokens, side="target")
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_layers))
        self.encoder_norm = build_norm(config) if config.norm_placement == "pre" else nn.Identity()
        self.decoder_norm = build_norm(config) if config.norm_placement == "pre" else nn.Identity()
        self.output_proj = nn.Linear(
            config.d_model, config.target_vocab_size, bias=config.has_output_bias
        )
        nn.init.xavier_uniform_(self.output_proj.weight)
        if config.tie_output_embeddings:
            self.output_proj.weight = target_tokens.weight
        reinitialize(self, config)

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Return the logits (BTV) of the token that follows each target position."""
        return self.output_proj(self.decode(target_BT, self.encode(source_BS), source_BS))

    def encode(self, source_BS: Tensor, weights: AttentionWeights | None = None) -> Tensor:
        """Return the memory (BSD): a vector for each source position, computed from all of them."""
        x_BSD = self.source_embedding(source_BS)
        attn_mask = padding_mask(source_BS)
        for layer in self.encoder_layers:
            x_BSD, weights_BHSS = layer(x_BSD, attn_mask, need_weights=weights is not None)
            if weights is not None:
                weights.encoder.append(weights_BHSS)
        return self.encoder_norm(x_BSD)

    def decode(
        self,
        target_BT: Tensor,
        memory_BSD: Tensor,
        source_BS: Tensor,
        weights: AttentionWeights | None = None,
    ) -> Tensor:
        """Return a vector (BTD) for each target position, from the target so far and the memory.

        The target needs no padding mask: its padding comes after every token, where the causal mask
        hides it.
        """
        self_attn_mask = causal_mask(target_BT.shape[1], target_BT.device)
        return self._decode(
            target_BT,
            self.project_memory(memory_BSD),
            self_attn_mask,
            padding_mask(source_BS),
            weights=weights,
        )

    def log_probs(self, x_BTD: Tensor) -> Tensor:
        """Return the log-probabilities (BTV) of the next token."""
        return self.output_proj(x_BTD).log_softmax(-1)

    def forward_with_attention(
        self, source_BS: Tensor, target_BT: Tensor
    ) -> tuple[Tensor, AttentionWeights]:
        """Return the logits of `forward` and the attention weights of all layers."""
        weights = AttentionWeights()
        x_BTD = self.decode(target_BT, self.encode(source_BS, weights), source_BS, weights)
        return self.output_proj(x_BTD), weights

    # Generation, one token at a time: keys and values are computed once and then cached.

    def project_memory(self, memory_BSD: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the keys and values (BGSK) of the memory for each decoder layer.

        They stay the same for all target positions.
        """
        layers = cast(Iterable[DecoderLayer], self.decoder_layers)
        return [layer.cross_attn.project_kv(memory_BSD) for layer in layers]

    def new_cache(self, batch_size: int, n_positions: int) -> list[KVCache]:
        """Allocate the caches of all decoder layers, for `n_positions` target positions."""
        like = self.output_proj.weight  # the same device and type
        return [KVCache(self.config, batch_size, n_positions, like) for _ in self.decoder_layers]

    def decode_step(
        self,
        token_BT: Tensor,
        memory_kv: list[tuple[Tensor, Tensor]],
        cross_attn_mask: Tensor,
        cache: Sequence[KVCache],
        weights: AttentionWeights | None = None,
    ) -> Tensor:
        """Return the vectors (BTD) of the next target positions, usually one; they extend `cache`.

        The vectors equal those of `decode`. `cross_attn_mask` is the padding mask of the source.
        """
        n_tokens, n_cached = token_BT.shape[1], cache[0].length
        self_attn_mask = None
        if n_tokens > 1:
            self_attn_mask = causal_mask(n_cached + n_tokens, token_BT.device)[n_cached:]
        return self._decode(token_BT, memory_kv, self_attn_mask, cross_attn_mask, cache, weights)

    def _decode(
        self,
        target_BT: Tensor,
        memory_kv: list[tuple[Tensor, Tensor]],
        self_attn_mask: Tensor | None,
        cross_attn_mask: Tensor,
        cache: Sequence[KVCache] | None = None,
        weights: AttentionWeights | None = None,
    ) -> Tensor:
        x_BTD = self.target_embedding(target_BT, first_position=cache[0].length if cache else 0)
        for i, layer in enumerate(self.decoder_layers):
            x_BTD, self_weights_BHTM, cross_weights_BHTS = layer(
                x_BTD,
                self_attn_mask,
                *memory_kv[i],
                cross_attn_mask,
                cache[i] if cache else None,
                need_weights=weights is not None,
            )
            if weights is not None:
                weights.decoder.append(self_weights_BHTM)
                weights.cross.append(cross_weights_BHTS)
        return self.decoder_norm(x_BTD)
