"""The trainable weights of each architecture: one table that counts and groups them.

A component has the shapes of its weights, those of all layers together. This file does not import
torch, because forms and command lines use it too.
"""

import math
from functools import singledispatch

from playground.models.config import (
    GATES_PER_CELL,
    T5_NUM_BUCKETS,
    AttentionConfig,
    BartSizes,
    BaseConfig,
    BertSizes,
    DecoderOnlyConfig,
    GPT2Sizes,
    RecurrentConfig,
    SingleStackConfig,
    StackConfig,
    TorchTransformerConfig,
    TransformerConfig,
)

Shapes = list[tuple[int, ...]]
ParameterGroups = dict[str, Shapes]


@singledispatch
def parameter_groups(config: BaseConfig) -> ParameterGroups:
    """Return the shapes of the trainable weights of each component of the model."""
    raise NotImplementedError


def parameter_count(config: BaseConfig) -> int:
    """Count the trainable parameters of the model without building it."""
    groups = parameter_groups(config)
    return sum(math.prod(shape) for shapes in groups.values() for shape in shapes)


@parameter_groups.register
def _(config: TransformerConfig) -> ParameterGroups:
    source_tokens, target_tokens = token_embeddings(config)
    return {
        "source token embedding": source_tokens,
        "source position vectors": position_vectors(config),
        "target token embedding": [] if config.share_embeddings else target_tokens,
        "target position vectors": position_vectors(config),
        **stack(config, "encoder"),
        **stack(config, "decoder", has_cross_attention=True),
        "output layer": output_layer(config),
    }


@parameter_groups.register
def _(config: SingleStackConfig) -> ParameterGroups:
    return {
        "token embedding": token_embeddings(config)[0],
        "position vectors": position_vectors(config),
        **stack(config, "decoder" if isinstance(config, DecoderOnlyConfig) else "encoder"),
        "output layer": output_layer(config),
    }


@parameter_groups.register
def _(config: TorchTransformerConfig) -> ParameterGroups:
    d = config.d_model
    source_tokens, target_tokens = token_embeddings(config)
    final_norms: Shapes = [(d,)] * 4 if config.norm_placement == "pre" else []
    return {
        "source token embedding": source_tokens,
        "source position vectors": [(config.max_positions, d)],
        "target token embedding": target_tokens,
        "target position vectors": [(config.max_positions + 1, d)],
        "encoder": library_layers(config),
        "decoder": library_layers(config, has_cross_attention=True) + final_norms,
        "output layer": linear(d, config.target_vocab_size),
    }


@parameter_groups.register
def _(config: RecurrentConfig) -> ParameterGroups:
    d, gates = config.d_model, GATES_PER_CELL[config.cell]
    source_tokens, target_tokens = token_embeddings(config)
    cells = config.n_layers * (linear(d, gates * d) + linear(d, gates * d))
    context_input: Shapes = [(gates * d, d)] if config.attention == "additive" else []
    attention: dict[str, Shapes] = {
        "none": [],
        "additive": [*linear(d, d), (d, d), (1, d)],
        "dot": linear(2 * d, d),
    }
    return {
        "source token embedding": source_tokens,
        "target token embedding": target_tokens,
        "encoder": cells,
        "decoder": cells + context_input,  # the first input contains the context, too
        "cross-attention": attention[config.attention],
        "output layer": linear(d, config.target_vocab_size),
    }


@parameter_groups.register
def _(config: BertSizes) -> ParameterGroups:
    d = config.d_model
    tables: Shapes = [(config.source_vocab_size, d), (2 * config.max_positions, d), (2, d)]
    return {
        "embeddings": [*tables, (d,), (d,)],
        "encoder": library_layers(config),
        "head": [*linear(d, d), (d,), (d,)],
        "output layer": [(config.target_vocab_size,)],
    }


@parameter_groups.register
def _(config: GPT2Sizes) -> ParameterGroups:
    d = config.d_model
    return {
        "embeddings": [(config.source_vocab_size, d), (2 * config.max_positions, d)],
        "decoder": [*library_layers(config), (d,), (d,)],
    }


@parameter_groups.register
def _(config: BartSizes) -> ParameterGroups:
    d = config.d_model
    positions = (config.max_positions + 2, d)  # the first two are never used
    return {
        "embeddings": [(config.source_vocab_size, d), positions, positions],
        "encoder": [(d,), (d,), *library_layers(config)],
        "decoder": [(d,), (d,), *library_layers(config, has_cross_attention=True)],
    }


def linear(n_in: int, n_out: int, bias: bool = True) -> Shapes:
    """Return the shapes of a linear layer."""
    return [(n_out, n_in), (n_out,)] if bias else [(n_out, n_in)]


def token_embeddings(config: BaseConfig) -> tuple[Shapes, Shapes]:
    """Return the shapes of the tables of source and target tokens."""
    return [(config.source_vocab_size, config.d_model)], [
        (config.target_vocab_size, config.d_model)
    ]


def library_layers(config: AttentionConfig, has_cross_attention: bool = False) -> Shapes:
    """Return the weights of the layers of PyTorch or transformers, which have every bias."""
    d, d_ff, n_attentions = config.d_model, config.d_ff, 2 if has_cross_attention else 1
    attention, norms = 4 * linear(d, d), [(d,)] * 2 * (n_attentions + 1)
    layer = n_attentions * attention + linear(d, d_ff) + linear(d_ff, d) + norms
    return config.n_layers * layer


def stack(config: StackConfig, name: str, has_cross_attention: bool = False) -> ParameterGroups:
    """Return the weights of a stack of our own layers, with its final norm."""
    d, d_ff, n, bias = config.d_model, config.d_ff, config.n_layers, config.bias
    t5_bias: Shapes = [(T5_NUM_BUCKETS, config.n_heads)] if config.position_type == "t5" else []
    n_up = 2 if config.activation == "swiglu" else 1  # SwiGLU has a gate
    vector: Shapes = [(d,)]
    norm = {"layer": (1 + bias) * vector, "rms": vector, "none": []}
    n_norms = n * (3 if has_cross_attention else 2) + (config.norm_placement == "pre")
    cross = {"cross-attention": n * attention(config)} if has_cross_attention else {}
    return {
        f"{name} self-attention": n * attention(config),
        f"{name} position biases": n * t5_bias,
        **cross,
        f"{name} feed-forward": n * (n_up * linear(d, d_ff, bias) + linear(d_ff, d, bias)),
        f"{name} norms": n_norms * norm[config.norm_type],
    }


def attention(config: StackConfig) -> Shapes:
    """Return the shapes of an attention: query, key, value and output projections."""
    d, bias = config.d_model, config.bias and config.attention_bias
    n_heads, n_kv_heads = config.n_heads, config.n_kv_heads_resolved
    return [
        *linear(d, n_heads * config.key_size, bias),
        *linear(d, n_kv_heads * config.key_size, bias),
        *linear(d, n_kv_heads * config.value_size, bias),
        *linear(n_heads * config.value_size, d, bias),
    ]


def position_vectors(config: StackConfig) -> Shapes:
    """Return the shapes of the position vectors of one side; sinusoids are not trained."""
    is_trained = config.n_position_vectors and config.position_type != "sinusoidal"
    return [(config.n_position_vectors, config.d_model)] if is_trained else []


def output_layer(config: StackConfig) -> Shapes:
    """Return the shapes of the output layer; a tied one has only its bias."""
    shapes = linear(config.d_model, config.target_vocab_size, config.has_output_bias)
    return shapes[1:] if config.tie_output_embeddings else shapes
