"""Sizes of the other architectures. Each class declares the settings that it takes.

This file does not import torch, because forms and command lines use it too.
"""

from dataclasses import dataclass

from .base_config import AttentionConfig, BaseConfig
from .config_fields import ConfigError, config_field
from .parameter_count import count_library_layer, count_linear, count_stack
from .stack_config import POSITION_TYPES, StackConfig

# Single stacks have no positions that depend on where a source ends and a target begins.
SINGLE_STACK_POSITION_TYPES = tuple(
    name for name in POSITION_TYPES if name not in ("learned-from-end", "randomized")
)
GATES_PER_CELL = {"rnn": 1, "lstm": 4, "gru": 3}


def check_shared_vocabulary(config: BaseConfig) -> None:
    """Raise ConfigError if source and target have vocabularies of different sizes."""
    if config.source_vocab_size != config.target_vocab_size:
        raise ConfigError(
            "target_vocab_size",
            f"target_vocab_size is {config.target_vocab_size}, but this architecture has a "
            f"single vocabulary; make it {config.source_vocab_size}, equal to source_vocab_size",
        )


@dataclass(frozen=True)
class TorchTransformerConfig(AttentionConfig):
    """Sizes of the encoder-decoder from PyTorch's own layers."""

    norm_placement: str = config_field(
        "pre",
        "Layer norm before each sublayer (pre), or after the residual sum (post, the paper's).",
        choices=("pre", "post"),
    )

    def parameter_count(self) -> int:
        d = self.d_model
        final_norms = 2 * 2 * d if self.norm_placement == "pre" else 0
        n_tables = self.source_vocab_size + self.target_vocab_size + 2 * self.max_positions + 1
        layers = count_library_layer(d, self.d_ff) + count_library_layer(d, self.d_ff, True)
        output = count_linear(d, self.target_vocab_size)
        return self.n_layers * layers + final_norms + n_tables * d + output


@dataclass(frozen=True)
class SingleStackConfig(StackConfig):
    """Sizes of one stack of our own layers."""

    norm_type: str = config_field(
        "layer",
        "Layer norm, RMSNorm, which does not subtract the mean and has no shift, or none.",
        choices=("layer", "rms", "none"),
    )
    position_type: str = config_field(
        "learned",
        "Position encoding. Vectors added to the token embeddings: learned or sinusoidal. Inside "
        "self-attention: rope, alibi, t5. Or none.",
        choices=SINGLE_STACK_POSITION_TYPES,
    )


@dataclass(frozen=True)
class EncoderOnlyConfig(SingleStackConfig):
    """One stack of encoder layers, as in BERT (Devlin et al. 2018).

    It predicts a token at each position.
    """

    def parameter_count(self) -> int:
        n_positions = self.n_position_vectors if self.position_type == "learned" else 0
        embeddings = (self.source_vocab_size + n_positions) * self.d_model
        output = count_linear(self.d_model, self.target_vocab_size, self.has_output_bias)
        return count_stack(self) + embeddings + output


@dataclass(frozen=True)
class DecoderOnlyConfig(SingleStackConfig):
    """One stack of causal layers over source and target (as in GPT; Radford et al. 2018)."""

    tie_output_embeddings: bool = config_field(
        False, "The output layer uses the target's token embeddings as its weights."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shared_vocabulary(self)

    def parameter_count(self) -> int:
        n_vectors = self.source_vocab_size
        n_vectors += 0 if self.tie_output_embeddings else self.target_vocab_size
        if self.position_type == "learned":
            n_vectors += self.n_position_vectors
        output_bias = self.target_vocab_size if self.has_output_bias else 0
        return count_stack(self) + n_vectors * self.d_model + output_bias

    def sequence_length(self, source: int, target: int) -> int:
        return source + target


@dataclass(frozen=True)
class RNNSeq2SeqConfig(BaseConfig):
    """Sizes of a recurrent encoder and decoder; d_model is the size of the hidden state."""

    cell: str = config_field(
        "gru",
        "Type of the recurrent cell, each as in PyTorch: plain RNN, LSTM or GRU.",
        choices=tuple(GATES_PER_CELL),
    )
    attention: str = config_field(
        "none",
        "Attention of the decoder to the source: none, additive (a small network) or dot product.",
        choices=("none", "additive", "dot"),
    )

    def parameter_count(self) -> int:
        d, gates = self.d_model, GATES_PER_CELL[self.cell]
        cell = 2 * count_linear(d, gates * d)
        # the input of the first decoder cell contains the context, too
        context_input = gates * d * d if self.attention == "additive" else 0
        attention = {"none": 0, "additive": 2 * d * d + d + d, "dot": 2 * d * d + d}[self.attention]
        embeddings = (self.source_vocab_size + self.target_vocab_size) * d
        output = count_linear(d, self.target_vocab_size)
        return 2 * self.n_layers * cell + context_input + attention + embeddings + output

    def extra_activations(self, source: int, target: int) -> int:
        # the hidden layer of the additive attention, for each pair of positions
        return source * target * self.d_model if self.attention == "additive" else 0


@dataclass(frozen=True)
class HuggingFaceConfig(AttentionConfig):
    """The settings of a model of transformers that can be chosen here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shared_vocabulary(self)


@dataclass(frozen=True)
class BertSizes(HuggingFaceConfig):
    """The settings of transformers' BertConfig that can be chosen here."""

    def parameter_count(self) -> int:
        d, norm = self.d_model, 2 * self.d_model
        embeddings = (self.source_vocab_size + 2 * self.max_positions + 2) * d + norm
        head = count_linear(d, d) + norm + self.target_vocab_size
        return embeddings + self.n_layers * count_library_layer(d, self.d_ff) + head

    def sequence_length(self, source: int, target: int) -> int:
        return source + self.max_positions


@dataclass(frozen=True)
class GPT2Sizes(HuggingFaceConfig):
    """The settings of transformers' GPT2Config that can be chosen here."""

    def parameter_count(self) -> int:
        d, norm = self.d_model, 2 * self.d_model
        embeddings = (self.source_vocab_size + 2 * self.max_positions) * d
        return embeddings + self.n_layers * count_library_layer(d, self.d_ff) + norm

    def sequence_length(self, source: int, target: int) -> int:
        return source + target


@dataclass(frozen=True)
class BartSizes(HuggingFaceConfig):
    """The settings of transformers' BartConfig that can be chosen here."""

    def parameter_count(self) -> int:
        d, norm = self.d_model, 2 * self.d_model
        # the first two positions of each table are never used
        embeddings = (self.source_vocab_size + 2 * (self.max_positions + 2)) * d
        layers = count_library_layer(d, self.d_ff) + count_library_layer(d, self.d_ff, True)
        return embeddings + 2 * norm + self.n_layers * layers
