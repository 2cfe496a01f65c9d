"""The settings of each model: a dataclass whose fields have a description and accepted values.

This file does not import torch, because forms and command lines use it too.
"""

from dataclasses import dataclass

from .config_fields import ConfigError, config_field, validate_fields

POSITION_TYPES = (
    "learned",
    "sinusoidal",
    "none",
    "learned-from-end",
    "rope",
    "alibi",
    "t5",
    "randomized",
)
# positions that add no vectors to the token embeddings
WITHOUT_POSITION_VECTORS = ("none", "rope", "alibi", "t5")
# Single stacks have no positions that depend on where a source ends and a target begins.
SINGLE_STACK_POSITION_TYPES = tuple(
    name for name in POSITION_TYPES if name not in ("learned-from-end", "randomized")
)
T5_NUM_BUCKETS = 32  # relative distances that T5 distinguishes
GATES_PER_CELL = {"rnn": 1, "lstm": 4, "gru": 3}
MAX_ATTENTION_SCORES = 4_000_000  # limit on the attention scores of one layer: 16 MB
MAX_EVAL_BATCH_SIZE = 512


@dataclass(frozen=True)
class BaseConfig:
    """The settings that every architecture has. Subclasses add their own."""

    d_model: int = config_field(64, "Width of the model: size of every vector.", bounds=(1, 4096))
    n_layers: int = config_field(
        2, "Layers in each stack: the same number in encoder and decoder.", bounds=(1, 48)
    )
    dropout: float = config_field(
        0.0,
        "Fraction of values set to zero in training, after the embedding and each sublayer.",
        bounds=(0, 0.9),
    )
    source_vocab_size: int = config_field(
        13, "Tokens in the source vocabulary, including PAD, SOS and EOS.", bounds=(4, 1_000_000)
    )
    target_vocab_size: int = config_field(
        13, "Tokens in the target vocabulary, including PAD, SOS and EOS.", bounds=(4, 1_000_000)
    )
    max_positions: int = config_field(
        11, "Tokens in the longest sequence, including one EOS or SOS.", bounds=(2, 1_000_000)
    )

    has_single_vocabulary = False  # for source and target
    share_embeddings = tie_output_embeddings = False  # settings of some architectures

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.has_single_vocabulary and self.source_vocab_size != self.target_vocab_size:
            raise ConfigError(
                "target_vocab_size",
                f"target_vocab_size is {self.target_vocab_size}, but this architecture has a "
                f"single vocabulary; make it {self.source_vocab_size}, equal to source_vocab_size",
            )

    def sequence_length(self, source: int, target: int) -> int:
        """Return the length of the model's input for these source and target lengths."""
        return max(source, target)

    def layer_sizes(self) -> tuple[int, int, int]:
        """Return the width of all heads, the width of the hidden layer, and the number of heads."""
        return self.d_model, 0, 1

    @property
    def attention_heads(self) -> int:
        """Return the number of attention heads in a layer, 1 for an architecture without them."""
        return self.layer_sizes()[2]

    def extra_activations(self, source: int, target: int) -> int:
        """Count the activations of an example beyond those of its tokens and pairs of tokens."""
        return 0

    def max_batch_size(self, length: int) -> int:
        """Return the maximum batch size for inputs of `length` tokens without gradients."""
        return max(1, min(MAX_EVAL_BATCH_SIZE, MAX_ATTENTION_SCORES // (self.d_model * length)))


@dataclass(frozen=True)
class AttentionConfig(BaseConfig):
    """The sizes that every transformer has."""

    n_heads: int = config_field(
        4,
        "Attention heads in each layer; must divide d_model, unless d_k and d_v are set.",
        bounds=(1, 64),
    )
    d_ff: int = config_field(
        128, "Width of the hidden layer in the feed-forward networks.", bounds=(1, 16384)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % self.n_heads and not self.has_head_sizes:
            divisors = [n for n in range(1, min(self.d_model, 64) + 1) if self.d_model % n == 0]
            raise ConfigError(
                "n_heads",
                f"n_heads is {self.n_heads}, which does not divide d_model {self.d_model}; use one "
                f"of {', '.join(map(str, divisors))}, or set the head sizes d_k and d_v",
            )

    @property
    def has_head_sizes(self) -> bool:
        """Return whether d_k and d_v are both set, so that n_heads need not divide d_model."""
        return False

    def layer_sizes(self) -> tuple[int, int, int]:
        return self.d_model, self.d_ff, self.n_heads

    def max_batch_size(self, length: int) -> int:
        n_scores = self.n_heads * length * length  # of one example
        return max(1, min(MAX_EVAL_BATCH_SIZE, MAX_ATTENTION_SCORES // n_scores))


@dataclass(frozen=True)
class StackConfig(AttentionConfig):
    """The settings of a stack of our own layers."""

    n_kv_heads: int = config_field(
        0,
        "Heads of keys and values, each used by an equal number of query heads (grouped-query "
        "attention). 1: a single one (multi-query attention). 0: one for each query head.",
        bounds=(0, 64),
    )
    d_k: int = config_field(
        0, "Size of a head's queries and keys; 0 means d_model / n_heads.", bounds=(0, 4096)
    )
    d_v: int = config_field(
        0, "Size of a head's values; 0 means d_model / n_heads.", bounds=(0, 4096)
    )
    attention_dropout: float = config_field(
        0.0, "Fraction of attention weights set to zero in training.", bounds=(0, 0.9)
    )
    activation_dropout: float = config_field(
        0.0,
        "Fraction of the hidden values of the feed-forward networks set to zero in training.",
        bounds=(0, 0.9),
    )
    activation: str = config_field(
        "relu",
        "Activation of the feed-forward network: ReLU, GELU or SwiGLU. SwiGLU has a third matrix, "
        "so the network has 1.5 times as many weights; with two thirds of d_ff it has as many.",
        choices=("relu", "gelu", "swiglu"),
    )
    norm_placement: str = config_field(
        "pre",
        "Layer norm before each sublayer (pre), or after the residual sum (post, the paper's).",
        choices=("pre", "post"),
    )
    norm_type: str = config_field(
        "layer",
        "Layer norm, or RMSNorm, which does not subtract the mean and has no shift.",
        choices=("layer", "rms"),
    )
    position_type: str = config_field(
        "learned",
        "Position encoding. Vectors added to the token embeddings: learned, sinusoidal, learned "
        "and counted from the source's end, or learned at randomized positions. Inside "
        "self-attention: rope, alibi, t5. Or none.",
        choices=POSITION_TYPES,
    )
    sinusoidal_scale: float = config_field(
        1.0,
        "Scale of sinusoidal positions relative to the token embeddings; only they use it.",
        bounds=(0, 100),
    )
    attention_bias: bool = config_field(
        True, "Biases in the query, key, value and output projections of attention."
    )
    bias: bool = config_field(
        True, "Biases in all projections and norms, including those of attention."
    )
    output_bias: bool = config_field(True, "Bias of the output layer; none without biases.")
    scale_embeddings: bool = config_field(
        True, "Token embeddings are multiplied by the square root of d_model, as in the paper."
    )
    embedding_std: float = config_field(
        1.0,
        "Initial standard deviation of the token embeddings that enter the first layer.",
        bounds=(0, 100),
    )
    position_std: float = config_field(
        1.0, "Initial standard deviation of learned position embeddings.", bounds=(0, 100)
    )
    weight_init: str = config_field(
        "xavier-scaled",
        "Initial weights of linear layers: Xavier with smaller values for attention, Xavier, "
        "normal with standard deviation 0.02 as in GPT-2, or PyTorch's default.",
        choices=("xavier-scaled", "xavier", "normal", "torch"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_kv_heads and self.n_heads % self.n_kv_heads:
            divisors = [n for n in range(1, self.n_heads + 1) if self.n_heads % n == 0]
            raise ConfigError(
                "n_kv_heads",
                f"n_kv_heads is {self.n_kv_heads}, which does not divide n_heads {self.n_heads}; "
                f"use one of {', '.join(map(str, divisors))}",
            )
        if self.position_type == "sinusoidal" and self.d_model % 2:
            raise ConfigError(
                "d_model",
                f"d_model is {self.d_model}, but sinusoidal positions pair sines with cosines; use "
                f"an even number",
            )
        if self.position_type == "rope" and self.key_size % 2:
            name = "d_k" if self.d_k else "n_heads"
            raise ConfigError(
                name,
                f"{name} is {getattr(self, name)}, so queries and keys have {self.key_size} "
                "numbers; rope rotates pairs of numbers and needs an even size: change "
                + ("d_k" if self.d_k else "n_heads or set d_k"),
            )

    @property
    def has_head_sizes(self) -> bool:
        return bool(self.d_k and self.d_v)

    @property
    def has_output_bias(self) -> bool:
        return self.bias and self.output_bias

    @property
    def key_size(self) -> int:
        """Return the size of a head's query or key."""
        return self.d_k or self.d_model // self.n_heads

    @property
    def value_size(self) -> int:
        """Return the size of a head's value."""
        return self.d_v or self.d_model // self.n_heads

    @property
    def n_kv_heads_resolved(self) -> int:
        """Return the number of heads of keys and values."""
        return self.n_kv_heads or self.n_heads

    @property
    def n_position_vectors(self) -> int:
        """Return the number of position vectors on each side; 0 if none are added."""
        return 0 if self.position_type in WITHOUT_POSITION_VECTORS else self.n_positions

    @property
    def counts_from_first_column(self) -> bool:
        """Return whether padding before a sequence would shift its positions."""
        return bool(self.n_position_vectors) and self.position_type != "learned-from-end"

    @property
    def n_positions(self) -> int:
        """Return the number of positions of the longest input."""
        return self.sequence_length(self.max_positions, self.max_positions)

    def layer_sizes(self) -> tuple[int, int, int]:
        width = max(self.d_model, self.n_heads * max(self.key_size, self.value_size))
        return width, self.d_ff * (2 if self.activation == "swiglu" else 1), self.n_heads


@dataclass(frozen=True)
class TransformerConfig(StackConfig):
    """An encoder-decoder transformer as in "Attention Is All You Need" (Vaswani et al. 2017).

    Options add later variants. The defaults learn fast (benchmarks/RESULTS.md measures each).
    """

    randomized_range: int = config_field(
        0,
        "Randomized positions only: the number of positions to sample from; 0 means four times "
        "max_positions.",
        bounds=(0, 1_000_000),
    )
    share_embeddings: bool = config_field(False, "Source and target share one table of embeddings.")
    tie_output_embeddings: bool = config_field(
        False, "The output layer uses the target's token embeddings as its weights."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_embeddings and self.source_vocab_size != self.target_vocab_size:
            raise ConfigError(
                "share_embeddings",
                f"share_embeddings needs equal vocabularies, but source_vocab_size is "
                f"{self.source_vocab_size} and target_vocab_size {self.target_vocab_size}; make "
                f"them equal or turn share_embeddings off",
            )
        if self.position_type == "randomized" and self.n_position_vectors < self.max_positions:
            raise ConfigError(
                "randomized_range",
                f"randomized_range is {self.randomized_range}, which is less than max_positions "
                f"{self.max_positions}; make it at least as large, or 0",
            )

    @property
    def n_position_vectors(self) -> int:
        if self.position_type == "randomized":
            return self.randomized_range or 4 * self.max_positions
        return super().n_position_vectors


@dataclass(frozen=True)
class SingleStackConfig(StackConfig):
    """The settings of a model with one stack of our own layers."""

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
    """One stack of encoder layers (as in BERT; Devlin et al. 2018): a token at each position."""


@dataclass(frozen=True)
class DecoderOnlyConfig(SingleStackConfig):
    """One stack of causal layers over source and target (as in GPT; Radford et al. 2018)."""

    has_single_vocabulary = True
    tie_output_embeddings: bool = config_field(
        False, "The output layer uses the target's token embeddings as its weights."
    )

    def sequence_length(self, source: int, target: int) -> int:
        return source + target


@dataclass(frozen=True)
class TorchTransformerConfig(AttentionConfig):
    """Sizes of the encoder-decoder from PyTorch's own layers."""

    counts_from_first_column = True  # its positions

    norm_placement: str = config_field(
        "pre",
        "Layer norm before each sublayer (pre), or after the residual sum (post, the paper's).",
        choices=("pre", "post"),
    )


@dataclass(frozen=True)
class RecurrentConfig(BaseConfig):
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

    def extra_activations(self, source: int, target: int) -> int:
        # the hidden layer of the additive attention, for each pair of positions
        return source * target * self.d_model if self.attention == "additive" else 0


# The models of transformers that are trained from random weights.


@dataclass(frozen=True)
class BertSizes(AttentionConfig):
    """The settings of transformers' BertConfig that can be chosen here."""

    has_single_vocabulary = True

    def sequence_length(self, source: int, target: int) -> int:
        return source + self.max_positions


@dataclass(frozen=True)
class GPT2Sizes(AttentionConfig):
    """The settings of transformers' GPT2Config that can be chosen here."""

    has_single_vocabulary = True

    def sequence_length(self, source: int, target: int) -> int:
        return source + target


@dataclass(frozen=True)
class BartSizes(AttentionConfig):
    """The settings of transformers' BartConfig that can be chosen here."""

    has_single_vocabulary = True
