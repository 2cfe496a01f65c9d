"""The stages of scaled dot-product attention in a trace, all heads at once."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from playground.models.attention import MultiHeadAttention, split_heads
from playground.models.config import TransformerConfig
from playground.models.position_encoding import (
    ALiBi,
    RelativePositionEncoding,
    RotaryEmbedding,
    T5RelativePositionBias,
    relative_position_bucket,
)

from .hooks import Activations, Component, ModuleCall
from .source_lines import Place
from .trace_stage import (
    DotProduct,
    Equation,
    Explain,
    TraceStage,
    WeightedSum,
    explain_equation,
    explain_linear,
    explain_softmax,
)

# The position bias that is added to the attention scores: its formula, and that of one number.
POSITION_BIASES = {
    "alibi": ("bias = -slope of the head · |query position - key position|", "−slope · distance"),
    "t5": (
        "bias = learned bias of the head for the bucket of the distance",
        "learned bias of this head for this bucket",
    ),
}


@dataclass(frozen=True)
class AttentionCall:
    """One attention of a recorded forward pass, and the inputs of its stages.

    query_input_XD  the input of the queries; of keys and values too in self-attention
    memory_XD       the input of keys and values
    source          the tokens of the source
    """

    component: Component
    config: TransformerConfig
    attention: MultiHeadAttention
    calls: Activations
    query_input_XD: Tensor
    memory_XD: Tensor
    source: list[int]

    def call(self, part: str = "") -> ModuleCall:
        name = self.component.module_name
        return self.calls[f"{name}.{part}" if part else name][-1]

    def stages(self) -> Iterator[TraceStage]:
        """Yield the stages in order."""
        block, attention = self.component.name, self.attention
        attn_mask = self.call().attn_mask
        assert attn_mask is not None
        query_BHQK = split_heads(self.call("q_proj").output, attention.n_heads)
        key_BGMK = split_heads(self.call("k_proj").output, attention.n_kv_heads)
        value_BGMK = split_heads(self.call("v_proj").output, attention.n_kv_heads)
        unrotated_query_HQK = query_BHQK[0]
        unrotated_key_HMK = attention.repeat_kv(key_BGMK)[0]
        query_HQK = attention.position_encoding.rotate(query_BHQK)[0]
        key_HMK = attention.repeat_kv(attention.position_encoding.rotate(key_BGMK))[0]
        value_HMK = attention.repeat_kv(value_BGMK)[0]
        yield from self._projections(unrotated_query_HQK, unrotated_key_HMK, value_HMK)
        if type(attention.position_encoding).rotate is not RelativePositionEncoding.rotate:
            yield self._rotated("queries", "HQK", unrotated_query_HQK, query_HQK)
            yield self._rotated("keys", "HMK", unrotated_key_HMK, key_HMK)

        n_queries, n_keys = query_HQK.shape[1], key_HMK.shape[1]
        root = math.sqrt(query_HQK.shape[-1])
        bias_HQM = attention.position_encoding.bias(n_queries, n_keys, query_HQK.device)
        if bias_HQM is not None:  # an encoding may have one bias for all heads
            bias_HQM = bias_HQM.expand(attention.n_heads, -1, -1)
        attn_mask_QM = attn_mask.expand(1, 1, n_queries, n_keys)[0, 0]

        def explain_score(has_bias: bool = False, is_masked: bool = False) -> Explain:
            bias = bias_HQM if has_bias else None
            return _explain_score(query_HQK, key_HMK, bias, attn_mask_QM, is_masked)

        scores_HQM = query_HQK @ key_HMK.transpose(-2, -1) / root
        formula = "scores = Q Kᵀ / sqrt(head size)"
        yield TraceStage(block, "scores", formula, "HQM", scores_HQM, explain_score())
        if bias_HQM is not None:
            yield self._position_bias(bias_HQM)
            scores_HQM = scores_HQM + bias_HQM
            explain = explain_score(has_bias=True)
            yield TraceStage(block, "biased scores", "scores + bias", "HQM", scores_HQM, explain)
        yield self._mask(attn_mask_QM)
        masked_HQM = scores_HQM.masked_fill(~attn_mask_QM, -torch.inf)
        formula = "-infinity where the mask is false"
        explain_masked = explain_score(has_bias=True, is_masked=True)
        yield TraceStage(block, "masked scores", formula, "HQM", masked_HQM, explain_masked)

        weights_HQM = cast(Tensor, self.call().weights)[0]

        def explain_weight(head: int, query: int, key: int) -> Equation:
            explain = explain_softmax(weights_HQM[head], masked_HQM[head], "score", "the row")
            equation = cast(Equation, explain(0, query, key))
            score = cast(DotProduct, explain_masked(head, query, key))
            return Equation(equation.formula, equation.variables, equation.value, score)

        formula = "weights = exp(scores) / sum over the keys of exp(scores)"
        yield TraceStage(block, "softmax", formula, "HQM", weights_HQM, explain_weight)

        joined_QV = self.call("out_proj").inputs[0][0]
        head_outputs_HQK = joined_QV.unflatten(-1, (attention.n_heads, -1)).transpose(0, 1)
        yield self._weighted_sum(weights_HQM, value_HMK, head_outputs_HQK)
        yield self._output_projection(head_outputs_HQK)

    def _projections(
        self, query_HQK: Tensor, key_HMK: Tensor, value_HMK: Tensor
    ) -> Iterator[TraceStage]:
        """Yield queries, keys and values, before the rotation of RoPE."""
        config, attention = self.config, self.attention
        query_input = "y" if config.norm_placement == "pre" else "x"
        key_input = "memory" if self.component.kind == "cross" else query_input
        sharing = attention.n_heads // attention.n_kv_heads
        shared = f", each shared by {sharing} heads" if sharing > 1 else ""
        for name, layer_name, source, input_XD, output, shape, n_heads in [
            ("queries", "q_proj", query_input, self.query_input_XD, query_HQK, "HQK", 0),
            ("keys", "k_proj", key_input, self.memory_XD, key_HMK, "HMK", attention.n_kv_heads),
            ("values", "v_proj", key_input, self.memory_XD, value_HMK, "HMK", attention.n_kv_heads),
        ]:
            layer = getattr(attention, layer_name)
            letter = name[0].upper()
            formula = f"{letter} = {source} W_{letter}"
            formula += "" if layer.bias is None else f" + b_{letter}"
            formula += ", split into heads" + (shared if n_heads else "")
            formula += "; memory: the encoder output" if source == "memory" else ""
            explain = explain_linear(layer, input_XD, output, n_heads or attention.n_heads)
            yield TraceStage(self.component.name, name, formula, shape, output, explain)

    def _rotated(self, name: str, shape: str, before_HXK: Tensor, after_HXK: Tensor) -> TraceStage:
        """Return queries or keys after the rotation; a new encoding has no formula here."""
        encoding, type_name = self.attention.position_encoding, self.config.position_type
        formula = f"rotated by {type_name}"
        line: str | Place = (type(encoding).rotate, "def rotate(")
        explain = explain_equation(
            type_name,
            after_HXK,
            lambda head, row, column: {"before": float(before_HXK[head, row, column])},
        )
        if isinstance(encoding, RotaryEmbedding):
            formula = "pairs (i, i + K/2) rotated by position · 10000^(-2i/K)"
            explain, line = _explain_rotation(encoding, before_HXK, after_HXK), "rotation"
        block = self.component.name
        return TraceStage(block, f"rotated {name}", formula, shape, after_HXK, explain, line)

    def _position_bias(self, bias_HQM: Tensor) -> TraceStage:
        """Return the bias that the position encoding adds; a new encoding has no formula here."""
        encoding = self.attention.position_encoding
        type_name = self.config.position_type
        formula, equation = POSITION_BIASES.get(type_name, (f"bias = {type_name}", type_name))

        def variables(head: int, query: int, key: int) -> dict[str, float]:
            distance = key - query
            if isinstance(encoding, ALiBi):
                slope = float(encoding.slope_H[head])
                return {"slope of this head": slope, "distance in positions": abs(distance)}
            right: dict[str, float] = {"positions to the right": distance}
            if not isinstance(encoding, T5RelativePositionBias):
                return right
            bucket = relative_position_bucket(torch.tensor([[distance]]), encoding.causal)
            return right | {"bucket of this distance": int(bucket)}

        explain = explain_equation(equation, bias_HQM, variables)
        # A new encoding may return in several lines.
        place = "return " if type_name in POSITION_BIASES else "def bias("
        block, line = self.component.name, (type(encoding).bias, place)
        return TraceStage(block, "position bias", formula, "HQM", bias_HQM, explain, line)

    def _mask(self, attn_mask_QM: Tensor) -> TraceStage:
        if self.component.kind == "decoder":
            rule, line = "a position attends to itself and to earlier positions", "causal mask"
            explain = explain_equation(
                "1 where column ≤ row",
                attn_mask_QM,
                lambda _head, row, column: {"row": row + 1, "column": column + 1},
            )
        else:
            rule, line = "no query attends to padding", "padding mask"
            explain = explain_equation(
                "1 where the token is not PAD (id 0)",
                attn_mask_QM,
                lambda _head, _row, column: {"token id": self.source[column]},
            )
        formula = f"true = may attend: {rule}"
        block = self.component.name
        return TraceStage(block, "mask", formula, "QM", attn_mask_QM, explain, line)

    def _weighted_sum(
        self, weights_HQM: Tensor, value_HMK: Tensor, head_outputs_HQK: Tensor
    ) -> TraceStage:
        def explain(head: int, query: int, _column: int) -> WeightedSum:
            weights_M = weights_HQM[head, query]
            terms_MK = weights_M[:, None] * value_HMK[head]
            return WeightedSum(terms_MK, terms_MK.sum(0), weights_R=weights_M)

        block, name, formula = self.component.name, "weighted sum", "weighted sum = weights V"
        return TraceStage(block, name, formula, "HQK", head_outputs_HQK, explain)

    def _output_projection(self, head_outputs_HQK: Tensor) -> TraceStage:
        layer, output_QD = self.attention.out_proj, self.call("out_proj").output[0]
        n_heads = self.attention.n_heads
        names = tuple(f"head {i + 1}" for i in range(n_heads))

        def explain(_head: int, row: int, _column: int) -> WeightedSum:
            """Return the heads' outputs times their columns of the projection, and the bias."""
            weight_HDK = layer.weight.unflatten(1, (n_heads, -1)).transpose(0, 1)
            terms_RD = torch.einsum("hk,hdk->hd", head_outputs_HQK[:, row], weight_HDK)
            if layer.bias is None:
                return WeightedSum(terms_RD, output_QD[row], names)
            terms_RD = torch.cat([terms_RD, layer.bias[None]])
            return WeightedSum(terms_RD, output_QD[row], (*names, "bias"))

        formula = "output = concatenated heads W_O" + ("" if layer.bias is None else " + b_O")
        block, shape = self.component.name, f"{self.component.side[0].upper()}D"
        return TraceStage(block, "output projection", formula, shape, output_QD, explain)


def _explain_rotation(encoding: RotaryEmbedding, before_HXK: Tensor, after_HXK: Tensor) -> Explain:
    """Explain RoPE: a pair of numbers, half a vector apart, turns by the angle of its position."""

    def explain(head: int, row: int, column: int) -> Equation:
        before_K = before_HXK[head, row]
        half = len(before_K) // 2
        angle = float(encoding.rotation_angles(row + 1)[row, column % half])
        formula = "second · cosine + first · sine"
        if column < half:
            formula = "first · cosine − second · sine"
        variables = {
            "first of the pair": float(before_K[column % half]),
            "second of the pair": float(before_K[column % half + half]),
            "cosine of the angle": math.cos(angle),
            "sine of the angle": math.sin(angle),
        }
        return Equation(formula, variables, float(after_HXK[head, row, column]))

    return explain


def _explain_score(
    query_HQK: Tensor,
    key_HMK: Tensor,
    bias_HQM: Tensor | None,
    attn_mask_QM: Tensor,
    is_masked: bool,
) -> Explain:
    """Explain an attention score, which is -infinity where the mask blocks it if `is_masked`."""
    root = math.sqrt(query_HQK.shape[-1])

    def explain(head: int, query: int, key: int) -> DotProduct:
        query_K, key_K = query_HQK[head, query], key_HMK[head, key]
        bias = None if bias_HQM is None else float(bias_HQM[head, query, key])
        attended = bool(attn_mask_QM[query, key])
        value = float((query_K * key_K).sum()) / root + (bias or 0.0)
        if is_masked and not attended:
            value = -math.inf
        return DotProduct(
            query_K,
            key_K,
            ("query", "key"),
            value,
            root=root,
            bias=bias,
            query=query,
            key=key,
            attended=attended,
        )

    return explain
