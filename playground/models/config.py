"""Sizes and choices of the transformer, validated in one place. No torch in here: forms and command lines read it too."""

from __future__ import annotations

import math
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

POSITIONS = ("learned", "sinusoidal", "none", "from-the-end", "rope", "alibi", "t5", "randomised")
WITHOUT_VECTORS = (
    "none",
    "rope",
    "alibi",
    "t5",
)  # positions that are no vectors added to the symbols
T5_BUCKETS = 32  # relative distances that T5 tells apart

SCORES_AT_A_TIME = 4_000_000  # attention scores of one layer that may exist at once: 16 MB


class SettingError(ValueError):
    """A setting that cannot be: `field` names it, the message says what was given, what is accepted and the way out."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field with the sentence that explains it and the range that it accepts."""
    return field(
        default=default, metadata={"help": help, "low": low, "high": high, "choices": choices}
    )


def check_settings(config: Any) -> None:
    """Hold every field of a dataclass of `setting`s against its type, range and choices.

    Raises:
        SettingError: for the first field that does not fit. NaN, infinities and booleans posing as numbers are refused.
    """
    for each in fields(config):
        value = getattr(config, each.name)
        checked = check_setting(each, value)
        if checked is not value:
            object.__setattr__(config, each.name, checked)


def check_setting(each: Field[Any], value: Any) -> Any:
    """Check a value against a setting's type, range and choices; return it as it is saved.

    Raises:
        SettingError: for a value that does not fit.
    """
    name, kind = each.name, type(each.default)
    low, high, choices = each.metadata["low"], each.metadata["high"], each.metadata["choices"]
    if choices:
        if value not in choices:
            raise SettingError(
                name, f"{name} is {shown(value)}; choose one of {', '.join(choices)}"
            )
    elif kind is bool or kind is str:
        if not isinstance(value, kind):
            noun = "true or false" if kind is bool else "text"
            raise SettingError(name, f"{name} is {shown(value)}; it must be {noun}")
    else:
        whole = kind is int
        numeric = isinstance(value, int) or (
            isinstance(value, float) and not whole and math.isfinite(value)
        )
        if isinstance(value, bool) or not numeric or not low <= value <= high:
            noun = "a whole number" if whole else "a number"
            limits = f"{plain(low)} to {plain(high)}"
            raise SettingError(name, f"{name} is {shown(value)}; it must be {noun} from {limits}")
        if not whole:
            return float(value)  # 1 and 1.0 are the same setting and must be saved the same
    return value


def plain(number: float) -> str:
    """A bound as people write it: 1,000,000 and 0.000000001 rather than powers of ten."""
    return f"{number:,}" if isinstance(number, int) else f"{number:,.16f}".rstrip("0").rstrip(".")


def shown(value: object) -> str:
    """A value as an error message quotes it, cut short; Python refuses to write out a number of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True)
class ModelConfig:
    """An encoder-decoder transformer as in "Attention Is All You Need" (Vaswani et al. 2017), and a few choices since.

    The defaults learn the playground's tasks fast: pre-norm, learned positions, an embedding for each side, no dropout
    (benchmarks/RESULTS.md says what each buys). `ModelConfig.paper_base()` gives the paper's sizes.
    """

    unused: ClassVar[frozenset[str]] = (
        frozenset()
    )  # settings without a meaning for this family, which keep their defaults

    d_model: int = setting(
        64, "Width of every vector that travels through the model.", low=1, high=4096
    )
    n_heads: int = setting(
        4,
        "Attention heads in each layer; d_model divisible by it, or d_k and d_v given.",
        low=1,
        high=64,
    )
    kv_heads: int = setting(
        0,
        "Heads of keys and values, shared by query heads in groups of equal size (grouped-query). 1: all share one (multi-query). "
        "0: each query head has its own.",
        low=0,
        high=64,
    )
    d_k: int = setting(
        0, "Size of a head's queries and keys; 0 is d_model / n_heads.", low=0, high=4096
    )
    d_v: int = setting(0, "Size of a head's values; 0 is d_model / n_heads.", low=0, high=4096)
    n_layers: int = setting(
        2, "Layers in each stack: so many in the encoder, as many in the decoder.", low=1, high=48
    )
    d_ff: int = setting(
        128, "Width inside the feed-forward network of each layer.", low=1, high=16384
    )
    activation: str = setting(
        "relu",
        "Between the two products of the feed-forward network: ReLU, GELU, or SwiGLU, whose third matrix makes it half as large again "
        "(with two thirds of d_ff it is as large as the others).",
        choices=("relu", "gelu", "swiglu"),
    )
    dropout: float = setting(
        0.0,
        "Share of values zeroed after the embedding and each sublayer while training.",
        low=0,
        high=0.9,
    )
    norm: str = setting(
        "pre",
        "Layer norm before each sublayer (pre) or after its result was added (post, the paper's).",
        choices=("pre", "post"),
    )
    norm_kind: str = setting(
        "layer",
        "Layer norm, or RMSNorm, which neither subtracts the mean nor adds a shift.",
        choices=("layer", "rms"),
    )
    positions: str = setting(
        "learned",
        "How the model knows where a symbol stands. Vectors added to the symbols: learned, fixed sine waves, learned and counted from the "
        "source's end, learned at places drawn at random. Inside self-attention: rope, alibi, t5. Or not at all.",
        choices=POSITIONS,
    )
    position_scale: float = setting(
        1.0,
        "Factor on sinusoidal positions, which must be as loud as the symbols; learned ones do not use it.",
        low=0,
        high=100,
    )
    position_range: int = setting(
        0,
        "Randomised positions only: how many places they are drawn from; 0 is four times max_positions.",
        low=0,
        high=1_000_000,
    )
    share_embeddings: bool = setting(False, "Source and target use one table of symbol vectors.")
    tie_output: bool = setting(
        False, "The output layer reuses the target's symbol vectors as its weights."
    )
    attention_bias: bool = setting(
        True, "Biases in the query, key, value and output projections of attention."
    )
    bias: bool = setting(
        True,
        "Biases anywhere: without them no projection and no norm adds a constant, those of attention included.",
    )
    source_vocabulary: int = setting(
        13, "Tokens that a source may hold, PAD, SOS and EOS included.", low=4, high=1_000_000
    )
    target_vocabulary: int = setting(
        13, "Tokens that a target may hold, PAD, SOS and EOS included.", low=4, high=1_000_000
    )
    max_positions: int = setting(
        11,
        "Tokens that fit in a sequence: the longest, plus one for EOS or SOS.",
        low=2,
        high=1_000_000,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        for each in fields(self):
            if each.name in self.unused and getattr(self, each.name) != each.default:
                given = shown(getattr(self, each.name))
                raise SettingError(
                    each.name,
                    f"{each.name} is {given}, but this family has no use for it; leave it at {each.default}",
                )
        if self.d_model % self.n_heads and not (self.d_k and self.d_v):
            fit = [n for n in range(1, min(self.d_model, 64) + 1) if self.d_model % n == 0]
            raise SettingError(
                "n_heads",
                f"n_heads is {self.n_heads}, which does not divide d_model {self.d_model}; use one of {', '.join(map(str, fit))}, "
                f"or give heads sizes of their own by d_k and d_v",
            )
        if self.kv_heads and self.n_heads % self.kv_heads:
            fit = [n for n in range(1, self.n_heads + 1) if self.n_heads % n == 0]
            raise SettingError(
                "kv_heads",
                f"kv_heads is {self.kv_heads}, which does not divide n_heads {self.n_heads}; use one of {', '.join(map(str, fit))}",
            )
        if self.share_embeddings and self.source_vocabulary != self.target_vocabulary:
            raise SettingError(
                "share_embeddings",
                f"share_embeddings needs equal vocabularies, but source_vocabulary is {self.source_vocabulary} and "
                f"target_vocabulary {self.target_vocabulary}; make them equal or turn share_embeddings off",
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise SettingError(
                "d_model",
                f"d_model is {self.d_model}; sinusoidal positions pair sines with cosines and need it even",
            )
        if self.positions == "rope" and self.key_size % 2:
            name = "d_k" if self.d_k else "n_heads"
            raise SettingError(
                name,
                f"{name} is {getattr(self, name)}, which makes queries and keys of {self.key_size} numbers; rope turns them in pairs and "
                f"needs an even size: change {name}" + ("" if self.d_k else " or set d_k"),
            )
        if self.positions == "randomised" and self.places < self.max_positions:
            raise SettingError(
                "position_range",
                f"position_range is {self.position_range}, but {self.max_positions} different places (max_positions) are to be drawn from "
                f"it; make it at least as large, or 0",
            )

    @property
    def key_size(self) -> int:
        """Numbers in a head's query or key."""
        return self.d_k or self.d_model // self.n_heads

    @property
    def value_size(self) -> int:
        """Numbers in a head's value."""
        return self.d_v or self.d_model // self.n_heads

    @property
    def key_value_heads(self) -> int:
        """Heads that keys and values are made for."""
        return self.kv_heads or self.n_heads

    @property
    def places(self) -> int:
        """Position vectors on each side; 0 where none are added to the symbols."""
        if self.positions in WITHOUT_VECTORS:
            return 0
        return (
            (self.position_range or 4 * self.max_positions)
            if self.positions == "randomised"
            else self.max_positions
        )

    def untrained_places(self, source_tokens: int, target_tokens: int) -> dict[str, range]:
        """For each side, the rows of its table of learned positions that training never reaches, if no source has more than
        `source_tokens` (EOS included) and no target is given more than `target_tokens` (SOS included). They are as random at
        the end as at the beginning, so a longer sequence meets noise there.

        Sine waves and relative positions train nothing of the kind, and randomised places are drawn from all rows.
        """
        rows = self.places if self.positions in ("learned", "from-the-end") else 0
        return {
            "source": range(min(source_tokens, rows), rows),
            "target": range(min(target_tokens, rows), rows),
        }

    @classmethod
    def paper_base(cls, vocabulary: int = 30_000, max_positions: int = 5_000) -> ModelConfig:
        """The sizes of the paper's base model (Vaswani et al. 2017, table 3): 512 wide, 6+6 layers, 8 heads, d_ff 2048, dropout 0.1.

        The paper also shares one table between source, target and output (section 3.4). Here that is `share_embeddings` and `tie_output`,
        which are off: each side has a vocabulary of its own.
        """
        return cls(
            d_model=512, n_heads=8, n_layers=6, d_ff=2048, dropout=0.1, norm="post", positions="sinusoidal", share_embeddings=False,
            source_vocabulary=vocabulary, target_vocabulary=vocabulary, max_positions=max_positions,
        )  # fmt: skip

    def parameter_count(self) -> int:
        """Trainable numbers of the model that this config builds, counted without building it."""
        d, bias = self.d_model, int(self.bias)
        attention, relation, feed_forward, norm = self.part_counts()
        encoder_layer = attention + relation + feed_forward + 2 * norm
        decoder_layer = 2 * attention + relation + feed_forward + 3 * norm
        final_norms = 2 * norm if self.norm == "pre" else 0
        symbols = self.target_vocabulary * d + (
            0 if self.share_embeddings else self.source_vocabulary * d
        )
        positions = 0 if self.positions == "sinusoidal" else 2 * self.places * d
        output = bias * self.target_vocabulary + (
            0 if self.tie_output else self.target_vocabulary * d
        )
        return (
            self.n_layers * (encoder_layer + decoder_layer)
            + final_norms
            + symbols
            + positions
            + output
        )

    def part_counts(self) -> tuple[int, int, int, int]:
        """Numbers in an attention, in what positions have to say to one, in a feed-forward network and in a norm."""
        d, bias = self.d_model, int(self.bias)
        queries, shared = (
            self.n_heads * self.key_size,
            self.key_value_heads * (self.key_size + self.value_size),
        )
        mixed = self.n_heads * self.value_size
        attention = d * (queries + shared + mixed) + (
            queries + shared + d if self.bias and self.attention_bias else 0
        )
        relation = T5_BUCKETS * self.n_heads if self.positions == "t5" else 0
        wide = 2 if self.activation == "swiglu" else 1  # projections into d_ff
        feed_forward = (wide + 1) * d * self.d_ff + bias * (wide * self.d_ff + d)
        return attention, relation, feed_forward, d + (d * bias if self.norm_kind == "layer" else 0)

    def row_width(self, source: int, target: int) -> int:
        """How many tokens stand in one row that the model works on, for so many of the source and of the target."""
        return max(source, target)

    def kept_beside(self, source: int, target: int) -> int:
        """Numbers that a step keeps of one row for its backward pass beside those that every layer keeps of a token or of a pair of
        tokens in a head."""
        return 0

    def rows_at_a_time(self, width: int) -> int:
        """How many sequences of `width` tokens to run at once without gradients: few enough that the attention scores, a
        number for each head and pair of tokens, stay small, and never more than 512."""
        return max(1, min(512, SCORES_AT_A_TIME // (self.n_heads * width * width)))
