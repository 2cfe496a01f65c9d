"""One sequence through the whole model: every stage with the tensor that it made, the formula, and the line of our code.

The tensors are those of a real pass: what the modules were given and what they returned. Only what a line computes on the
way, the scores before and after the mask and the scaled symbol vectors, is computed again by the same expression. The lines
of code are looked up in the functions themselves, so they are right as long as the code is there; a stage whose line is gone
fails loudly.

Shapes: S source, T target, Q queries, M memory, H heads, K numbers a head, D d_model, F d_ff, V vocabulary; one sequence
has no batch dimension.
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

ACTIVATIONS = {  # what stands between the two products of the feed-forward network
    "relu": ("ReLU", "a = max(0, a)"),
    "gelu": ("GELU", "a = a · P(a standard normal number ≤ a)"),
    "swiglu": ("SwiGLU", "a = g · sigmoid(g) · a"),
}
BIASES: dict[str, tuple[type[Relation], str]] = {  # what positions add to the scores
    "alibi": (Alibi, "distance = -slope of the head · |place of the query - place of the key|"),
    "t5": (Buckets, "distance = a learned number for the head and the bucket of the distance"),
}
AXES = {
    "S": "source", "T": "target", "Q": "query", "M": "memory", "H": "head", "K": "size of a head", "D": "d_model", "F": "d_ff",
    "V": "vocabulary",
}  # fmt: skip


@dataclass(frozen=True)
class Code:
    """A line of this project's source: the file from the project's folder on, the line's number from 1, and its text."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Stage:
    """One tensor on the way. `shape` has a letter for each of its dimensions (see AXES); `block` is the part of the model."""

    block: str
    name: str
    formula: str
    shape: str
    tensor: Tensor
    code: Code

    @property
    def size(self) -> str:
        """The shape in letters and numbers: "H Q M = 4 × 6 × 6"."""
        return f"{' '.join(self.shape)} = {' × '.join(map(str, self.tensor.shape))}"


@dataclass(frozen=True)
class DotProduct:
    """How one score came about: score = (products_K summed up) / root + bias, and whether the mask lets it through. The bias is
    what ALiBi or T5's relative positions add for the distance; None where nothing is added. Queries and keys are turned already,
    where positions are told by turning them."""

    query_K: Tensor
    key_K: Tensor
    products_K: Tensor
    root: float
    bias: float | None
    score: float
    may_look: bool


@dataclass(frozen=True)
class _Meeting:
    """What meets in one attention, for every head: queries and keys as they were projected and as the scores see them (turned by
    their positions, if positions are told so), values, what is added to the scores, and who may look at whom."""

    projected_HQK: Tensor
    made_HMK: Tensor
    query_HQK: Tensor
    key_HMK: Tensor
    value_HMK: Tensor
    bias_HQM: Tensor | None
    may_look_QM: Tensor


@dataclass(frozen=True)
class WeightedSum:
    """How one head's output at one position came about: result_K is the sum of the rows of terms_MK, weight times value."""

    weights_M: Tensor
    values_MK: Tensor
    terms_MK: Tensor
    result_K: Tensor


class Walk:
    """All stages of one pass in order; `source` and `given` are the tokens along the axes.

    Raises:
        NotInspectable: for a batch of several sequences.
    """

    def __init__(self, model: Transformer, batch: Batch) -> None:
        if len(batch.source_BS) != 1:
            raise NotInspectable(
                f"the batch has {len(batch.source_BS)} rows; one walks through with one sequence at a time"
            )
        self.model = model
        self.source, self.given = batch.source_BS[0].tolist(), batch.decoder_input_BT[0].tolist()
        with torch.no_grad(), watched(model) as calls:
            model(batch.source_BS, batch.decoder_input_BT)
            self._calls = calls
            self.stages = list(self._walk())

    def stage(self, block: str, name: str) -> Stage:
        """One stage by its names. Raises KeyError for one that there is not."""
        for each in self.stages:
            if (each.block, each.name) == (block, name):
                return each
        raise KeyError(f"there is no stage {name!r} of {block!r}")

    def score(self, head: Component, query: int, memory: int) -> DotProduct:
        """Any score as the dot product that made it. Raises IndexError outside of the sequence."""
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
        """Any head's output at one position as the weighted sum that it is. Raises IndexError outside of the sequence."""
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
            raise NotInspectable(f"there is no {part.name} in this model")
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
            "p(v) = exp(logit_v) / sum over all symbols of exp(logit)",
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
            "x = symbols + positions",
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
        """What a sublayer of a layer was given, before its norm if that stands first: XD, the result of the sublayer before."""
        if self.model.config.norm == "pre":
            return self._call(f"{layer}.around_{part}.norm").given[0][0]
        return self._call(f"{layer}.{part}").given[0][0]

    def _sublayer(
        self, layer: str, part: str, component: Component, end_XD: Tensor
    ) -> Iterator[Stage]:
        """What stands around every sublayer, and the sublayer; `end_XD` is what the next one is given."""
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
            "x = x + result",
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
            "result = a W_2" + self._plus("b_2"),
            f"{letter}D",
            narrow.result[0],
            code,
        )

    def _heads(self, component: Component, pre: bool) -> Iterator[Stage]:
        """Scaled dot-product attention, all heads at once."""
        block, across = component.name, component.kind == "cross"
        found = self._attention(component)
        _, weights_BHQM = self._call(component.module).result
        config, may_look_QM = self.model.config, found.may_look_QM
        bias = config.bias and config.attention_bias
        asks = "y" if pre else "x"
        looked_at = "memory" if across else asks
        sharing = config.n_heads // config.key_value_heads

        def projection(given: str, letter: str) -> str:
            shared = f", each for {sharing} heads" if sharing > 1 and letter != "Q" else ""
            return (
                f"{letter} = {given} W_{letter}"
                + (f" + b_{letter}" if bias else "")
                + ", cut into heads"
                + shared
            )

        code = line_of(MultiHeadAttention.forward, "self.query(x_BQD)")
        yield Stage(block, "queries", projection(asks, "Q"), "HQK", found.projected_HQK, code)
        code = line_of(MultiHeadAttention.keys_and_values, "self.key_value(memory_BMD)")
        yield Stage(block, "keys", projection(looked_at, "K"), "HMK", found.made_HMK, code)
        yield Stage(block, "values", projection(looked_at, "V"), "HMK", found.value_HMK, code)
        if config.positions == "rope" and not across:
            formula = "pairs (i, i + K/2) turned by position · 10000^(-2i/K)"
            code = line_of(turned, "torch.cat(")
            yield Stage(block, "turned queries", formula, "HQK", found.query_HQK, code)
            yield Stage(block, "turned keys", formula, "HMK", found.key_HMK, code)
        scores_HQM = (
            found.query_HQK @ found.key_HMK.transpose(-2, -1) / math.sqrt(found.query_HQK.shape[-1])
        )
        yield Stage(
            block,
            "scores",
            "scores = Q Kᵀ / sqrt(size of a head)",
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
                "a position looks at itself and at its past",
                line_of(causal_mask, "tril()"),
            )
        else:
            rule, code = "nobody looks at padding", line_of(padding_mask, "tokens_BM != 0")
        yield Stage(block, "mask", f"true where one may look: {rule}", "QM", may_look_QM, code)
        masked_HQM = scores_HQM.masked_fill(~may_look_QM, -torch.inf)
        code = line_of(attend, "masked_fill")
        yield Stage(
            block, "masked scores", "-infinity where one may not look", "HQM", masked_HQM, code
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
            "mix = weights V",
            "HQK",
            mix_HQK,
            line_of(attend, "weights_BHQM @ value_BHMK"),
        )
        formula = "result = heads side by side, W_O" + (" + b_O" if bias else "")
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
        return "P[i · places / positions], learned vectors, evenly spread out of more than there are positions"
    if positions != "sinusoidal":
        return "P[i], a learned vector for each position i"
    return "P[i, 2j] = sin(i / 10000^(2j/d_model)), P[i, 2j+1] = cos(i / 10000^(2j/d_model))"


@cache
def line_of(function: Callable[..., Any], fragment: str) -> Code:
    """The one line of a function that holds `fragment`.

    Raises:
        LookupError: when no line of the function does, or several do.
    """
    lines, first = inspect.getsourcelines(function)
    found = [(first + i, line.strip()) for i, line in enumerate(lines) if fragment in line]
    if len(found) != 1:
        raise LookupError(
            f"{function.__qualname__} has {len(found)} lines with {fragment!r}; the walk-through needs exactly one"
        )
    root = Path(playground.__file__).resolve().parent.parent
    file = Path(inspect.getsourcefile(inspect.unwrap(function)) or "").resolve().relative_to(root)
    return Code(file.as_posix(), *found[0])
