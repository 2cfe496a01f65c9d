"""Sizes and options of the transformer, validated in one place.

This file does not import torch, because forms and command lines use it too.
"""

from __future__ import annotations

import math
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

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
T5_NUM_BUCKETS = 32  # relative distances that T5 distinguishes

MAX_ATTENTION_SCORES = 4_000_000  # limit on the attention scores of one layer: 16 MB


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
) -> Any:
    """Define a dataclass field with its description and the range that it accepts."""
    return field(
        default=default,
        metadata={"help": description, "low": low, "high": high, "choices": choices},
    )


def validate_fields(config: Any) -> None:
    """Check every field of a dataclass of `setting`s against its type, range and choices.

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
    low, high, choices = (
        field_definition.metadata["low"],
        field_definition.metadata["high"],
        field_definition.metadata["choices"],
    )
    if choices:
        if value not in choices:
            raise ConfigError(
                name, f"{name} is {short_repr(value)}; choose one of {', '.join(choices)}"
            )
    elif kind is bool or kind is str:
        if not isinstance(value, kind):
            noun = "true or false" if kind is bool else "text"
            raise ConfigError(name, f"{name} is {short_repr(value)}; it must be {noun}")
    else:
        is_integer = kind is int
        numeric = isinstance(value, int) or (
            isinstance(value, float) and not is_integer and math.isfinite(value)
        )
        if isinstance(value, bool) or not numeric or not low <= value <= high:
            noun = "a whole number" if is_integer else "a number"
            limits = f"{format_number(low)} to {format_number(high)}"
            raise ConfigError(
                name, f"{name} is {short_repr(value)}; it must be {noun} from {limits}"
            )
        if not is_integer:
            return float(value)  # 1 and 1.0 are the same setting and must be saved the same
    return value


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


@dataclass(frozen=True)
class ModelConfig:
    """An encoder-decoder transformer as in "Attention Is All You Need" (Vaswani et al. 2017).

    Options add later variants. The defaults learn the playground's tasks fast: pre-norm, learned
    positions, separate embeddings for source and target, no dropout (benchmarks/RESULTS.md measures
    each choice). `ModelConfig.paper_base()` has the paper's sizes.
    """

    # settings that this architecture does not use; they must keep their defaults
    unused: ClassVar[frozenset[str]] = frozenset()

    d_model: int = config_field(64, "Width of the model: size of every vector.", low=1, high=4096)
    n_heads: int = config_field(
        4,
        "Attention heads in each layer; must divide d_model, unless d_k and d_v are set.",
        low=1,
        high=64,
    )
    n_kv_heads: int = config_field(
        0,
        "Heads of keys and values, each used by an equal number of query heads (grouped-query "
        "attention). 1: a single one (multi-query attention). 0: one for each query head.",
        low=0,
        high=64,
    )
    d_k: int = config_field(
        0, "Size of a head's queries and keys; 0 means d_model / n_heads.", low=0, high=4096
    )
    d_v: int = config_field(
        0, "Size of a head's values; 0 means d_model / n_heads.", low=0, high=4096
    )
    n_layers: int = config_field(
        2, "Layers in each stack: the same number in encoder and decoder.", low=1, high=48
    )
    d_ff: int = config_field(
        128, "Width of the hidden layer in the feed-forward networks.", low=1, high=16384
    )
    activation: str = config_field(
        "relu",
        "Activation of the feed-forward network: ReLU, GELU or SwiGLU. SwiGLU has a third matrix, "
        "so the network is half as large again; with two thirds of d_ff it has the usual size.",
        choices=("relu", "gelu", "swiglu"),
    )
    dropout: float = config_field(
        0.0,
        "Fraction of values set to zero in training, after the embedding and each sublayer.",
        low=0,
        high=0.9,
    )
    norm_placement: str = config_field(
        "pre",
        "Layer norm before each sublayer (pre), or after its result was added (post, the paper's).",
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
        low=0,
        high=100,
    )
    randomized_range: int = config_field(
        0,
        "Randomized positions only: the number of positions to sample from; 0 means four times "
        "max_positions.",
        low=0,
        high=1_000_000,
    )
    share_embeddings: bool = config_field(False, "Source and target share one table of embeddings.")
    tie_output_embeddings: bool = config_field(
        False, "The output layer uses the target's token embeddings as its weights."
    )
    attention_bias: bool = config_field(
        True, "Biases in the query, key, value and output projections of attention."
    )
    bias: bool = config_field(
        True,
        "Biases in all projections and norms, including those of attention.",
    )
    source_vocab_size: int = config_field(
        13, "Tokens in the source vocabulary, including PAD, SOS and EOS.", low=4, high=1_000_000
    )
    target_vocab_size: int = config_field(
        13, "Tokens in the target vocabulary, including PAD, SOS and EOS.", low=4, high=1_000_000
    )
    max_positions: int = config_field(
        11,
        "Tokens in the longest sequence, including one EOS or SOS.",
        low=2,
        high=1_000_000,
    )

    def __post_init__(self) -> None:
        validate_fields(self)
        for each in fields(self):
            if each.name in self.unused and getattr(self, each.name) != each.default:
                value = short_repr(getattr(self, each.name))
                raise ConfigError(
                    each.name,
                    f"{each.name} is {value}, but this architecture does not use it; leave it at "
                    f"{each.default}",
                )
        if self.d_model % self.n_heads and not (self.d_k and self.d_v):
            divisors = [n for n in range(1, min(self.d_model, 64) + 1) if self.d_model % n == 0]
            raise ConfigError(
                "n_heads",
                f"n_heads is {self.n_heads}, which does not divide d_model {self.d_model}; use one "
                f"of {', '.join(map(str, divisors))}, or set the head sizes d_k and d_v",
            )
        if self.n_kv_heads and self.n_heads % self.n_kv_heads:
            divisors = [n for n in range(1, self.n_heads + 1) if self.n_heads % n == 0]
            raise ConfigError(
                "n_kv_heads",
                f"n_kv_heads is {self.n_kv_heads}, which does not divide n_heads {self.n_heads}; "
                f"use one of {', '.join(map(str, divisors))}",
            )
        if self.share_embeddings and self.source_vocab_size != self.target_vocab_size:
            raise ConfigError(
                "share_embeddings",
                f"share_embeddings needs equal vocabularies, but source_vocab_size is "
                f"{self.source_vocab_size} and target_vocab_size {self.target_vocab_size}; make "
                f"them equal or turn share_embeddings off",
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
                f"numbers; rope rotates pairs of numbers and needs an even size: change {name}"
                + ("" if self.d_k else " or set d_k"),
            )
        if self.position_type == "randomized" and self.n_position_vectors < self.max_positions:
            raise ConfigError(
                "randomized_range",
                f"randomized_range is {self.randomized_range}, which is less than max_positions "
                f"{self.max_positions}; make it at least as large, or 0",
            )

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
        if self.position_type in WITHOUT_POSITION_VECTORS:
            return 0
        return (
            (self.randomized_range or 4 * self.max_positions)
            if self.position_type == "randomized"
            else self.max_positions
        )

    def untrained_positions(self, source_tokens: int, target_tokens: int) -> dict[str, range]:
        """Return the positions of each side whose learned vectors are never trained.

        No source has more than `source_tokens` (including EOS), no target more than `target_tokens`
        (including SOS). Vectors after these keep their random initial values, so a longer sequence
        adds noise.

        Sinusoidal and relative positions have no such vectors; randomized positions train all.
        """
        n_vectors = (
            self.n_position_vectors if self.position_type in ("learned", "learned-from-end") else 0
        )
        return {
            "source": range(min(source_tokens, n_vectors), n_vectors),
            "target": range(min(target_tokens, n_vectors), n_vectors),
        }

    @classmethod
    def paper_base(cls, vocab_size: int = 30_000, max_positions: int = 5_000) -> ModelConfig:
        """Return the paper's base model (Vaswani et al. 2017, table 3).

        Its sizes: d_model 512, 6+6 layers, 8 heads, d_ff 2048, dropout 0.1. The paper also uses one
        table for source, target and output (section 3.4). Here these are `share_embeddings` and
        `tie_output_embeddings`. They are off, because each side has its own vocabulary.
        """
        return cls(
            d_model=512,
            n_heads=8,
            n_layers=6,
            d_ff=2048,
            dropout=0.1,
            norm_placement="post",
            position_type="sinusoidal",
            share_embeddings=False,
            source_vocab_size=vocab_size,
            target_vocab_size=vocab_size,
            max_positions=max_positions,
        )

    def parameter_count(self) -> int:
        """Count the trainable parameters of the model without building it."""
        d, bias = self.d_model, int(self.bias)
        attention, position_encoding, feed_forward, norm = self.parameter_breakdown()
        encoder_layer = attention + position_encoding + feed_forward + 2 * norm
        decoder_layer = 2 * attention + position_encoding + feed_forward + 3 * norm
        final_norms = 2 * norm if self.norm_placement == "pre" else 0
        symbols = self.target_vocab_size * d + (
            0 if self.share_embeddings else self.source_vocab_size * d
        )
        positions = 0 if self.position_type == "sinusoidal" else 2 * self.n_position_vectors * d
        output = bias * self.target_vocab_size + (
            0 if self.tie_output_embeddings else self.target_vocab_size * d
        )
        return (
            self.n_layers * (encoder_layer + decoder_layer)
            + final_norms
            + symbols
            + positions
            + output
        )

    def parameter_breakdown(self) -> tuple[int, int, int, int]:
        """Count the parameters of each part of a layer.

        Returns those of an attention, of its relative positions, of a feed-forward network and of a
        norm.
        """
        d, bias = self.d_model, int(self.bias)
        queries, keys_values = (
            self.n_heads * self.key_size,
            self.n_kv_heads_resolved * (self.key_size + self.value_size),
        )
        head_outputs = self.n_heads * self.value_size
        attention = d * (queries + keys_values + head_outputs) + (
            queries + keys_values + d if self.bias and self.attention_bias else 0
        )
        position_encoding = T5_NUM_BUCKETS * self.n_heads if self.position_type == "t5" else 0
        n_input_projections = 2 if self.activation == "swiglu" else 1  # projections into d_ff
        feed_forward = (n_input_projections + 1) * d * self.d_ff + bias * (
            n_input_projections * self.d_ff + d
        )
        return (
            attention,
            position_encoding,
            feed_forward,
            d + (d * bias if self.norm_type == "layer" else 0),
        )

    def sequence_length(self, source: int, target: int) -> int:
        """Return the length of the model's input for these source and target lengths."""
        return max(source, target)

    def extra_activations(self, source: int, target: int) -> int:
        """Count the extra activations of one example that the backward pass needs.

        They come on top of those that every layer stores for each token and for each pair of tokens
        in a head.
        """
        return 0

    def max_batch_size(self, length: int) -> int:
        """Return the batch size for sequences of `length` tokens without gradients, at most 512.

        It limits the attention scores, a number for each head and pair of tokens.
        """
        return max(1, min(512, MAX_ATTENTION_SCORES // (self.n_heads * length * length)))
