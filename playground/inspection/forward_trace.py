"""A trace of one forward pass: every stage with its tensor, its formula, and its line of code.

The tensors are the inputs and outputs of the modules in a real pass. Intermediate results of a
module (the attention scores before and after the mask, the scaled token embeddings) are recomputed
with the same expression.

Shapes: S source, T target, X either, Q queries, M keys, H heads, K head size, D d_model, F d_ff,
V vocabulary; there is no batch dimension for one sequence.
"""

import math
from collections.abc import Generator, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from playground.models.attention import MultiHeadAttention
from playground.models.config import TransformerConfig
from playground.models.embeddings import InputEmbedding
from playground.models.layers import ResidualNorm

from .contributions import mean_contribution
from .hooks import Component, ModuleCall
from .inspected_model import Example
from .trace_attention import AttentionCall
from .trace_stage import (
    Explain,
    Norm,
    TraceStage,
    explain_equation,
    explain_linear,
    explain_norm,
    explain_softmax,
)

# The activation of the feed-forward network: its name and formula.
ACTIVATIONS = {
    "relu": ("ReLU", "h = max(0, a)"),
    "gelu": ("GELU", "h = a · P(standard normal variable ≤ a)"),
    "swiglu": ("SwiGLU", "h = g · sigmoid(g) · a"),
}
# Stages of a part of the model; the result is the residual stream after it.
Stages = Generator[TraceStage, None, Tensor]


class ForwardTrace:
    """All stages of the recorded forward pass of one sequence, in order.

    `source` and `decoder_input` are the names of the tokens of the source and the decoder input.
    """

    def __init__(self, example: Example) -> None:
        self.example = example
        self.model, self._calls = example.subject.transformer, example.activations
        self.source, self.decoder_input = (
            example.subject.token_names(tokens[0].tolist())
            for tokens in (example.source_BS, example.decoder_input_BT)
        )
        with torch.no_grad():
            self.stages = list(self._trace())

    def stage(self, block: str, name: str) -> TraceStage:
        """Return a stage by its names. Raises KeyError if the model does not have it."""
        for each in self.stages:
            if (each.block, each.name) == (block, name):
                return each
        raise KeyError(f"there is no stage {name!r} in the block {block!r}")

    @property
    def _norm_name(self) -> str:
        return "RMSNorm" if self.model.config.norm_type == "rms" else "LayerNorm"

    @property
    def _is_pre_norm(self) -> bool:
        return self.model.config.norm_placement == "pre"

    def _call(self, module: str) -> ModuleCall:
        return self._calls[module][-1]

    def _trace(self) -> Iterator[TraceStage]:
        n_layers = self.model.config.n_layers
        x_SD = yield from self._embedding("source", self.example.source_BS)
        for i in range(n_layers):
            x_SD = yield from self._sublayer("self_attn", Component("encoder", i), x_SD)
            x_SD = yield from self._sublayer(
                "feed_forward", Component("encoder feed-forward", i), x_SD
            )
        if self._is_pre_norm:
            x_SD = yield from self._final_norm("encoder", "memory", x_SD)
        x_TD = yield from self._embedding("target", self.example.decoder_input_BT)
        for i in range(n_layers):
            x_TD = yield from self._sublayer("self_attn", Component("decoder", i), x_TD)
            x_TD = yield from self._sublayer("cross_attn", Component("cross", i), x_TD, x_SD)
            x_TD = yield from self._sublayer(
                "feed_forward", Component("decoder feed-forward", i), x_TD
            )
        if self._is_pre_norm:
            x_TD = yield from self._final_norm("decoder", "x", x_TD)
        yield from self._output(x_TD)

    def _embedding(self, side: str, tokens_BX: Tensor) -> Stages:
        block, shape = f"{side} embedding", f"{side[0].upper()}D"
        embedding = self.model.source_embedding if side == "source" else self.model.target_embedding
        token_table = embedding.token_embedding.weight
        embeddings_XD = token_table[tokens_BX[0]] * embedding.scale
        is_scaled = self.model.config.scale_embeddings
        scale = {"scale: square root of d_model": embedding.scale} if is_scaled else {}
        explain = explain_equation(
            "E · scale" if is_scaled else "E",
            embeddings_XD,
            lambda _head, row, column: {
                "E, learned": float(token_table[tokens_BX[0, row], column]),
                **scale,
            },
        )
        formula = "E[token] · sqrt(d_model)" if is_scaled else "E[token]"
        yield TraceStage(block, "token embeddings", formula, shape, embeddings_XD, explain)
        positions_XD = embedding.position_vectors(tokens_BX)
        if positions_XD is None:
            return embeddings_XD
        if positions_XD.dim() == 3:
            positions_XD = positions_XD[0]
        formula = _positions_formula(self.model.config, side)
        explain = self._explain_position(embedding, tokens_BX, positions_XD)
        yield TraceStage(block, "position vectors", formula, shape, positions_XD, explain)
        x_XD = self._call(f"{side}_embedding").output[0]
        explain = explain_equation(
            "token embedding + position vector",
            x_XD,
            lambda _head, row, column: {
                "token embeddings": float(embeddings_XD[row, column]),
                "position vectors": float(positions_XD[row, column]),
            },
        )
        formula = "x = token embeddings + position vectors"
        yield TraceStage(block, "sum", formula, shape, x_XD, explain)
        return cast(Tensor, x_XD)

    def _explain_position(
        self, embedding: InputEmbedding, tokens_BX: Tensor, positions_XD: Tensor
    ) -> Explain:
        config = self.model.config
        if config.position_type == "sinusoidal":
            explain_cosine, explain_sine = (
                explain_equation(
                    f"factor · {wave}(2π · position / wavelength)",
                    positions_XD,
                    lambda _head, row, column: {
                        "factor": config.sinusoidal_scale,
                        "position, from 0": row,
                        "wavelength of this dimension": wavelength(column, config.d_model),
                    },
                )
                for wave in ("cos", "sin")
            )
            return lambda head, row, column: (explain_cosine if column % 2 else explain_sine)(
                head, row, column
            )
        position_ids = embedding.position_ids(tokens_BX)

        def variables(_head: int, row: int, _column: int) -> dict[str, float]:
            index = row if isinstance(position_ids, slice) else int(position_ids.flatten()[row])
            return {"row of the table, from 0": index}

        return explain_equation("learned, a row of the position table", positions_XD, variables)

    def _final_norm(self, stack: str, result: str, x_XD: Tensor) -> Stages:
        name, formula = f"{stack}_norm", f"{result} = {self._norm_name}(x)"
        output_XD = self._call(name).output[0]
        explain = explain_norm(getattr(self.model, name), x_XD, output_XD)
        shape = "SD" if stack == "encoder" else "TD"
        block, line = f"{stack} final norm", f"{stack} norm"
        yield TraceStage(block, "norm", formula, shape, output_XD, explain, line)
        return cast(Tensor, output_XD)

    def _sublayer(
        self, part: str, component: Component, x_XD: Tensor, memory_SD: Tensor | None = None
    ) -> Stages:
        """Yield the stages of a sublayer with its norm and residual connection."""
        block, shape = component.name, f"{component.side[0].upper()}D"
        residual = cast(ResidualNorm, self.model.get_submodule(f"{component.module_name}_residual"))
        norm = self._call(f"{component.module_name}_residual.norm")
        y_XD, line = x_XD, "pre-norm" if self._is_pre_norm else "post-norm"
        if self._is_pre_norm:
            y_XD = norm.output[0]
            explain = explain_norm(cast(Norm, residual.norm), x_XD, y_XD)
            yield TraceStage(block, "norm", f"y = {self._norm_name}(x)", shape, y_XD, explain, line)
        if part == "feed_forward":
            output_XD = yield from self._feed_forward(component, y_XD)
        else:
            attention = AttentionCall(
                component,
                self.model.config,
                cast(MultiHeadAttention, self.model.get_submodule(component.module_name)),
                self._calls,
                query_input_XD=y_XD,
                memory_XD=y_XD if memory_SD is None else memory_SD,
                source=self.example.source_BS[0].tolist(),
            )
            yield from attention.stages()
            output_XD = attention.call("out_proj").output[0]
        residual_call = self._call(f"{component.module_name}_residual")
        sum_XD = residual_call.output[0] if self._is_pre_norm else norm.inputs[0][0]
        explain = explain_equation(
            "x + output",
            sum_XD,
            lambda _head, row, column: {
                "x": float(x_XD[row, column]),
                "output": float(output_XD[row, column]),
            },
        )
        size = mean_contribution(output_XD, x_XD)
        yield TraceStage(block, "residual", "x = x + output", shape, sum_XD, explain, line, size)
        if self._is_pre_norm:
            return cast(Tensor, sum_XD)
        normed_XD = norm.output[0]
        explain = explain_norm(cast(Norm, residual.norm), sum_XD, normed_XD)
        formula = f"x = {self._norm_name}(x)"
        yield TraceStage(block, "norm", formula, shape, normed_XD, explain, line)
        return cast(Tensor, normed_XD)

    def _feed_forward(self, component: Component, y_XD: Tensor) -> Stages:
        block, letter, module = component.name, component.side[0].upper(), component.module_name
        network: Any = self.model.get_submodule(module)
        activation = self.model.config.activation
        line = "gated feed-forward" if activation == "swiglu" else "feed-forward"

        def project(name: str, formula: str, shape: str, layer: str, input_XD: Tensor) -> Stages:
            linear: nn.Linear = getattr(network, layer)
            output = self._call(f"{module}.{layer}").output[0]
            if linear.bias is not None:
                formula += f" + {formula.split()[-1].replace('W', 'b')}"
            explain = explain_linear(linear, input_XD, output)
            yield TraceStage(block, name, formula, shape, output, explain, line)
            return cast(Tensor, output)

        y, wide = "y" if self._is_pre_norm else "x", f"{letter}F"
        gate_XF = y_XD
        if activation == "swiglu":
            gate_XF = yield from project("gate projection", f"g = {y} W_g", wide, "gate_proj", y_XD)
        up_XF = yield from project("up projection", f"a = {y} W_1", wide, "up_proj", y_XD)
        hidden_XF = self._call(f"{module}.down_proj").inputs[0][0]
        name, formula = ACTIVATIONS.get(activation, (activation, f"h = {activation}(a)"))
        explain = _explain_activation(activation, up_XF, gate_XF, hidden_XF)
        yield TraceStage(block, name, formula, wide, hidden_XF, explain, line)
        return (
            yield from project(
                "down projection", "output = h W_2", f"{letter}D", "down_proj", hidden_XF
            )
        )

    def _output(self, x_TD: Tensor) -> Iterator[TraceStage]:
        layer, logits_BTV = self.model.output_proj, self._call("output_proj").output
        formula = "logits = x W_out" + ("" if layer.bias is None else " + b_out")
        explain = explain_linear(layer, x_TD, logits_BTV[0])
        yield TraceStage("output", "logits", formula, "TV", logits_BTV[0], explain)
        log_probs_BTV = self.model.log_probs(self._call("output_proj").inputs[0])
        probs_TV = log_probs_BTV[0].exp()
        formula = "p(v) = exp(logit_v) / sum over all tokens of exp(logit)"
        explain = explain_softmax(probs_TV, logits_BTV[0], "logit", "all tokens")
        yield TraceStage("output", "probabilities", formula, "TV", probs_TV, explain)


def _explain_activation(
    activation: str, up_XF: Tensor, gate_XF: Tensor, hidden_XF: Tensor
) -> Explain:
    """Explain a number of the activation of the feed-forward network."""
    if activation == "gelu":
        return explain_equation(
            "a · probability",
            hidden_XF,
            lambda _head, row, column: {
                "a": float(up_XF[row, column]),
                "P(standard normal variable ≤ a)": float(torch.special.ndtr(up_XF[row, column])),
            },
        )
    if activation == "swiglu":
        return explain_equation(
            "g · sigmoid(g) · a",
            hidden_XF,
            lambda _head, row, column: {
                "g": float(gate_XF[row, column]),
                "sigmoid(g)": float(gate_XF[row, column].sigmoid()),
                "a": float(up_XF[row, column]),
            },
        )
    formula = "max(0, a)" if activation == "relu" else f"{activation}(a)"
    return explain_equation(
        formula, hidden_XF, lambda _head, row, column: {"a": float(up_XF[row, column])}
    )


def _positions_formula(config: TransformerConfig, side: str) -> str:
    position_type = config.position_type
    if position_type == "learned-from-end" and side == "source":
        return "P[i], a learned vector for each position i, counted from the end"
    if position_type == "randomized":
        return (
            "P[floor(i · vectors / positions)], learned vectors, evenly spaced in a table with "
            "more vectors than positions"
        )
    if position_type != "sinusoidal":
        return "P[i], a learned vector for each position i"
    factor = "" if config.sinusoidal_scale == 1 else f"{config.sinusoidal_scale:g} · "
    angle = "(i / 10000^(2j/d_model))"
    return f"P[i, 2j] = {factor}sin{angle}, P[i, 2j+1] = {factor}cos{angle}"


def wavelength(dimension: int, d_model: int) -> float:
    """Return the wavelength, in positions, of a dimension of the sinusoidal encoding.

    It is 2 pi 10000^(2i / d_model), the same for the sine 2i and the cosine 2i + 1 (Vaswani et al.
    2017, section 3.5): 6.3 for dimension 0, 47 for dimension 14 of 64. Dimensions count from 0.
    """
    return 2 * math.pi * 10_000 ** (dimension // 2 * 2 / d_model)
