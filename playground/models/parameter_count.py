"""Count the parameters of a model from its sizes, without building it or importing torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stack_config import StackConfig

T5_NUM_BUCKETS = 32  # relative distances that T5 distinguishes


def count_linear(n_in: int, n_out: int, bias: bool = True) -> int:
    """Count the parameters of a linear layer."""
    return n_in * n_out + (n_out if bias else 0)


def count_attention(config: StackConfig) -> int:
    """Count the parameters of an attention: query, key, value and output projections."""
    d, bias = config.d_model, config.bias and config.attention_bias
    n_kv_heads = config.n_kv_heads_resolved
    return (
        count_linear(d, config.n_heads * config.key_size, bias)
        + count_linear(d, n_kv_heads * config.key_size, bias)
        + count_linear(d, n_kv_heads * config.value_size, bias)
        + count_linear(config.n_heads * config.value_size, d, bias)
    )


def count_position_encoding(config: StackConfig) -> int:
    """Count the parameters of the position encoding in a self-attention."""
    return T5_NUM_BUCKETS * config.n_heads if config.position_type == "t5" else 0


def count_feed_forward(config: StackConfig) -> int:
    """Count the parameters of a feed-forward network."""
    n_up = 2 if config.activation == "swiglu" else 1  # SwiGLU has a gate
    up = count_linear(config.d_model, config.d_ff, config.bias)
    return n_up * up + count_linear(config.d_ff, config.d_model, config.bias)


def count_norm(config: StackConfig) -> int:
    """Count the parameters of a norm: a weight and, in a layer norm with biases, a bias."""
    if config.norm_type == "none":
        return 0
    return config.d_model * (2 if config.norm_type == "layer" and config.bias else 1)


def count_layer(config: StackConfig, has_cross_attention: bool = False) -> int:
    """Count the parameters of an encoder layer, or of a decoder layer with cross-attention."""
    n_attentions = 2 if has_cross_attention else 1
    return (
        n_attentions * count_attention(config)
        + count_position_encoding(config)
        + count_feed_forward(config)
        + (n_attentions + 1) * count_norm(config)
    )


def count_stack(config: StackConfig, has_cross_attention: bool = False) -> int:
    """Count the parameters of a stack of layers, with its final norm."""
    final_norm = count_norm(config) if config.norm_placement == "pre" else 0
    return config.n_layers * count_layer(config, has_cross_attention) + final_norm


def count_library_layer(d_model: int, d_ff: int, has_cross_attention: bool = False) -> int:
    """Count the parameters of a layer of PyTorch or transformers, which has every bias."""
    n_attentions = 2 if has_cross_attention else 1
    attention = 4 * count_linear(d_model, d_model)
    feed_forward = count_linear(d_model, d_ff) + count_linear(d_ff, d_model)
    return n_attentions * attention + feed_forward + (n_attentions + 1) * 2 * d_model
