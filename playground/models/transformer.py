"""The encoder-decoder transformer: `encode` reads the source, `decode` makes a vector for each target position, `output` scores every
symbol there (`project`: as log-probabilities).

Shapes: B batch, S source, T target, H heads, G heads of keys and values, K numbers a head, D d_model, V vocabulary.
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
    """The attention weights of one forward pass, a tensor for each layer. Rows sum to one."""

    encoder_attention: list[Tensor] = field(
        default_factory=list
    )  # BHSS: where source positions look in the source
    decoder_attention: list[Tensor] = field(
        default_factory=list
    )  # BHTT: where target positions look in their own past
    cross_attention: list[Tensor] = field(
        default_factory=list
    )  # BHTS: where target positions look in the source


class Transformer(nn.Module):
    """Encoder and decoder stacks over embeddings, and a linear layer that scores every symbol.

    Sources are B rows of S tokens, targets B rows of T tokens, padded with 0. With pre-norm a final norm closes each
    stack, because nothing else would; with post-norm there is none, as in the paper.
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
        """Logits (BTV) of the token that follows each target position."""
        return self.output(self.decode(target_BT, self.encode(source_BS), source_BS))

    def encode(self, source_BS: Tensor, record: AttentionRecord | None = None) -> Tensor:
        """The memory (BSD): a vector for each source position that knows about the whole source."""
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
        """A vector (BTD) for each target position, made from its past and from the memory.

        The target needs no padding mask: its padding stands behind every symbol, where the causal mask hides it.
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
        """Log-probabilities (BTV) of the next token."""
        return self.output(x_BTD).log_softmax(-1)

    def forward_with_attention(
        self, source_BS: Tensor, target_BT: Tensor
    ) -> tuple[Tensor, AttentionRecord]:
        """Logits as from `forward`, and the attention of every layer and head on the way to them."""
        record = AttentionRecord()
        x_BTD = self.decode(target_BT, self.encode(source_BS, record), source_BS, record)
        return self.output(x_BTD), record

    # Decoding symbol by symbol: what does not change is computed once, what is past is kept.

    def memory_keys(self, memory_BSD: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each decoder layer's keys and values of the memory (BGSK); they serve every target position."""
        crossings = [cast(DecoderLayer, layer).cross_attention for layer in self.decoder_layers]
        return [attention.keys_and_values(memory_BSD) for attention in crossings]

    def empty_past(self, batch_size: int, n_positions: int) -> list[Past]:
        """Room for the keys and values of `n_positions` target positions, for each decoder layer."""
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
        """The vectors (BTD) of the next target positions, one as a rule; `past` grows by them. They equal those of `decode`.

        `may_look_across` is the padding mask of the source.
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
