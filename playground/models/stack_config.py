"""The settings of a stack of our own layers, validated in one place.

This file does not import torch, because forms and command lines use it too.
"""

from dataclasses import dataclass

from .base_config import AttentionConfig
from .config_fields import ConfigError, config_field

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
    attention_dropout: float = config_field(
        0.0, "Fraction of attention weights set to zero in training.", low=0, high=0.9
    )
    activation_dropout: float = config_field(
        0.0,
        "Fraction of the hidden values of the feed-forward networks set to zero in training.",
        low=0,
        high=0.9,
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
        low=0,
        high=100,
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
        low=0,
        high=100,
    )
    position_std: float = config_field(
        1.0, "Initial standard deviation of learned position embeddings.", low=0, high=100
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
                f"numbers; rope rotates pairs of numbers and needs an even size: change {name}"
                + ("" if self.d_k else " or set d_k"),
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
    def n_positions(self) -> int:
        """Return the number of positions of the longest input."""
        return self.sequence_length(self.max_positions, self.max_positions)

    def layer_sizes(self) -> tuple[int, int, int]:
        width = max(self.d_model, self.n_heads * max(self.key_size, self.value_size))
        return width, self.d_ff * (2 if self.activation == "swiglu" else 1), self.n_heads
