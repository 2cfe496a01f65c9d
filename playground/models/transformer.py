"""The encoder-decoder transformer (Vaswani et al. 2017, section 3.1).

`encode` turns the source into the memory, `decode` computes a vector for each target position, and
`output` turns each vector into a score for every token (`project`: into log-probabilities).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from torch import Tensor, nn

from .attention import causal_mask, padding_mask
from .config import ModelConfig
from .layers import DecoderLayer, EncoderLayer, Past
from .norms import norm
from .positions import Embedding, token_table


@dataclass
class AttentionRecord:
    """The attention weights of one forward pass, a tensor for each layer.

    For each query the weights sum to one.
    """

    # BHSS: source positions attend to the source
    encoder_attention: list[Tensor] = field(default_factory=list)
    # BHTT: target positions attend to the target so far
    decoder_attention: list[Tensor] = field(default_factory=list)
    # BHTS: target positions attend to the source
    cross_attention: list[Tensor] = field(default_factory=list)


class Transformer(nn.Module):
    """Encoder and decoder stacks over embeddings, and a linear layer that scores every token.

    Sources are BS, targets BT, both padded with token 0. With pre-norm each stack ends with a final
    norm, because the sum of its residual connections is not normalized. With post-norm there is
    none, as in the paper.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        target_tokens = token_table(config.target_vocabulary, config.d_model)
        source_tokens = (
            target_tokens
            if config.share_embeddings
            else token_table(config.source_vocabulary, config.d_model)
        )
        self.source_embedding = Embedding(config, source_tokens, side="source")
        self.target_embedding = Embedding(config, target_tokens, side="target")
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_layers))
        self.encoder_norm = norm(config) if config.norm == "pre" else nn.Identity()
        self.decoder_norm = norm(config) if config.norm == "pre" else nn.Identity()
        self.output = nn.Linear(config.d_model, config.target_vocabulary, bias=config.bias)
        nn.init.xavier_uniform_(self.output.weight)
        if config.tie_output:
            self.output.weight = target_tokens.weight

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Return the logits (BTV) of the token that follows each target position."""
        return self.output(self.decode(target_BT, self.encode(source_BS), source_BS))

    def encode(self, source_BS: Tensor, record: AttentionRecord | None = None) -> Tensor:
        """Return the memory (BSD): a vector for each source position, computed from all of them."""
        x_BSD = self.source_embedding(source_BS)
        may_look = padding_mask(source_BS)
        for layer in self.encoder_layers:
            x_BSD, weights_BHSS = layer(x_BSD, may_look, weigh=record is not None)
            if record is not None:
                record.encoder_attention.append(weights_BHSS)
        return self.encoder_norm(x_BSD)

    def decode(
        self,
        target_BT: Tensor,
        memory_BSD: Tensor,
        source_BS: Tensor,
        record: AttentionRecord | None = None,
    ) -> Tensor:
        """Return a vector (BTD) for each target position, from the target so far and the memory.

        The target needs no padding mask: its padding comes after every token, where the causal mask
        hides it.
        """
        may_look_back = causal_mask(target_BT.shape[1], target_BT.device)
        return self._decode(
            target_BT,
            self.memory_keys(memory_BSD),
            may_look_back,
            padding_mask(source_BS),
            record=record,
        )

    def project(self, x_BTD: Tensor) -> Tensor:
        """Return the log-probabilities (BTV) of the next token."""
        return self.output(x_BTD).log_softmax(-1)

    def forward_with_attention(
        self, source_BS: Tensor, target_BT: Tensor
    ) -> tuple[Tensor, AttentionRecord]:
        """Return the logits of `forward` and the attention weights of all layers."""
        record = AttentionRecord()
        x_BTD = self.decode(target_BT, self.encode(source_BS, record), source_BS, record)
        return self.output(x_BTD), record

    # Generation, one token at a time: keys and values are computed once and then cached.

    def memory_keys(self, memory_BSD: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the keys and values (BGSK) of the memory for each decoder layer.

        They stay the same for all target positions.
        """
        crossings = [cast(DecoderLayer, layer).cross_attention for layer in self.decoder_layers]
        return [attention.keys_and_values(memory_BSD) for attention in crossings]

    def empty_past(self, batch_size: int, n_positions: int) -> list[Past]:
        """Allocate the caches of all decoder layers, for `n_positions` target positions."""
        weight, shape_BGM = (
            self.output.weight,
            (batch_size, self.config.key_value_heads, n_positions),
        )
        key, value = (*shape_BGM, self.config.key_size), (*shape_BGM, self.config.value_size)
        return [Past(weight.new_empty(key), weight.new_empty(value)) for _ in self.decoder_layers]

    def decode_next(
        self,
        token_BT: Tensor,
        memory_keys: list[tuple[Tensor, Tensor]],
        may_look_across: Tensor,
        past: Sequence[Past],
        record: AttentionRecord | None = None,
    ) -> Tensor:
        """Return the vectors (BTD) of the next target positions, usually one; they extend `past`.

        The vectors equal those of `decode`. `may_look_across` is the padding mask of the source.
        """
        n_tokens, first = token_BT.shape[1], past[0].length
        may_look_back = None
        if n_tokens > 1:
            may_look_back = causal_mask(first + n_tokens, token_BT.device)[first:]
        return self._decode(token_BT, memory_keys, may_look_back, may_look_across, past, record)

    def _decode(
        self,
        target_BT: Tensor,
        memory_keys: list[tuple[Tensor, Tensor]],
        may_look_back: Tensor | None,
        may_look_across: Tensor,
        past: Sequence[Past] | None = None,
        record: AttentionRecord | None = None,
    ) -> Tensor:
        x_BTD = self.target_embedding(target_BT, first=past[0].length if past else 0)
        for i, layer in enumerate(self.decoder_layers):
            x_BTD, self_weights_BHTM, cross_weights_BHTS = layer(
                x_BTD,
                may_look_back,
                memory_keys[i],
                may_look_across,
                past[i] if past else None,
                weigh=record is not None,
            )
            if record is not None:
                record.decoder_attention.append(self_weights_BHTM)
                record.cross_attention.append(cross_weights_BHTS)
        return self.decoder_norm(x_BTD)
