"""A trace of one forward pass: every stage with its tensor, its formula, and its line of code.

The tensors are the inputs and outputs of the modules in a real pass. Intermediate results of a
module (the attention scores before and after the mask, the scaled token embeddings) are recomputed
with the same expression. The lines of code are located in the source of the functions, so they
follow every edit; a stage whose line is missing raises LookupError.

Shapes: S source, T target, Q queries, M memory, H heads, K head size, D d_model, F d_ff,
V vocabulary; there is no batch dimension for one sequence.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

import playground
from playground.models.attention import (
    MultiHeadAttention,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
    split_heads,
)
from playground.models.embeddings import InputEmbedding
from playground.models.layers import ResidualNorm
from playground.models.position_encoding import (
    ALiBi,
    RelativePositionEncoding,
    T5RelativePositionBias,
    apply_rotary_emb,
)
from playground.models.transformer import Transformer
from playground.tasks.task import Batch

from .hooks import ATTENTION_KINDS, Component, ModuleCall, record_activations
from .inspected_model import InspectionError

# The activation of the feed-forward network: its name and formula.
ACTIVATIONS = {
    "relu": ("ReLU", "a = max(0, a)"),
    "gelu": ("GELU", "a = a · P(standard normal variable ≤ a)"),
    "swiglu": ("SwiGLU", "a = g · sigmoid(g) · a"),
}
# The position bias that is added to the attention scores: its class and formula.
POSITION_BIASES: dict[str, tuple[type[RelativePositionEncoding], str]] = {
    "alibi": (ALiBi, "bias = -slope of the head · |query position - key position|"),
    "t5": (
        T5RelativePositionBias,
        "bias = learned bias of the head for the bucket of the distance",
    ),
}
AXIS_NAMES = {
    "S": "source",
    "T": "target",
    "Q": "query",
    "M": "memory",
    "H": "head",
    "K": "head size",
    "D": "d_model",
    "F": "d_ff",
    "V": "vocabulary",
}


@dataclass(frozen=True)
class SourceLine:
    """A line of this project's source code.

    `file` is relative to the project's folder, and `line` counts from 1.
    """

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class TraceStage:
    """One tensor of the forward pass.

    `shape` has one letter per dimension (see `AXIS_NAMES`); `block` is the part of the model.
    """

    block: str
    name: str
    formula: str
    shape: str
    tensor: Tensor
    code: SourceLine

    @property
    def size(self) -> str:
        """Return the shape in letters and numbers: "H Q M = 4 × 6 × 6"."""
        return f"{' '.join(self.shape)} = {' × '.join(map(str, self.tensor.shape))}"


@dataclass(frozen=True)
class DotProduct:
    """The computation of one attention score: score = sum(products_K) / root + bias.

    The bias is that of ALiBi or T5 for the distance, or None. With RoPE, the query and the key are
    already rotated. `attended` is False if the mask blocks the score.
    """

    query_K: Tensor
    key_K: Tensor
    products_K: Tensor
    root: float
    bias: float | None
    score: float
    attended: bool


@dataclass(frozen=True)
class _AttentionInputs:
    """The inputs of one attention, for every head.

    unrotated_query_HQK  queries before the rotation of RoPE
    unrotated_key_HMK    keys before the rotation of RoPE
    query_HQK            queries of the scores
    key_HMK              keys of the scores
    value_HMK            values
    bias_HQM             position bias of the scores, or None
    attn_mask_QM         attention mask, True = may attend
    """

    unrotated_query_HQK: Tensor
    unrotated_key_HMK: Tensor
    query_HQK: Tensor
    key_HMK: Tensor
    value_HMK: Tensor
    bias_HQM: Tensor | None
    attn_mask_QM: Tensor


@dataclass(frozen=True)
class WeightedSum:
    """One head's output at one position: the weighted sum of the values.

    `result_K` is the sum of the rows of `terms_MK`, each a weight times a value.
    """

    weights_M: Tensor
    values_MK: Tensor
    terms_MK: Tensor
    result_K: Tensor


class ForwardTrace:
    """All stages of one forward pass in order.

    `source` and `decoder_input` are the tokens of the source and of the decoder input.

    Raises:
        InspectionError: for a batch of several sequences.
    """

    def __init__(self, model: Transformer, batch: Batch) -> None:
        if len(batch.source_BS) != 1:
            raise InspectionError(
                f"the batch has {len(batch.source_BS)} sequences; a trace takes one sequence at a "
                "time"
            )
        self.model = model
        self.source, self.decoder_input = (
            batch.source_BS[0].tolist(),
            batch.decoder_input_BT[0].tolist(),
        )
        with torch.no_grad(), record_activations(model) as calls:
            model(batch.source_BS, batch.decoder_input_BT)
            self._calls = calls
            self.stages = list(self._trace())

    def stage(self, block: str, name: str) -> TraceStage:
        """Return a stage by its names.

        Raises:
            KeyError: for a stage that the model does not have.
        """
        for each in self.stages:
            if (each.block, each.name) == (block, name):
                return each
        raise KeyError(f"there is no stage {name!r} in the block {block!r}")

    def score(self, head: Component, query: int, memory: int) -> DotProduct:
        """Return an attention score as a dot product.

        Raises:
            IndexError: for a position outside of the sequence.
        """
        inputs = self._attention(head)
        query_K, key_K = inputs.query_HQK[head.head, query], inputs.key_HMK[head.head, memory]
        root = math.sqrt(len(query_K))
        products_K = query_K * key_K
        bias = None if inputs.bias_HQM is None else float(inputs.bias_HQM[head.head, query, memory])
        score = float(products_K.sum()) / root + (bias or 0.0)
        return DotProduct(
            query_K, key_K, products_K, root, bias, score, bool(inputs.attn_mask_QM[query, memory])
        )

    def weighted_sum(self, head: Component, query: int) -> WeightedSum:
        """Return a head's output at one position as a weighted sum.

        Raises:
            IndexError: for a position outside of the sequence.
        """
        weights_M = self._call(head.module_name).output[1][0, head.head, query]
        values_MK = self._attention(head).value_HMK[head.head]
        terms_MK = weights_M[:, None] * values_MK
        return WeightedSum(weights_M, values_MK, terms_MK, terms_MK.sum(0))

    @property
    def _norm_name(self) -> str:
        return "RMSNorm" if self.model.config.norm_type == "rms" else "LayerNorm"

    def _bias_term(self, bias: str) -> str:
        return f" + {bias}" if self.model.config.bias else ""

    def _call(self, module: str) -> ModuleCall:
        return self._calls[module][-1]

    @torch.no_grad()
    def _attention(self, part: Component) -> _AttentionInputs:
        if part.kind not in ATTENTION_KINDS or part.module_name not in self._calls:
            raise InspectionError(f"this model has no {part.name}; choose one of its heads")
        attention = cast(MultiHeadAttention, self.model.get_submodule(part.module_name))
        _, key_BGMK, value_BGMK, attn_mask = self._call(part.module_name).inputs
        query_BQD = self._call(f"{part.module_name}.q_proj").output
        key_BMD = self._call(f"{part.module_name}.k_proj").output
        unrotated_query_BHQK = split_heads(query_BQD, attention.n_heads)
        query_BHQK = attention.position_encoding.rotate(unrotated_query_BHQK)
        n_queries, n_keys = query_BHQK.shape[2], key_BGMK.shape[2]
        return _AttentionInputs(
            unrotated_query_HQK=unrotated_query_BHQK[0],
            unrotated_key_HMK=attention.repeat_kv(split_heads(key_BMD, attention.n_kv_heads))[0],
            query_HQK=query_BHQK[0],
            key_HMK=attention.repeat_kv(key_BGMK)[0],
            value_HMK=attention.repeat_kv(value_BGMK)[0],
            bias_HQM=attention.position_encoding.bias(n_queries, n_keys, query_BHQK.device),
            attn_mask_QM=attn_mask.expand(1, 1, n_queries, n_keys)[0, 0],
        )

    def _trace(self) -> Iterator[TraceStage]:
        config = self.model.config
        yield from self._embedding("source", self.source)
        for i in range(config.n_layers):
            layer = f"encoder_layers.{i}"
            ends = [self._residual_input(layer, "feed_forward"), self._call(layer).output[0][0]]
            yield from self._sublayer_stages(layer, "self_attn", Component("encoder", i), ends[0])
            yield from self._sublayer_stages(
                layer, "feed_forward", Component("encoder feed-forward", i), ends[1]
            )
        if config.norm_placement == "pre":
            yield self._final_norm(
                "encoder", f"memory = {self._norm_name}(x)", Transformer.encode, "S"
            )
        yield from self._embedding("target", self.decoder_input)
        for i in range(config.n_layers):
            layer = f"decoder_layers.{i}"
            ends = [
                self._residual_input(layer, "cross_attn"),
                self._residual_input(layer, "feed_forward"),
                self._call(layer).output[0][0],
            ]
            yield from self._sublayer_stages(layer, "self_attn", Component("decoder", i), ends[0])
            yield from self._sublayer_stages(layer, "cross_attn", Component("cross", i), ends[1])
            yield from self._sublayer_stages(
                layer, "feed_forward", Component("decoder feed-forward", i), ends[2]
            )
        if config.norm_placement == "pre":
            yield self._final_norm("decoder", f"x = {self._norm_name}(x)", Transformer._decode, "T")
        output = self._call("output_proj")
        code = find_source_line(Transformer.forward, "self.output_proj(")
        yield TraceStage(
            "output",
            "logits",
            "logits = x W_out" + self._bias_term("b_out"),
            "TV",
            output.output[0],
            code,
        )
        log_BTV = self.model.log_probs(output.inputs[0])
        code = find_source_line(Transformer.log_probs, "log_softmax")
        yield TraceStage(
            "output",
            "probabilities",
            "p(v) = exp(logit_v) / sum over all tokens of exp(logit)",
            "TV",
            log_BTV[0].exp(),
            code,
        )

    def _embedding(self, side: str, tokens: list[int]) -> Iterator[TraceStage]:
        block, letter = f"{side} embedding", side[0].upper()
        embedding = self.model.source_embedding if side == "source" else self.model.target_embedding
        symbols_XD = embedding.token_embedding.weight[tokens] * embedding.scale
        code = find_source_line(
            InputEmbedding.forward, "self.token_embedding(tokens_BS) * self.scale"
        )
        yield TraceStage(
            block, "token embeddings", "E[token] · sqrt(d_model)", f"{letter}D", symbols_XD, code
        )
        position_vectors = embedding.position_vectors(
            torch.tensor([tokens], device=symbols_XD.device)
        )
        if position_vectors is None:
            return
        positions_XD = position_vectors[0] if position_vectors.dim() == 3 else position_vectors
        formula = _positions_formula(self.model.config.position_type, side)
        yield TraceStage(
            block,
            "position vectors",
            formula,
            f"{letter}D",
            positions_XD,
            find_source_line(InputEmbedding.forward, "positions_SD = "),
        )
        code = find_source_line(InputEmbedding.forward, "+ positions_SD")
        yield TraceStage(
            block,
            "sum",
            "x = token embeddings + position vectors",
            f"{letter}D",
            self._call(f"{side}_embedding").output[0],
            code,
        )

    def _final_norm(
        self, stack: str, formula: str, where: Callable[..., Any], letter: str
    ) -> TraceStage:
        code = find_source_line(where, f"self.{stack}_norm(")
        return TraceStage(
            f"{stack} final norm",
            "norm",
            formula,
            f"{letter}D",
            self._call(f"{stack}_norm").output[0],
            code,
        )

    def _residual_input(self, layer: str, part: str) -> Tensor:
        """Return the input of a sublayer (XD), before its norm in a pre-norm model."""
        if self.model.config.norm_placement == "pre":
            return self._call(f"{layer}.{part}_residual.norm").inputs[0][0]
        return self._call(f"{layer}.{part}").inputs[0][0]

    def _sublayer_stages(
        self, layer: str, part: str, component: Component, end_XD: Tensor
    ) -> Iterator[TraceStage]:
        """Yield the stages of a sublayer with its norm and residual connection.

        `end_XD` is the residual stream after this sublayer.
        """
        pre, letter = self.model.config.norm_placement == "pre", component.side[0].upper()
        norm = self._call(f"{layer}.{part}_residual.norm")
        shape = f"{letter}D"
        if pre:
            code = find_source_line(ResidualNorm.sublayer_input, "self.norm(x_BSD)")
            yield TraceStage(
                component.name, "norm", f"y = {self._norm_name}(x)", shape, norm.output[0], code
            )
        yield from (
            self._feed_forward(layer, component, letter, "y" if pre else "x")
            if part == "feed_forward"
            else self._attention_stages(component, pre)
        )
        code = find_source_line(ResidualNorm.add, "sum_BSD = ")
        yield TraceStage(
            component.name,
            "residual",
            "x = x + output",
            shape,
            end_XD if pre else norm.inputs[0][0],
            code,
        )
        if not pre:
            yield TraceStage(
                component.name,
                "norm",
                f"x = {self._norm_name}(x)",
                shape,
                end_XD,
                find_source_line(ResidualNorm.add, "self.norm(sum_BSD)"),
            )

    def _feed_forward(
        self, layer: str, component: Component, letter: str, input_symbol: str
    ) -> Iterator[TraceStage]:
        module, activation, shape = (
            f"{layer}.feed_forward",
            self.model.config.activation,
            f"{letter}F",
        )
        network = self.model.get_submodule(module)
        code = find_source_line(type(network).forward, "self.down_proj(")
        narrow = self._call(f"{module}.down_proj")
        wide_XF, inside_XF = self._call(f"{module}.up_proj").output[0], narrow.inputs[0][0]
        if activation == "swiglu":
            yield TraceStage(
                component.name,
                "gate projection",
                f"g = {input_symbol} W_g" + self._bias_term("b_g"),
                shape,
                self._call(f"{module}.gate_proj").output[0],
                code,
            )
        yield TraceStage(
            component.name,
            "up projection",
            f"a = {input_symbol} W_1" + self._bias_term("b_1"),
            shape,
            wide_XF,
            code,
        )
        name, formula = ACTIVATIONS[activation]
        yield TraceStage(component.name, name, formula, shape, inside_XF, code)
        yield TraceStage(
            component.name,
            "down projection",
            "output = a W_2" + self._bias_term("b_2"),
            f"{letter}D",
            narrow.output[0],
            code,
        )

    def _attention_stages(self, component: Component, pre: bool) -> Iterator[TraceStage]:
        """Yield the stages of scaled dot-product attention, all heads at once."""
        block, across = component.name, component.kind == "cross"
        inputs = self._attention(component)
        _, weights_BHQM = self._call(component.module_name).output
        config, attn_mask_QM = self.model.config, inputs.attn_mask_QM
        bias = config.bias and config.attention_bias
        query_input = "y" if pre else "x"
        key_input = "memory" if across else query_input
        sharing = config.n_heads // config.n_kv_heads_resolved

        def projection(input_symbol: str, letter: str) -> str:
            shared = f", each shared by {sharing} heads" if sharing > 1 and letter != "Q" else ""
            return (
                f"{letter} = {input_symbol} W_{letter}"
                + (f" + b_{letter}" if bias else "")
                + ", split into heads"
                + shared
            )

        code = find_source_line(MultiHeadAttention.forward, "self.q_proj(x_BQD)")
        yield TraceStage(
            block, "queries", projection(query_input, "Q"), "HQK", inputs.unrotated_query_HQK, code
        )
        code = find_source_line(MultiHeadAttention.project_kv, "self.k_proj(memory_BMD)")
        yield TraceStage(
            block, "keys", projection(key_input, "K"), "HMK", inputs.unrotated_key_HMK, code
        )
        code = find_source_line(MultiHeadAttention.project_kv, "self.v_proj(memory_BMD)")
        yield TraceStage(block, "values", projection(key_input, "V"), "HMK", inputs.value_HMK, code)
        if config.position_type == "rope" and not across:
            formula = "pairs (i, i + K/2) rotated by position · 10000^(-2i/K)"
            code = find_source_line(apply_rotary_emb, "torch.cat(")
            yield TraceStage(block, "rotated queries", formula, "HQK", inputs.query_HQK, code)
            yield TraceStage(block, "rotated keys", formula, "HMK", inputs.key_HMK, code)
        scores_HQM = (
            inputs.query_HQK
            @ inputs.key_HMK.transpose(-2, -1)
            / math.sqrt(inputs.query_HQK.shape[-1])
        )
        yield TraceStage(
            block,
            "scores",
            "scores = Q Kᵀ / sqrt(head size)",
            "HQM",
            scores_HQM,
            find_source_line(scaled_dot_product_attention, "scores_BHQM = query"),
        )
        if inputs.bias_HQM is not None:
            scores_HQM = scores_HQM + inputs.bias_HQM
            relation, formula = POSITION_BIASES[config.position_type]
            yield TraceStage(
                block,
                "position bias",
                formula,
                "HQM",
                inputs.bias_HQM,
                find_source_line(relation.bias, "return "),
            )
            yield TraceStage(
                block,
                "biased scores",
                "scores + bias",
                "HQM",
                scores_HQM,
                find_source_line(scaled_dot_product_attention, "+ bias_HQM"),
            )
        if component.kind == "decoder":
            rule, code = (
                "a position attends to itself and to earlier positions",
                find_source_line(causal_mask, "tril()"),
            )
        else:
            rule, code = (
                "no query attends to padding",
                find_source_line(padding_mask, "tokens_BM != 0"),
            )
        yield TraceStage(block, "mask", f"true = may attend: {rule}", "QM", attn_mask_QM, code)
        masked_HQM = scores_HQM.masked_fill(~attn_mask_QM, -torch.inf)
        code = find_source_line(scaled_dot_product_attention, "masked_fill")
        yield TraceStage(
            block, "masked scores", "-infinity where the mask is false", "HQM", masked_HQM, code
        )
        yield TraceStage(
            block,
            "softmax",
            "weights = exp(scores) / sum over the keys of exp(scores)",
            "HQM",
            weights_BHQM[0],
            find_source_line(scaled_dot_product_attention, "scores_BHQM.softmax("),
        )
        joined = self._call(f"{component.module_name}.out_proj")
        head_outputs_HQK = (
            joined.inputs[0][0].unflatten(-1, (self.model.config.n_heads, -1)).transpose(0, 1)
        )
        yield TraceStage(
            block,
            "weighted sum",
            "weighted sum = weights V",
            "HQK",
            head_outputs_HQK,
            find_source_line(scaled_dot_product_attention, "weights_BHQM @ value_BHMK"),
        )
        formula = "output = concatenated heads W_O" + (" + b_O" if bias else "")
        code = find_source_line(MultiHeadAttention.forward, "self.out_proj(")
        yield TraceStage(
            block,
            "output projection",
            formula,
            f"{component.side[0].upper()}D",
            joined.output[0],
            code,
        )


def _positions_formula(positions: str, side: str) -> str:
    if positions == "learned-from-end" and side == "source":
        return "P[i], a learned vector for each position i, counted from the end"
    if positions == "randomized":
        return (
            "P[i · vectors / positions], learned vectors, evenly spaced in a table with more "
            "vectors than positions"
        )
    if positions != "sinusoidal":
        return "P[i], a learned vector for each position i"
    return "P[i, 2j] = sin(i / 10000^(2j/d_model)), P[i, 2j+1] = cos(i / 10000^(2j/d_model))"


@cache
def find_source_line(function: Callable[..., Any], fragment: str) -> SourceLine:
    """Return the only line of a function that contains `fragment`.

    Raises:
        LookupError: if no line of the function contains it, or several do.
    """
    lines, first = inspect.getsourcelines(function)
    matches = [(first + i, line.strip()) for i, line in enumerate(lines) if fragment in line]
    if len(matches) != 1:
        raise LookupError(
            f"{function.__qualname__} has {len(matches)} lines with {fragment!r}; the trace needs "
            "exactly one"
        )
    root = Path(playground.__file__).resolve().parent.parent
    file = Path(inspect.getsourcefile(inspect.unwrap(function)) or "").resolve().relative_to(root)
    return SourceLine(file.as_posix(), *matches[0])
