"""The parameters of each group as a formula, with the location and the purpose of the group.

A formula consists of the numbers of a configuration, such as "18 × 4 × 512 × 512".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from playground.models.config import ModelConfig
from playground.models.parameter_count import T5_NUM_BUCKETS


@dataclass(frozen=True)
class GroupText:
    """Where the parameters of a group are in the model, and what they are for."""

    location: str
    purpose: str


GROUP_TEXTS = {
    "source token embedding": GroupText(
        "before the encoder", "one vector for each token of the source"
    ),
    "target token embedding": GroupText(
        "before the decoder", "one vector for each token of the target"
    ),
    "source position vectors": GroupText(
        "before the encoder", "one vector for each position, added to the token's"
    ),
    "target position vectors": GroupText(
        "before the decoder", "one vector for each position, added to the token's"
    ),
    "attention, weights": GroupText(
        "every layer; twice in a decoder layer",
        "the matrices W_Q, W_K, W_V and W_O, which let positions exchange information",
    ),
    "attention, biases": GroupText(
        "every layer; twice in a decoder layer", "added to Q, K, V and to the output"
    ),
    "relative position bias": GroupText(
        "every self-attention", "added to the scores, by the distance of two positions"
    ),
    "feed-forward": GroupText(
        "every layer, after attention", "the same two-layer network at each position"
    ),
    "norms in the layers": GroupText(
        "at every sublayer",
        "a scale for each dimension after normalization, and a shift in layer norm with biases",
    ),
    "final norms": GroupText("after each stack of pre-norm layers", "the same, once per stack"),
    "output layer": GroupText("after the decoder", "one logit for each token of the vocabulary"),
}


def parameter_formulas(config: ModelConfig) -> dict[str, str]:
    """Return the formula of each group that has parameters.

    The order of the factors is: how many such blocks, then the sizes of one block.
    """
    d, layers, bias = config.d_model, config.n_layers, config.bias
    query, key, value, joined = (
        heads * size
        for heads, size in (
            (config.n_heads, config.key_size),
            (config.n_kv_heads_resolved, config.key_size),
            (config.n_kv_heads_resolved, config.value_size),
            (config.n_heads, config.value_size),
        )
    )
    formulas = {
        "source token embedding": _product(config.source_vocab_size, d),
        "target token embedding": ""
        if config.share_embeddings
        else _product(config.target_vocab_size, d),
        # An encoder layer has one attention, a decoder layer has two.
        "attention, weights": _blocks(
            3 * layers, _terms([(d, query), (d, key), (d, value), (joined, d)])
        ),
        "feed-forward": _blocks(2 * layers, _feed_forward_terms(config)),
    }
    if config.n_position_vectors and config.position_type != "sinusoidal":
        for side in ("source", "target"):
            formulas[f"{side} position vectors"] = _product(config.n_position_vectors, d)
    if bias and config.attention_bias:
        formulas["attention, biases"] = _blocks(
            3 * layers, _terms([(query,), (key,), (value,), (d,)])
        )
    if config.position_type == "t5":
        formulas["relative position bias"] = _product(2 * layers, T5_NUM_BUCKETS, config.n_heads)
    if config.norm_type != "none":
        norm = (2, d) if config.norm_type == "layer" and bias else (d,)
        formulas["norms in the layers"] = _product(5 * layers, *norm)
        if config.norm_placement == "pre":
            formulas["final norms"] = _product(2, *norm)
    output: list[tuple[int, ...]] = (
        [] if config.tie_output_embeddings else [(config.target_vocab_size, d)]
    )
    if config.has_output_bias:
        output.append((config.target_vocab_size,))
    formulas["output layer"] = _terms(output)
    return {group: formula for group, formula in formulas.items() if formula}


def _feed_forward_terms(config: ModelConfig) -> str:
    d, d_ff = config.d_model, config.d_ff
    n_up = 2 if config.activation == "swiglu" else 1  # SwiGLU has a gate
    terms: list[tuple[int, ...]] = [(d, d_ff)] * (n_up + 1)
    if config.bias:
        terms += [(d_ff,)] * n_up + [(d,)]
    return _terms(terms)


def _product(*factors: int) -> str:
    return " × ".join(f"{factor:,}" for factor in factors)


def _terms(terms: Sequence[tuple[int, ...]]) -> str:
    """Return a sum of products; equal products are counted, as in "4 × 512 × 512"."""
    counts: dict[tuple[int, ...], int] = {}
    for term in terms:
        counts[term] = counts.get(term, 0) + 1
    return " + ".join(_product(*(() if n == 1 else (n,)), *term) for term, n in counts.items())


def _blocks(n: int, terms: str) -> str:
    return f"{n} × ({terms})" if "+" in terms else f"{n} × {terms}"
