"""The computation of any single number of a trace.

Shapes: S source, T target, H heads, Q queries, M memory, K head size, D d_model, F d_ff,
V vocabulary, X any of these.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from playground.inspection.embeddings import wavelength
from playground.inspection.hooks import ATTENTION_KINDS, FEED_FORWARD_KINDS, Component
from playground.inspection.inspected_model import InspectedModel
from playground.inspection.trace import ACTIVATIONS, ForwardTrace
from playground.models.attention import MultiHeadAttention
from playground.models.embeddings import InputEmbedding
from playground.models.layers import NORM_EPS
from playground.models.position_encoding import (
    ALiBi,
    RotaryEmbedding,
    T5RelativePositionBias,
    relative_position_bucket,
)

from .request import json_array, json_number

# The linear layer of each stage that is a projection, by its name in the module of the block.
LINEAR_LAYERS = {
    "queries": "q_proj",
    "keys": "k_proj",
    "values": "v_proj",
    "gate projection": "gate_proj",
    "up projection": "up_proj",
    "down projection": "down_proj",
}
MAX_ROWS, MAX_COLUMNS = 80, 128  # of a displayed tensor


class Origin:
    """The computation of the numbers of one stage.

    It uses weights of the model, and tensors of earlier stages of the trace.
    """

    def __init__(self, subject: InspectedModel, path: ForwardTrace, at: int) -> None:
        self.subject, self.path, self.at = subject, path, at
        self.family, self.config = subject.transformer, subject.transformer.config
        self.stage = path.stages[at]
        self.begins = next(
            i for i, stage in enumerate(path.stages) if stage.block == self.stage.block
        )
        kinds = [
            Component(kind, layer)
            for kind in (*ATTENTION_KINDS, *FEED_FORWARD_KINDS)
            for layer in range(self.config.n_layers)
        ]
        self.part = next((part for part in kinds if part.name == self.stage.block), None)

    def of(self, head: int, row: int, column: int) -> dict[str, Any]:
        """Return the computation of one number of the stage; see `trace_cell` for the fields."""
        name, table = self.stage.name, self.stage.tensor
        value = float((table[head] if self.stage.shape.startswith("H") else table)[row, column])
        if name in ("scores", "biased scores", "masked scores"):
            return self._score(head, row, column, name)
        if name == "softmax":
            scores_M = self._same("masked scores")[head, row]
            exp_M = (scores_M - scores_M.max()).exp()
            exponents = [
                ["exp(score − maximum of the row)", float(exp_M[column])],
                ["sum of the exponentials over the row", float(exp_M.sum())],
            ]
            return equation_detail("exp(score − maximum) / sum", exponents, value) | {
                "score": self._score(head, row, column, "masked scores")
            }
        if name == "weighted sum":
            mix = self.path.weighted_sum(self._head(head), row)
            keys = labels(self.subject, self.path, self.stage.block, "M", len(mix.weights_M))
            return weighted_sum_detail(mix.terms_MK, mix.result_K, column, keys, mix.weights_M)
        if name == "output projection":
            return self._joined(row, column)
        if name in (
            "queries",
            "keys",
            "values",
            "gate projection",
            "up projection",
            "down projection",
            "logits",
        ):
            return self._projected(head, row, column, value)
        if name in ("rotated queries", "rotated keys"):
            return self._turned(head, row, column, value)
        if name == "position bias":
            return self._distance(head, row, column, value)
        if name == "norm":
            return self._normed(row, column, value)
        return self._pointwise(row, column, value)

    def _head(self, head: int) -> Component:
        assert self.part is not None
        return Component(self.part.kind, self.part.layer, head)

    def _same(self, name: str) -> Tensor:
        """Return the tensor of another stage of the same block."""
        return self.path.stage(self.stage.block, name).tensor

    def _input(self) -> Tensor:
        """Return the input of the block: the last tensor before it."""
        return self.path.stages[self.begins - 1].tensor

    def _query_input(self) -> Tensor:
        """Return the input of the sublayer, after its norm in a pre-norm model."""
        return self._same("norm") if self.config.norm_placement == "pre" else self._input()

    def _memory(self) -> Tensor:
        """Return the output of the encoder: the tensor before the target embedding."""
        begins = next(
            i for i, stage in enumerate(self.path.stages) if stage.block == "target embedding"
        )
        return self.path.stages[begins - 1].tensor

    def _residual_name(self) -> str:
        assert self.part is not None
        return f"{self.part.module_name}_residual"

    def _score(self, head: int, row: int, column: int, name: str) -> dict[str, Any]:
        score = self.path.score(self._head(head), row, column)
        query, key = (
            labels(self.subject, self.path, self.stage.block, letter, 0)[i]
            for letter, i in (("Q", row), ("M", column))
        )
        names = [f"query of {query}", f"key of {key}"]
        bias = None if name == "scores" else score.bias
        value = (
            -math.inf
            if name == "masked scores" and not score.attended
            else score.score - (score.bias or 0.0) + (bias or 0.0)
        )
        result = dot_product_detail(
            score.query_K, score.key_K, names, value, root=score.root, bias=bias
        )
        return result | {"attended": score.attended}

    def _turned(self, head: int, row: int, column: int, value: float) -> dict[str, Any]:
        """RoPE: rotate a pair of numbers, half a vector apart, by its angle at this position."""
        attention, before_K = (
            self._attention(),
            self._same(self.stage.name.removeprefix("rotated "))[head, row],
        )
        half = len(before_K) // 2
        angle = float(
            cast(RotaryEmbedding, attention.position_encoding).rotation_angles(
                row + 1, before_K.device
            )[row, column % half]
        )
        first = ["first of the pair", float(before_K[column % half])]
        second = ["second of the pair", float(before_K[column % half + half])]
        turn = [["cosine of the angle", math.cos(angle)], ["sine of the angle", math.sin(angle)]]
        if column < half:
            return equation_detail("first · cosine − second · sine", [first, second, *turn], value)
        return equation_detail("second · cosine + first · sine", [first, second, *turn], value)

    def _distance(self, head: int, row: int, column: int, value: float) -> dict[str, Any]:
        """Return the position bias of ALiBi or T5 for the distance of two tokens."""
        position_encoding = self._attention().position_encoding
        table_HQM = self.stage.tensor
        if isinstance(position_encoding, ALiBi):
            slope = float(position_encoding.slopes(table_HQM.device)[head])
            return equation_detail(
                "−slope · distance",
                [["slope of this head", slope], ["distance in positions", abs(column - row)]],
                value,
            )
        offset = column - row
        number = int(
            relative_position_bucket(
                torch.tensor([[offset]]), cast(T5RelativePositionBias, position_encoding).causal
            )
        )
        parts = [["positions to the right", offset], ["bucket of this distance", number]]
        return equation_detail("learned bias of this head for this bucket", parts, value)

    def _projected(self, head: int, row: int, column: int, value: float) -> dict[str, Any]:
        """Return an output of a linear layer: its input times the weight row of that output."""
        name = self.stage.name
        if name == "logits":
            layer, input_XD, out = (
                self.family.output_proj,
                self.path.stages[self.at - 1].tensor,
                column,
            )
        elif name in ("gate projection", "up projection", "down projection"):
            inside = ACTIVATIONS[self.config.activation][0]
            layer = self._layer(LINEAR_LAYERS[name])
            input_XD, out = (
                self._same(inside) if name == "down projection" else self._query_input(),
                column,
            )
        else:
            layer = self._layer(LINEAR_LAYERS[name])
            input_XD = (
                self._memory()
                if self.part and self.part.kind == "cross" and name != "queries"
                else self._query_input()
            )
            # Several heads may share the keys and values of one head.
            own = (
                head
                if name == "queries"
                else head * self.config.n_kv_heads_resolved // self.config.n_heads
            )
            out = own * self.stage.tensor.shape[-1] + column
        bias = None if layer.bias is None else float(layer.bias[out])
        return dot_product_detail(
            input_XD[row], layer.weight[out], ["input", "weights"], value, bias=bias
        )

    def _layer(self, name: str) -> nn.Linear:
        assert self.part is not None
        return cast(nn.Linear, self.family.get_submodule(f"{self.part.module_name}.{name}"))

    def _attention(self) -> MultiHeadAttention:
        assert self.part is not None
        return cast(MultiHeadAttention, self.family.get_submodule(self.part.module_name))

    def _joined(self, row: int, column: int) -> dict[str, Any]:
        """Return the head outputs times their columns of the output projection, and the bias."""
        layer, mix_HK = self._layer("out_proj"), self._same("weighted sum")[:, row]
        weight_HDK = layer.weight.unflatten(1, (self.config.n_heads, -1)).transpose(0, 1)
        terms_XD = torch.einsum("hk,hdk->hd", mix_HK, weight_HDK)
        names = [f"head {i + 1}" for i in range(self.config.n_heads)]
        if layer.bias is not None:
            terms_XD, names = torch.cat([terms_XD, layer.bias[None]]), [*names, "bias"]
        return weighted_sum_detail(terms_XD, self.stage.tensor[row], column, names)

    def _normed(self, row: int, column: int, value: float) -> dict[str, Any]:
        if self.part is None:  # a final norm
            norm, input_D = (
                self.family.get_submodule(self.stage.block.replace(" final norm", "_norm")),
                self._input()[row],
            )
        else:
            norm = self.family.get_submodule(f"{self._residual_name()}.norm")
            input_D = (
                self._input() if self.config.norm_placement == "pre" else self._same("residual")
            )[row]
        x, gain = (
            ["x", float(input_D[column])],
            ["weight, learned", float(cast(nn.LayerNorm | nn.RMSNorm, norm).weight[column])],
        )
        if isinstance(norm, nn.RMSNorm):
            root = ["root mean square", float((input_D.pow(2).mean() + NORM_EPS).sqrt())]
            return equation_detail("x / RMS · weight", [x, root, gain], value)
        mean = ["mean of the vector", float(input_D.mean())]
        deviation = [
            "standard deviation of the vector",
            float((input_D.var(unbiased=False) + NORM_EPS).sqrt()),
        ]
        if not self.config.bias:
            return equation_detail(
                "(x − mean) / deviation · weight", [x, mean, deviation, gain], value
            )
        shift = ["bias, learned", float(cast(nn.LayerNorm, norm).bias[column])]
        return equation_detail(
            "(x − mean) / deviation · weight + bias", [x, mean, deviation, gain, shift], value
        )

    def _pointwise(self, row: int, column: int, value: float) -> dict[str, Any]:
        """Return a number that depends on a few other numbers."""
        name, block = self.stage.name, self.stage.block
        if name == "residual":
            result = self._same(
                "down projection" if "feed-forward" in block else "output projection"
            )
            return equation_detail(
                "x + output",
                [["x", float(self._input()[row, column])], ["output", float(result[row, column])]],
                value,
            )
        if name == "ReLU":
            return equation_detail(
                "max(0, a)", [["a", float(self._same("up projection")[row, column])]], value
            )
        if name in ("GELU", "SwiGLU"):
            a = self._same("up projection")[row, column]
            if name == "GELU":
                below = [
                    "P(standard normal variable ≤ a)",
                    float(torch.special.ndtr(a)),
                ]
                return equation_detail("a · probability", [["a", float(a)], below], value)
            g = self._same("gate projection")[row, column]
            return equation_detail(
                "g · sigmoid(g) · a",
                [["g", float(g)], ["sigmoid(g)", float(g.sigmoid())], ["a", float(a)]],
                value,
            )
        if name == "probabilities":
            logits_V = self.path.stage("output", "logits").tensor[row]
            exp_V = (logits_V - logits_V.max()).exp()
            parts = [
                ["exp(logit − maximum of the row)", float(exp_V[column])],
                ["sum of the exponentials over all tokens", float(exp_V.sum())],
            ]
            return equation_detail("exp(logit − maximum) / sum", parts, value)
        if name == "mask":
            if block.startswith("decoder"):
                return equation_detail(
                    "1 where column ≤ row", [["row", row + 1], ["column", column + 1]], value
                )
            return equation_detail(
                "1 where the token is not PAD (id 0)",
                [["token id", self.path.source[column]]],
                value,
            )
        embedding = cast(InputEmbedding, self.family.get_submodule(block.replace(" ", "_")))
        token = (self.path.source if block.startswith("source") else self.path.decoder_input)[row]
        if name == "sum":
            parts = [
                [each, float(self._same(each)[row, column])]
                for each in ("token embeddings", "position vectors")
            ]
            return equation_detail("token embedding + position vector", parts, value)
        if name == "token embeddings":
            learned = ["E, learned", float(embedding.token_embedding.weight[token, column])]
            return equation_detail(
                "E · scale", [learned, ["scale: square root of d_model", embedding.scale]], value
            )
        if self.config.position_type != "sinusoidal":
            tokens = self.path.source if block.startswith("source") else self.path.decoder_input
            at = embedding.position_ids(torch.tensor([tokens]))
            place = row if isinstance(at, slice) else int(at.flatten()[row])
            return equation_detail(
                "learned, a row of the position table",
                [["row of the table, from 0", place]],
                value,
            )
        wave = "cos" if column % 2 else "sin"
        period = wavelength(column, self.config.d_model)
        parts = [
            ["factor", self.config.sinusoidal_scale],
            ["position, from 0", row],
            ["wavelength of this dimension", period],
        ]
        return equation_detail(f"factor · {wave}(2π · position / wavelength)", parts, value)


def dot_product_detail(
    left: Tensor,
    right: Tensor,
    names: list[str],
    value: float,
    *,
    root: float | None = None,
    bias: float | None = None,
) -> dict[str, Any]:
    """Return a dot product; only its largest terms if there are very many."""
    products = left * right
    keep = products.abs().argsort(descending=True)[:MAX_COLUMNS].sort().values
    return {
        "kind": "product",
        "names": names,
        "at": keep.tolist(),
        "left": json_array(left[keep]),
        "right": json_array(right[keep]),
        "products": json_array(products[keep]),
        "terms": len(products),
        "sum": json_number(float(products.sum())),
        "root": json_number(root) if root is not None else None,
        "bias": json_number(bias) if bias is not None else None,
        "value": json_number(value),
    }


def weighted_sum_detail(
    terms: Tensor, result: Tensor, column: int, names: list[str], weights: Tensor | None = None
) -> dict[str, Any]:
    """Return rows and their sum.

    If there are very many rows, the last ones are merged into one, so that the displayed rows add
    up to the result.
    """
    others = max(0, len(terms) - MAX_ROWS)
    if others:
        names = [*names[:MAX_ROWS], f"the other {others}"]
        terms = torch.cat([terms[:MAX_ROWS], terms[MAX_ROWS:].sum(0, keepdim=True)])
        weights = (
            None
            if weights is None
            else torch.cat([weights[:MAX_ROWS], weights[MAX_ROWS:].sum(0, keepdim=True)])
        )
    return {
        "kind": "mixed",
        "rows": names,
        "others": others,
        "weights": None if weights is None else json_array(weights),
        "terms": json_array(terms[:, :MAX_COLUMNS]),
        "result": json_array(result[:MAX_COLUMNS]),
        "value": json_number(float(result[column])),
    }


def equation_detail(equation: str, parts: list[list[Any]], value: float) -> dict[str, Any]:
    return {
        "kind": "parts",
        "equation": equation,
        "parts": [[name, json_number(part)] for name, part in parts],
        "value": json_number(value),
    }


def queries_are_source(block: str) -> bool:
    """Return whether the queries of a block are source positions."""
    return block.startswith(("encoder", "source"))


def labels(
    subject: InspectedModel, path: ForwardTrace, block: str, letter: str, n: int
) -> list[str]:
    """Return the labels of a tensor dimension of size `n`, which `letter` names."""
    if letter == "V":
        return subject.token_names(list(range(n)))
    if letter in "KDF":
        return [str(i) for i in range(n)]
    source = (
        letter == "S"
        or (letter == "Q" and queries_are_source(block))
        or (letter == "M" and not block.startswith("decoder"))
    )
    return subject.token_names(path.source if source else path.decoder_input)
