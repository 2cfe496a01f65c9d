"""The settings that several architectures share.

This file does not import torch, because forms and command lines use it too.
"""

from dataclasses import dataclass

from .config_fields import ConfigError, config_field, validate_fields

MAX_ATTENTION_SCORES = 4_000_000  # limit on the attention scores of one layer: 16 MB
MAX_EVAL_BATCH_SIZE = 512


@dataclass(frozen=True)
class BaseConfig:
    """The settings that every architecture has. Subclasses add their own."""

    d_model: int = config_field(64, "Width of the model: size of every vector.", low=1, high=4096)
    n_layers: int = config_field(
        2, "Layers in each stack: the same number in encoder and decoder.", low=1, high=48
    )
    dropout: float = config_field(
        0.0,
        "Fraction of values set to zero in training, after the embedding and each sublayer.",
        low=0,
        high=0.9,
    )
    source_vocab_size: int = config_field(
        13, "Tokens in the source vocabulary, including PAD, SOS and EOS.", low=4, high=1_000_000
    )
    target_vocab_size: int = config_field(
        13, "Tokens in the target vocabulary, including PAD, SOS and EOS.", low=4, high=1_000_000
    )
    max_positions: int = config_field(
        11, "Tokens in the longest sequence, including one EOS or SOS.", low=2, high=1_000_000
    )

    def __post_init__(self) -> None:
        validate_fields(self)

    def parameter_count(self) -> int:
        """Count the trainable parameters of the model without building it."""
        raise NotImplementedError

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
        low=1,
        high=64,
    )
    d_ff: int = config_field(
        128, "Width of the hidden layer in the feed-forward networks.", low=1, high=16384
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
