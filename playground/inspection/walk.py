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
from playground.models.attention import MultiHeadAttention, attend, causal_mask, padding_mask
from playground.models.layers import FEED_FORWARD, AddAndNorm
from playground.models.positions import Embedding
from playground.models.relative import Alibi, Buckets, Relation
from playground.models.rotary import turned
from playground.models.transformer import Transformer
from playground.tasks.task import Batch

from .components import ATTENTION, Call, Component, watched
from .subject import NotInspectable

# The activation of the feed-forward network: its name and formula.
ACTIVATIONS = {
    "relu": ("ReLU", "a = max(0, a)"),
    "gelu": ("GELU", "a = a · P(standard normal variable ≤ a)"),
    "swiglu": ("SwiGLU", "a = g · sigmoid(g) · a"),
}
# The position bias that is added to the attention scores: its class and formula.
BIASES: dict[str, tuple[type[Relation], str]] = {
    "alibi": (Alibi, "distance = -slope of the head · |query position - key position|"),
    "t5": (Buckets, "distance = learned bias of the head for the bucket of the distance"),
}
AXES = {
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
class Code:
    """A line of this project's source code.

    `file` is relative to the project's folder, and `line` counts from 1.
    """

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Stage:
    """One tensor of the forward pass.

    `shape` has one letter per dimension (see `AXES`); `block` is the part of the model.
    """

    block: str
    name: str
    formula: str
    shape: str
    tensor: Tensor
    code: Code

    @property
    def size(self) -> str:
        """Return the shape in letters and numbers: "H Q M = 4 × 6 × 6"."""
        return f"{' '.join(self.shape)} = {' × '.join(map(str, self.tensor.shape))}"


@dataclass(frozen=True)
class DotProduct:
    """The computation of one attention score: score = sum(products_K) / root + bias.

    The bias is that of ALiBi or T5 for the distance, or None. With RoPE, the query and the key are
    already rotated. `may_look` is false if the mask blocks the score.
    """

    query_K: Tensor
    key_K: Tensor
    products_K: Tensor
    root: float
    bias: float | None
    score: float
    may_look: bool


@dataclass(frozen=True)
class _Meeting:
    """The inputs of one attention, for every head.

    projected_HQK   queries before the rotation of RoPE
    made_HMK        keys before the rotation of RoPE
    query_HQK       queries of the scores
    key_HMK         keys of the scores
    value_HMK       values
    bias_HQM        position bias of the scores, or None
    may_look_QM     attention mask, True = may attend
    """

    projected_HQK: Tensor
    made_HMK: Tensor
    query_HQK: Tensor
    key_HMK: Tensor
    value_HMK: Tensor
    bias_HQM: Tensor | None
    may_look_QM: Tensor


@dataclass(frozen=True)
class WeightedSum:
    """One head's output at one position: the weighted sum of the values.

    `result_K` is the sum of the rows of `terms_MK`, each a weight times a value.
    """

    weights_M: Tensor
    values_MK: Tensor
    terms_MK: Tensor
    result_K: Tensor


class Walk:
    """All stages of one forward pass in order.

    `source` and `given` are the tokens of the source and of the decoder input.

    Raises:
        NotInspectable: for a batch of several sequences.
    """

    def __init__(self, model: Transformer, batch: Batch) -> None:
        if len(batch.source_BS) != 1:
            raise NotInspectable(
                f"the batch has {len(batch.source_BS)} sequences; a trace takes one sequence at a "
                "time"
            )
        self.model = model
        self.source, self.given = batch.source_BS[0].tolist(), batch.decoder_input_BT[0].tolist()
        with torch.no_grad(), watched(model) as calls:
            model(batch.source_BS, batch.decoder_input_BT)
            self._calls = calls
            self.stages = list(self._walk())

    def stage(self, block: str, name: str) -> Stage:
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
        found = self._attention(head)
        query_K, key_K = found.query_HQK[head.head, query], found.key_HMK[head.head, memory]
        root = math.sqrt(len(query_K))
        products_K = query_K * key_K
        bias = None if found.bias_HQM is None else float(found.bias_HQM[head.head, query, memory])
        score = float(products_K.sum()) / root + (bias or 0.0)
        return DotProduct(
            query_K, key_K, products_K, root, bias, score, bool(found.may_look_QM[query, memory])
        )

    def mix(self, head: Component, query: int) -> WeightedSum:
        """Return a head's output at one position as a weighted sum.

        Raises:
            IndexError: for a position outside of the sequence.
        """
        weights_M = self._call(head.module).result[1][0, head.head, query]
        values_MK = self._attention(head).value_HMK[head.head]
        terms_MK = weights_M[:, None] * values_MK
        return WeightedSum(weights_M, values_MK, terms_MK, terms_MK.sum(0))

    @property
    def _norm(self) -> str:
        return "RMSNorm" if self.model.config.norm_kind == "rms" else "LayerNorm"

    def _plus(self, bias: str) -> str:
        return f" + {bias}" if self.model.config.bias else ""

    def _call(self, module: str) -> Call:
        return self._calls[module][-1]

    @torch.no_grad()
    def _attention(self, part: Component) -> _Meeting:
        if part.kind not in ATTENTION or part.module not in self._calls:
            raise NotInspectable(f"this model has no {part.name}; choose one of its heads")
        attention = cast(MultiHeadAttention, self.model.get_submodule(part.module))
        _, key_BGMK, value_BGMK, may_look = self._call(part.module).given
        projected_BHQK = attention.split_heads(
            self._call(f"{part.module}.query").result, attention.n_heads
        )
        made_BMD = self._call(f"{part.module}.key_value").result.split(attention.sizes, dim=-1)[0]
        query_BHQK = attention.relation.rotate(projected_BHQK)
        return _Meeting(
            projected_HQK=projected_BHQK[0],
            made_HMK=attention.shared(attention.split_heads(made_BMD, attention.kv_heads))[0],
            query_HQK=query_BHQK[0],
            key_HMK=attention.shared(key_BGMK)[0],
            value_HMK=attention.shared(value_BGMK)[0],
            bias_HQM=attention.relation.bias(query_BHQK, key_BGMK),
            may_look_QM=may_look.expand(1, 1, query_BHQK.shape[2], key_BGMK.shape[2])[0, 0],
        )

    def _walk(self) -> Iterator[Stage]:
        config = self.model.config
        yield from self._embedding("source", self.source)
        for i in range(config.n_layers):
            layer = f"encoder_layers.{i}"
            ends = [self._sum_before(layer, "feed_forward"), self._call(layer).result[0][0]]
            yield from self._sublayer(layer, "self_attention", Component("encoder", i), ends[0])
            yield from self._sublayer(
                layer, "feed_forward", Component("encoder feed-forward", i), ends[1]
            )
        if config.norm == "pre":
            yield self._final_norm("encoder", f"memory = {self._norm}(x)", Transformer.encode, "S")
        yield from self._embedding("target", self.given)
        for i in range(config.n_layers):
            layer = f"decoder_layers.{i}"
            ends = [
                self._sum_before(layer, "cross_attention"),
                self._sum_before(layer, "feed_forward"),
                self._call(layer).result[0][0],
            ]
            yield from self._sublayer(layer, "self_attention", Component("decoder", i), ends[0])
            yield from self._sublayer(layer, "cross_attention", Component("cross", i), ends[1])
            yield from self._sublayer(
                layer, "feed_forward", Component("decoder feed-forward", i), ends[2]
            )
        if config.norm == "pre":
            yield self._final_norm("decoder", f"x = {self._norm}(x)", Transformer._decode, "T")
        output = self._call("output")
        code = line_of(Transformer.forward, "self.output(")
        yield Stage(
            "output",
            "logits",
            "logits = x W_out" + self._plus("b_out"),
            "TV",
            output.result[0],
            code,
        )
        log_BTV = self.model.project(output.given[0])
        code = line_of(Transformer.project, "log_softmax")
        yield Stage(
            "output",
            "probabilities",
            "p(v) = exp(logit_v) / sum over all tokens of exp(logit)",
            "TV",
            log_BTV[0].exp(),
            code,
        )

    def _embedding(self, side: str, tokens: list[int]) -> Iterator[Stage]:
        block, letter = f"{side} embedding", side[0].upper()
        embedding = self.model.source_embedding if side == "source" else self.model.target_embedding
        symbols_XD = embedding.tokens.weight[tokens] * embedding.scale
        code = line_of(Embedding.forward, "self.tokens(tokens_BS) * self.scale")
        yield Stage(block, "symbols", "E[token] · sqrt(d_model)", f"{letter}D", symbols_XD, code)
        placed = embedding.placed(torch.tensor([tokens], device=symbols_XD.device))
        if placed is None:
            return
        positions_XD = placed[0] if placed.dim() == 3 else placed
        formula = _positions_formula(self.model.config.positions, side)
        yield Stage(
            block,
            "positions",
            formula,
            f"{letter}D",
            positions_XD,
            line_of(Embedding.forward, "positions_SD = "),
        )
        code = line_of(Embedding.forward, "+ positions_SD")
        yield Stage(
            block,
            "sum",
            "x = token embeddings + position vectors",
            f"{letter}D",
            self._call(f"{side}_embedding").result[0],
            code,
        )

    def _final_norm(
        self, stack: str, formula: str, where: Callable[..., Any], letter: str
    ) -> Stage:
        code = line_of(where, f"self.{stack}_norm(")
        return Stage(
            f"{stack} final norm",
            "norm",
            formula,
            f"{letter}D",
            self._call(f"{stack}_norm").result[0],
            code,
        )

    def _sum_before(self, layer: str, part: str) -> Tensor:
        """Return the input of a sublayer (XD), before its norm in a pre-norm model."""
        if self.model.config.norm == "pre":
            return self._call(f"{layer}.around_{part}.norm").given[0][0]
        return self._call(f"{layer}.{part}").given[0][0]

    def _sublayer(
        self, layer: str, part: str, component: Component, end_XD: Tensor
    ) -> Iterator[Stage]:
        """Yield the stages of a sublayer with its norm and residual connection.

        `end_XD` is the input of the next sublayer.
        """
        pre, letter = self.model.config.norm == "pre", component.side[0].upper()
        norm = self._call(f"{layer}.around_{part}.norm")
        shape = f"{letter}D"
        if pre:
            code = line_of(AddAndNorm.before, "self.norm(x_BSD)")
            yield Stage(component.name, "norm", f"y = {self._norm}(x)", shape, norm.result[0], code)
        yield from (
            self._feed_forward(layer, component, letter, "y" if pre else "x")
            if part == "feed_forward"
            else self._heads(component, pre)
        )
        code = line_of(AddAndNorm.after, "sum_BSD = ")
        yield Stage(
            component.name,
            "residual",
            "x = x + output",
            shape,
            end_XD if pre else norm.given[0][0],
            code,
        )
        if not pre:
            yield Stage(
                component.name,
                "norm",
                f"x = {self._norm}(x)",
                shape,
                end_XD,
                line_of(AddAndNorm.after, "self.norm(sum_BSD)"),
            )

    def _feed_forward(
        self, layer: str, component: Component, letter: str, given: str
    ) -> Iterator[Stage]:
        module, activation, shape = (
            f"{layer}.feed_forward",
            self.model.config.activation,
            f"{letter}F",
        )
        code = line_of(FEED_FORWARD[activation].forward, "self.narrow(")
        narrow = self._call(f"{module}.narrow")
        wide_XF, inside_XF = self._call(f"{module}.widen").result[0], narrow.given[0][0]
        if activation == "swiglu":
            yield Stage(
                component.name,
                "gate",
                f"g = {given} W_g" + self._plus("b_g"),
                shape,
                self._call(f"{module}.gate").result[0],
                code,
            )
        yield Stage(
            component.name, "widen", f"a = {given} W_1" + self._plus("b_1"), shape, wide_XF, code
        )
        name, formula = ACTIVATIONS[activation]
        yield Stage(component.name, name, formula, shape, inside_XF, code)
        yield Stage(
            component.name,
            "narrow",
            "output = a W_2" + self._plus("b_2"),
            f"{letter}D",
            narrow.result[0],
            code,
        )

    def _heads(self, component: Component, pre: bool) -> Iterator[Stage]:
        """Yield the stages of scaled dot-product attention, all heads at once."""
        block, across = component.name, component.kind == "cross"
        found = self._attention(component)
        _, weights_BHQM = self._call(component.module).result
        config, may_look_QM = self.model.config, found.may_look_QM
        bias = config.bias and config.attention_bias
        asks = "y" if pre else "x"
        looked_at = "memory" if across else asks
        sharing = config.n_heads // config.key_value_heads

        def projection(given: str, letter: str) -> str:
            shared = f", each shared by {sharing} heads" if sharing > 1 and letter != "Q" else ""
            return (
                f"{letter} = {given} W_{letter}"
                + (f" + b_{letter}" if bias else "")
                + ", split into heads"
                + shared
            )

        code = line_of(MultiHeadAttention.forward, "self.query(x_BQD)")
        yield Stage(block, "queries", projection(asks, "Q"), "HQK", found.projected_HQK, code)
        code = line_of(MultiHeadAttention.keys_and_values, "self.key_value(memory_BMD)")
        yield Stage(block, "keys", projection(looked_at, "K"), "HMK", found.made_HMK, code)
        yield Stage(block, "values", projection(looked_at, "V"), "HMK", found.value_HMK, code)
        if config.positions == "rope" and not across:
            formula = "pairs (i, i + K/2) rotated by position · 10000^(-2i/K)"
            code = line_of(turned, "torch.cat(")
            yield Stage(block, "turned queries", formula, "HQK", found.query_HQK, code)
            yield Stage(block, "turned keys", formula, "HMK", found.key_HMK, code)
        scores_HQM = (
            found.query_HQK @ found.key_HMK.transpose(-2, -1) / math.sqrt(found.query_HQK.shape[-1])
        )
        yield Stage(
            block,
            "scores",
            "scores = Q Kᵀ / sqrt(head size)",
            "HQM",
            scores_HQM,
            line_of(attend, "scores_BHQM = "),
        )
        if found.bias_HQM is not None:
            scores_HQM = scores_HQM + found.bias_HQM
            relation, formula = BIASES[config.positions]
            yield Stage(
                block, "distance", formula, "HQM", found.bias_HQM, line_of(relation.bias, "return ")
            )
            yield Stage(
                block,
                "scores and distance",
                "scores + distance",
                "HQM",
                scores_HQM,
                line_of(attend, "+= bias_HQM"),
            )
        if component.kind == "decoder":
            rule, code = (
                "a position attends to itself and to earlier positions",
                line_of(causal_mask, "tril()"),
            )
        else:
            rule, code = "no query attends to padding", line_of(padding_mask, "tokens_BM != 0")
        yield Stage(block, "mask", f"true = may attend: {rule}", "QM", may_look_QM, code)
        masked_HQM = scores_HQM.masked_fill(~may_look_QM, -torch.inf)
        code = line_of(attend, "masked_fill")
        yield Stage(
            block, "masked scores", "-infinity where the mask is false", "HQM", masked_HQM, code
        )
        yield Stage(
            block,
            "softmax",
            "weights = exp(scores) / sum over the row of exp(scores)",
            "HQM",
            weights_BHQM[0],
            code,
        )
        joined = self._call(f"{component.module}.output")
        mix_HQK = joined.given[0][0].unflatten(-1, (self.model.config.n_heads, -1)).transpose(0, 1)
        yield Stage(
            block,
            "weighted sum",
            "weighted sum = weights V",
            "HQK",
            mix_HQK,
            line_of(attend, "weights_BHQM @ value_BHMK"),
        )
        formula = "output = concatenated heads W_O" + (" + b_O" if bias else "")
        code = line_of(MultiHeadAttention.forward, "self.output(mix_BQD)")
        yield Stage(
            block,
            "output projection",
            formula,
            f"{component.side[0].upper()}D",
            joined.result[0],
            code,
        )


def _positions_formula(positions: str, side: str) -> str:
    if positions == "from-the-end" and side == "source":
        return "P[i], a learned vector for each position i, counted from the end"
    if positions == "randomised":
        return (
            "P[i · vectors / positions], learned vectors, evenly spaced in a table with more "
            "vectors than positions"
        )
    if positions != "sinusoidal":
        return "P[i], a learned vector for each position i"
    return "P[i, 2j] = sin(i / 10000^(2j/d_model)), P[i, 2j+1] = cos(i / 10000^(2j/d_model))"


@cache
def line_of(function: Callable[..., Any], fragment: str) -> Code:
    """Return the only line of a function that contains `fragment`.

    Raises:
        LookupError: if no line of the function contains it, or several do.
    """
    lines, first = inspect.getsourcelines(function)
    found = [(first + i, line.strip()) for i, line in enumerate(lines) if fragment in line]
    if len(found) != 1:
        raise LookupError(
            f"{function.__qualname__} has {len(found)} lines with {fragment!r}; the trace needs "
            "exactly one"
        )
    root = Path(playground.__file__).resolve().parent.parent
    file = Path(inspect.getsourcefile(inspect.unwrap(function)) or "").resolve().relative_to(root)
    return Code(file.as_posix(), *found[0])
