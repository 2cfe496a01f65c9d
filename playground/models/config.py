"""Sizes and choices of the transformer, validated in one place. No torch in here: forms and command lines read it too."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

SCORES_AT_A_TIME = 4_000_000  # attention scores of one layer that may exist at once: 16 MB


class SettingError(ValueError):
    """A setting that cannot be: `field` names it, the message says what was given, what is accepted and the way out."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def setting(default: Any, help: str, *, low: float | None = None, high: float | None = None, choices: tuple[str, ...] = ()) -> Any:
    """A dataclass field with the sentence that explains it and the range that it accepts."""
    return field(default=default, metadata={"help": help, "low": low, "high": high, "choices": choices})


def check_settings(config: Any) -> None:
    """Hold every field of a dataclass of `setting`s against its type, range and choices.

    Raises:
        SettingError: for the first field that does not fit. NaN, infinities and booleans posing as numbers are refused.
    """
    for each in fields(config):
        name, value, kind = each.name, getattr(config, each.name), type(each.default)
        low, high, choices = each.metadata["low"], each.metadata["high"], each.metadata["choices"]
        if choices:
            if value not in choices:
                raise SettingError(name, f"{name} is {shown(value)}; choose one of {', '.join(choices)}")
        elif kind is bool or kind is str:
            if not isinstance(value, kind):
                raise SettingError(name, f"{name} is {shown(value)}; it must be {'true or false' if kind is bool else 'text'}")
        else:
            whole = kind is int
            numeric = isinstance(value, int) or (isinstance(value, float) and not whole and math.isfinite(value))
            if isinstance(value, bool) or not numeric or not low <= value <= high:
                noun = "a whole number" if whole else "a number"
                raise SettingError(name, f"{name} is {shown(value)}; it must be {noun} from {plain(low)} to {plain(high)}")
            if not whole:
                object.__setattr__(config, name, float(value))  # 1 and 1.0 are the same setting and must be saved the same


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

    unused: ClassVar[frozenset[str]] = frozenset()  # settings without a meaning for this family, which keep their defaults

    d_model: int = setting(64, "Width of every vector that travels through the model.", low=1, high=4096)
    n_heads: int = setting(4, "Attention heads in each layer; d_model must be divisible by it.", low=1, high=64)
    n_layers: int = setting(2, "Encoder layers, and as many decoder layers.", low=1, high=48)
    d_ff: int = setting(128, "Width inside the feed-forward network of each layer.", low=1, high=16384)
    dropout: float = setting(0.0, "Share of values zeroed after the embedding and each sublayer while training.", low=0, high=0.9)
    norm: str = setting(
        "pre", "Layer norm before each sublayer (pre) or after its result was added (post, the paper's).", choices=("pre", "post")
    )
    positions: str = setting("learned", "A trained vector for each position, or fixed sine waves.", choices=("learned", "sinusoidal"))
    position_scale: float = setting(
        1.0, "Factor on sinusoidal positions, which must be as loud as the symbols; learned ones do not use it.", low=0, high=100
    )
    share_embeddings: bool = setting(False, "Source and target use one table of symbol vectors.")
    tie_output: bool = setting(False, "The output layer reuses the target's symbol vectors as its weights.")
    attention_bias: bool = setting(True, "Biases in the query, key, value and output projections of attention.")
    source_vocabulary: int = setting(13, "Tokens that a source may hold, PAD, SOS and EOS included.", low=4, high=1_000_000)
    target_vocabulary: int = setting(13, "Tokens that a target may hold, PAD, SOS and EOS included.", low=4, high=1_000_000)
    max_positions: int = setting(11, "Tokens that fit in a sequence: the longest, plus one for EOS or SOS.", low=2, high=1_000_000)

    def __post_init__(self) -> None:
        check_settings(self)
        for each in fields(self):
            if each.name in self.unused and getattr(self, each.name) != each.default:
                given = shown(getattr(self, each.name))
                raise SettingError(each.name, f"{each.name} is {given}, but this family has no use for it; leave it at {each.default}")
        if self.d_model % self.n_heads:
            fit = [n for n in range(1, min(self.d_model, 64) + 1) if self.d_model % n == 0]
            raise SettingError(
                "n_heads",
                f"n_heads is {self.n_heads}, which does not divide d_model {self.d_model}; use one of {', '.join(map(str, fit))}",
            )
        if self.share_embeddings and self.source_vocabulary != self.target_vocabulary:
            raise SettingError(
                "share_embeddings",
                f"share_embeddings needs equal vocabularies, but source_vocabulary is {self.source_vocabulary} and "
                f"target_vocabulary {self.target_vocabulary}; make them equal or turn share_embeddings off",
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise SettingError("d_model", f"d_model is {self.d_model}; sinusoidal positions pair sines with cosines and need it even")

    @classmethod
    def paper_base(cls, vocabulary: int = 30_000, max_positions: int = 5_000) -> ModelConfig:
        """The paper's base model (Vaswani et al. 2017, table 3): 512 wide, 6+6 layers, 8 heads, d_ff 2048, dropout 0.1."""
        return cls(
            d_model=512, n_heads=8, n_layers=6, d_ff=2048, dropout=0.1, norm="post", positions="sinusoidal", share_embeddings=False,
            source_vocabulary=vocabulary, target_vocabulary=vocabulary, max_positions=max_positions,
        )  # fmt: skip

    def parameter_count(self) -> int:
        """Trainable numbers of the model that this config builds, counted without building it."""
        d = self.d_model
        norm = 2 * d
        attention = 4 * d * d + (4 * d if self.attention_bias else 0)
        feed_forward = 2 * d * self.d_ff + self.d_ff + d
        layers = self.n_layers * ((attention + feed_forward + 2 * norm) + (2 * attention + feed_forward + 3 * norm))
        final_norms = 2 * norm if self.norm == "pre" else 0
        symbols = self.target_vocabulary * d + (0 if self.share_embeddings else self.source_vocabulary * d)
        positions = 2 * self.max_positions * d if self.positions == "learned" else 0
        output = self.target_vocabulary + (0 if self.tie_output else self.target_vocabulary * d)
        return layers + final_norms + symbols + positions + output

    def row_width(self, source: int, target: int) -> int:
        """How many tokens stand in one row that the model works on, for so many of the source and of the target."""
        return max(source, target)

    def rows_at_a_time(self, width: int) -> int:
        """How many sequences of `width` tokens to run at once without gradients: few enough that the attention scores, a
        number for each head and pair of tokens, stay small, and never more than 512."""
        return max(1, min(512, SCORES_AT_A_TIME // (self.n_heads * width * width)))
