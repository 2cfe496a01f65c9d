"""Sizes of the other architectures, beside the encoder-decoder.

This file does not import torch, because forms and command lines use it too. Settings that an
architecture does not use are rejected.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from .config import MAX_ATTENTION_SCORES, POSITION_TYPES, ConfigError, ModelConfig, config_field


def all_but(*used: str) -> frozenset[str]:
    """Return all settings of `ModelConfig` except `used` and those of the task."""
    return frozenset(each.name for each in fields(ModelConfig)) - {
        *used,
        "source_vocab_size",
        "target_vocab_size",
        "max_positions",
    }


def attention_parameters(d: int, bias: bool = True) -> int:
    """Count the parameters of one attention: query, key, value and output projections."""
    return 4 * d * d + (4 * d if bias else 0)


def feed_forward_parameters(d: int, d_ff: int) -> int:
    """Count the parameters of a feed-forward network D -> F -> D with biases."""
    return 2 * d * d_ff + d_ff + d


@dataclass(frozen=True)
class SharedVocabularyConfig(ModelConfig):
    """Sizes of a model with one table of token embeddings for source and target."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source_vocab_size != self.target_vocab_size:
            raise ConfigError(
                "target_vocab_size",
                f"target_vocab_size is {self.target_vocab_size}, but this architecture has a "
                f"single vocabulary; make it {self.source_vocab_size}, equal to source_vocab_size",
            )


@dataclass(frozen=True)
class TorchTransformerConfig(ModelConfig):
    """Sizes of the encoder-decoder from PyTorch's own layers."""

    unused: ClassVar[frozenset[str]] = all_but(
        "d_model", "n_heads", "n_layers", "d_ff", "dropout", "norm_placement"
    )

    def parameter_count(self) -> int:
        d, norm = self.d_model, 2 * self.d_model
        encoder_layer = attention_parameters(d) + feed_forward_parameters(d, self.d_ff) + 2 * norm
        decoder_layer = (
            2 * attention_parameters(d) + feed_forward_parameters(d, self.d_ff) + 3 * norm
        )
        final_norms = 2 * norm if self.norm_placement == "pre" else 0
        tables = (self.source_vocab_size + self.target_vocab_size + 2 * self.max_positions + 1) * d
        return (
            self.n_layers * (encoder_layer + decoder_layer)
            + final_norms
            + tables
            + self.target_vocab_size * (d + 1)
        )


# Settings of the architectures with a single stack of our own layers.
OF_ONE_STACK = (
    "d_model",
    "n_heads",
    "n_kv_heads",
    "d_k",
    "d_v",
    "n_layers",
    "d_ff",
    "activation",
    "dropout",
    "norm_placement",
    "norm_type",
    "position_type",
    "sinusoidal_scale",
    "attention_bias",
    "bias",
)


@dataclass(frozen=True)
class EncoderOnlyConfig(ModelConfig):
    """One stack of encoder layers, as in BERT (Devlin et al. 2019).

    It predicts a token at each position.
    """

    unused: ClassVar[frozenset[str]] = all_but(*OF_ONE_STACK)

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_seq2seq_positions(self)

    def parameter_count(self) -> int:
        positions = self.max_positions * self.d_model if self.position_type == "learned" else 0
        output = self.target_vocab_size * (self.d_model + int(self.bias))
        return stack_parameters(self) + positions + self.source_vocab_size * self.d_model + output


@dataclass(frozen=True)
class DecoderOnlyConfig(SharedVocabularyConfig):
    """One stack of causal layers over source and target (as in GPT; Radford et al. 2018)."""

    unused: ClassVar[frozenset[str]] = all_but(*OF_ONE_STACK, "tie_output_embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_seq2seq_positions(self)

    def parameter_count(self) -> int:
        positions = (
            self.sequence_length(self.max_positions, self.max_positions) * self.d_model
            if self.position_type == "learned"
            else 0
        )
        output = int(self.bias) * self.target_vocab_size + (
            0 if self.tie_output_embeddings else self.target_vocab_size * self.d_model
        )
        return stack_parameters(self) + positions + self.source_vocab_size * self.d_model + output

    def sequence_length(self, source: int, target: int) -> int:
        return source + target


def stack_parameters(config: ModelConfig) -> int:
    """Count the parameters of a stack of our own encoder layers with its final norm."""
    attention, position_encoding, feed_forward, norm = config.parameter_breakdown()
    return config.n_layers * (attention + position_encoding + feed_forward + 2 * norm) + (
        norm if config.norm_placement == "pre" else 0
    )


def reject_seq2seq_positions(config: ModelConfig) -> None:
    """Reject positions that depend on where a source ends and a target begins."""
    if config.position_type in ("learned-from-end", "randomized"):
        others = [each for each in POSITION_TYPES if each not in ("learned-from-end", "randomized")]
        raise ConfigError(
            "position_type",
            f"position_type is {config.position_type!r}, which only the encoder-decoder has; "
            f"choose one of {', '.join(others)}",
        )


GATES_PER_CELL = {"rnn": 1, "lstm": 4, "gru": 3}


@dataclass(frozen=True)
class RNNSeq2SeqConfig(ModelConfig):
    """Sizes of a recurrent encoder and decoder; d_model is the size of the hidden state."""

    unused: ClassVar[frozenset[str]] = all_but("d_model", "n_layers", "dropout")

    n_heads: int = config_field(1, "Recurrent models have a single attention head.", low=1, high=64)
    cell: str = config_field(
        "gru",
        "Type of the recurrent cell: plain RNN, LSTM or GRU.",
        choices=tuple(GATES_PER_CELL),
    )
    attention: str = config_field(
        "none",
        "Attention of the decoder to the source: none, additive (a small network) or dot product.",
        choices=("none", "additive", "dot"),
    )

    def parameter_count(self) -> int:
        d, gates = self.d_model, GATES_PER_CELL[self.cell]
        cell = gates * (2 * d * d + 2 * d)
        # the input of the first decoder cell contains the context, too
        context_input = gates * d * d if self.attention == "additive" else 0
        attention = {"none": 0, "additive": 2 * d * d + d + d, "dot": 2 * d * d + d}[self.attention]
        embeddings = (self.source_vocab_size + self.target_vocab_size) * d
        return (
            2 * self.n_layers * cell
            + context_input
            + attention
            + embeddings
            + self.target_vocab_size * (d + 1)
        )

    def extra_activations(self, source: int, target: int) -> int:
        # the hidden layer of the additive attention, for each pair of positions
        return source * target * self.d_model if self.attention == "additive" else 0

    def max_batch_size(self, length: int) -> int:
        return max(1, min(512, MAX_ATTENTION_SCORES // (self.d_model * length)))


@dataclass(frozen=True)
class BertSizes(SharedVocabularyConfig):
    """The settings of transformers' BertConfig that can be chosen here."""

    unused: ClassVar[frozenset[str]] = all_but("d_model", "n_heads", "n_layers", "d_ff", "dropout")

    def parameter_count(self) -> int:
        d, norm = self.d_model, 2 * self.d_model
        embeddings = (self.source_vocab_size + 2 * self.max_positions + 2) * d + norm
        layer = attention_parameters(d) + feed_forward_parameters(d, self.d_ff) + 2 * norm
        return embeddings + self.n_layers * layer + d * d + d + norm + self.target_vocab_size

    def sequence_length(self, source: int, target: int) -> int:
        return source + self.max_positions


@dataclass(frozen=True)
class GPT2Sizes(SharedVocabularyConfig):
    """The settings of transformers' GPT2Config that can be chosen here."""

    unused: ClassVar[frozenset[str]] = all_but("d_model", "n_heads", "n_layers", "d_ff", "dropout")

    def parameter_count(self) -> int:
        d, norm = self.d_model, 2 * self.d_model
        layer = attention_parameters(d) + feed_forward_parameters(d, self.d_ff) + 2 * norm
        return (self.source_vocab_size + 2 * self.max_positions) * d + self.n_layers * layer + norm

    def sequence_length(self, source: int, target: int) -> int:
        return source + target


@dataclass(frozen=True)
class BartSizes(SharedVocabularyConfig):
    """The settings of transformers' BartConfig that can be chosen here."""

    unused: ClassVar[frozenset[str]] = all_but("d_model", "n_heads", "n_layers", "d_ff", "dropout")

    def parameter_count(self) -> int:
        d, norm = self.d_model, 2 * self.d_model
        encoder_layer = attention_parameters(d) + feed_forward_parameters(d, self.d_ff) + 2 * norm
        decoder_layer = (
            2 * attention_parameters(d) + feed_forward_parameters(d, self.d_ff) + 3 * norm
        )
        # the first two positions of each table are never used
        tables = (self.source_vocab_size + 2 * (self.max_positions + 2)) * d
        return tables + 2 * norm + self.n_layers * (encoder_layer + decoder_layer)
