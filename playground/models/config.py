"""Sizes and options of the transformer, validated in one place.

This file does not import torch, because forms and command lines use it too.
"""

from __future__ import annotations

from dataclasses import dataclass

from .base_config import AttentionConfig
from .config_fields import ConfigError, config_field
from .parameter_count import count_stack

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


@dataclass(frozen=True)
class StackConfig(AttentionConfig):
    """The settings of a stack of our own layers."""

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
    activation: str = config_field(
        "relu",
        "Activation of the feed-forward network: ReLU, GELU or SwiGLU. SwiGLU has a third matrix, "
        "so the network is half as large again; with two thirds of d_ff it has the usual size.",
        choices=("relu", "gelu", "swiglu"),
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
    attention_bias: bool = config_field(
        True, "Biases in the query, key, value and output projections of attention."
    )
    bias: bool = config_field(
        True, "Biases in all projections and norms, including those of attention."
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
                f"numbers; rope rotates pairs of numbers and needs an even size: change {name}"
                + ("" if self.d_k else " or set d_k"),
            )

    @property
    def has_head_sizes(self) -> bool:
        return bool(self.d_k and self.d_v)

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
        return 0 if self.position_type in WITHOUT_POSITION_VECTORS else self.max_positions

    def layer_sizes(self) -> tuple[int, int, int]:
        width = max(self.d_model, self.n_heads * max(self.key_size, self.value_size))
        return width, self.d_ff * (2 if self.activation == "swiglu" else 1), self.n_heads


@dataclass(frozen=True)
class ModelConfig(StackConfig):
    """An encoder-decoder transformer as in "Attention Is All You Need" (Vaswani et al. 2017).

    Options add later variants. The defaults learn the playground's tasks fast: pre-norm, learned
    positions, separate embeddings for source and target, no dropout (benchmarks/RESULTS.md measures
    each choice).
    """

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

    def parameter_count(self) -> int:
        """Count the trainable parameters of the model without building it."""
        n_tables = self.target_vocab_size
        n_tables += 0 if self.share_embeddings else self.source_vocab_size
        n_tables += 0 if self.tie_output_embeddings else self.target_vocab_size
        n_tables += 0 if self.position_type == "sinusoidal" else 2 * self.n_position_vectors
        output_bias = self.target_vocab_size if self.bias else 0
        stacks = count_stack(self) + count_stack(self, has_cross_attention=True)
        return stacks + n_tables * self.d_model + output_bias


def paper_base_config(vocab_size: int = 30_000, max_positions: int = 5_000) -> ModelConfig:
    """Return the paper's base model (Vaswani et al. 2017, table 3).

    The paper also uses one table for source, target and output (section 3.4). Here these are
    `share_embeddings` and `tie_output_embeddings`. They are off, because each side has its own
    vocabulary.
    """
    return ModelConfig(
        d_model=512,
        n_heads=8,
        n_layers=6,
        d_ff=2048,
        dropout=0.1,
        norm_placement="post",
        position_type="sinusoidal",
        source_vocab_size=vocab_size,
        target_vocab_size=vocab_size,
        max_positions=max_positions,
    )
