"""Settings: how they are described and validated, and those that every architecture has.

A setting is a field of a dataclass, with a description and the values that it accepts.

This file does not import torch, because forms and command lines use it too.
"""

import math
from dataclasses import Field, dataclass, field, fields
from typing import Any

MAX_ATTENTION_SCORES = 4_000_000  # limit on the attention scores of one layer: 16 MB
MAX_EVAL_BATCH_SIZE = 512

Shapes = list[tuple[int, ...]]  # of the weights of one component, those of all layers


class ConfigError(ValueError):
    """An invalid setting.

    `field` names the setting. The message contains the value, what is accepted, and what to do.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def config_field(
    default: Any,
    description: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    role: str = "",
) -> Any:
    """Define a dataclass field with its description and the range that it accepts.

    `role` is what a setting does in an experiment (train_config.py).
    """
    metadata = {"help": description, "low": low, "high": high, "choices": choices, "role": role}
    return field(default=default, metadata=metadata)


def validate_fields(config: Any) -> None:
    """Check every field of a dataclass of config fields against its type, range and choices.

    Raises:
        ConfigError: for the first invalid field. NaN, infinities and booleans are not numbers.
    """
    for each in fields(config):
        value = getattr(config, each.name)
        checked = validate_field(each, value)
        if checked is not value:
            object.__setattr__(config, each.name, checked)


def validate_field(field_definition: Field[Any], value: Any) -> Any:
    """Check a value against a setting's type, range and choices; return it as it is saved.

    Raises:
        ConfigError: for an invalid value.
    """
    name, kind = field_definition.name, type(field_definition.default)
    low, high, choices = (field_definition.metadata[key] for key in ("low", "high", "choices"))
    if choices:
        is_valid, accepted = value in choices, f"choose one of {', '.join(choices)}"
    elif kind is bool or kind is str:
        is_valid = isinstance(value, kind)
        accepted = "it must be " + ("true or false" if kind is bool else "text")
    else:
        is_number = isinstance(value, int if kind is int else int | float)
        is_valid = is_number and not isinstance(value, bool) and low <= value <= high
        noun = "a whole number" if kind is int else "a number"
        accepted = f"it must be {noun} from {format_number(low)} to {format_number(high)}"
    if not is_valid:
        raise ConfigError(name, f"{name} is {short_repr(value)}; {accepted}")
    # 1 and 1.0 are the same setting and must be saved the same
    return float(value) if kind is float else value


def format_number(number: float) -> str:
    """Format a bound without an exponent: 1,000,000 and 0.000000001."""
    return f"{number:,}" if isinstance(number, int) else f"{number:,.16f}".rstrip("0").rstrip(".")


def short_repr(value: object) -> str:
    """Format a value for an error message, at most 80 characters long.

    Python refuses to convert a number with thousands of digits, so such a number is described.
    """
    try:
        text = repr(value)
    except ValueError:
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."


def linear(n_in: int, n_out: int, bias: bool = True) -> Shapes:
    """Return the shapes of a linear layer."""
    return [(n_out, n_in), (n_out,)] if bias else [(n_out, n_in)]


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

    def parameter_groups(self) -> dict[str, Shapes]:
        """Return the shapes of the trainable weights of each component of the model."""
        raise NotImplementedError

    def parameter_count(self) -> int:
        """Count the trainable parameters of the model without building it."""
        return sum(
            math.prod(shape) for shapes in self.parameter_groups().values() for shape in shapes
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

    def library_layers(self, has_cross_attention: bool = False) -> Shapes:
        """Return the weights of the layers of PyTorch or transformers, which have every bias."""
        d, d_ff, n_attentions = self.d_model, self.d_ff, 2 if has_cross_attention else 1
        attention, norms = 4 * linear(d, d), [(d,)] * 2 * (n_attentions + 1)
        layer = n_attentions * attention + linear(d, d_ff) + linear(d_ff, d) + norms
        return self.n_layers * layer

    def max_batch_size(self, length: int) -> int:
        n_scores = self.n_heads * length * length  # of one example
        return max(1, min(MAX_EVAL_BATCH_SIZE, MAX_ATTENTION_SCORES // n_scores))
