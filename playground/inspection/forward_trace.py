"""A trace of one forward pass: every stage with its tensor, its formula, and its line of code.

The tensors are the inputs and outputs of the modules in a real pass. Intermediate results of a
module (the attention scores before and after the mask, the scaled token embeddings) are recomputed
with the same expression.

Shapes: S source, T target, X either, Q queries, M keys, H heads, K head size, D d_model, F d_ff,
V vocabulary; there is no batch dimension for one sequence.
"""

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from playground.models.attention import MultiHeadAttention, split_heads
from playground.models.config import TransformerConfig
from playground.models.position_encoding import RelativePositionEncoding, RotaryEmbedding

from .contributions import mean_contribution
from .hooks import Component, ModuleCall
from .inspected_model import Example
from .source_lines import STAGE_LINES, Place, SourceLine, find_source_line

# The activation of the feed-forward network: its name and formula.
ACTIVATIONS = {
    "relu": ("ReLU", "h = max(0, a)"),
    "gelu": ("GELU", "h = a · P(standard normal variable ≤ a)"),
    "swiglu": ("SwiGLU", "h = g · sigmoid(g) · a"),
}
# The position bias that is added to the attention scores.
POSITION_BIASES = {
    "alibi": "bias = -slope of the head · |query position - key position|",
    "t5": "bias = learned bias of the head for the bucket of the distance",
}


@dataclass(frozen=True)
class TraceStage:
    """One tensor of the forward pass.

    `shape` has one letter per dimension; `block` is the part of the model. `line` is the place of
    its line of code, or the key of it in `STAGE_LINES`, if that is not the name. `contribution` is
    the size of a sublayer's output relative to the residual stream, for the sum of the two.
    """

    block: str
    name: str
    formula: str
    shape: str
    tensor: Tensor
    line: str | Place = ""
    contribution: float | None = None

    @property
    def code(self) -> SourceLine:
        """Return the line of code that computes the stage."""
        line = self.line or self.name
        return find_source_line(*(STAGE_LINES[line] if isinstance(line, str) else line))

    @property
    def size(self) -> str:
        """Return the shape in letters and numbers: "H Q M = 4 × 6 × 6"."""
        return f"{' '.join(self.shape)} = {' × '.join(map(str, self.tensor.shape))}"

    @property
    def has_heads(self) -> bool:
        return self.shape.startswith("H")

    @property
    def key(self) -> str:
        """Return the name that identifies the stage: "block/name"."""
        return f"{self.block}/{self.name}"


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
            x_SD = yield from self._sublayer(Component("encoder", i), x_SD)
            x_SD = yield from self._sublayer(Component("encoder feed-forward", i), x_SD)
        if self._is_pre_norm:
            x_SD = yield from self._final_norm("encoder", "memory")
        x_TD = yield from self._embedding("target", self.example.decoder_input_BT)
        for i in range(n_layers):
            x_TD = yield from self._sublayer(Component("decoder", i), x_TD)
            x_TD = yield from self._sublayer(Component("cross", i), x_TD)
            x_TD = yield from self._sublayer(Component("decoder feed-forward", i), x_TD)
        if self._is_pre_norm:
            x_TD = yield from self._final_norm("decoder", "x")
        yield from self._output()

    def _embedding(self, side: str, tokens_BX: Tensor) -> Stages:
        block, shape = f"{side} embedding", f"{side[0].upper()}D"
        embedding = self.model.source_embedding if side == "source" else self.model.target_embedding
        embeddings_XD = embedding.token_embedding.weight[tokens_BX[0]] * embedding.scale
        formula = "E[token] · sqrt(d_model)" if self.model.config.scale_embeddings else "E[token]"
        yield TraceStage(block, "token embeddings", formula, shape, embeddings_XD)
        positions_XD = embedding.position_vectors(tokens_BX)
        if positions_XD is None:
            return embeddings_XD
        if positions_XD.dim() == 3:
            positions_XD = positions_XD[0]
        formula = _positions_formula(self.model.config, side)
        yield TraceStage(block, "position vectors", formula, shape, positions_XD)
        x_XD = self._call(f"{side}_embedding").output[0]
        formula = "x = token embeddings + position vectors"
        yield TraceStage(block, "sum", formula, shape, x_XD)
        return cast(Tensor, x_XD)

    def _final_norm(self, stack: str, result: str) -> Stages:
        formula, shape = f"{result} = {self._norm_name}(x)", "SD" if stack == "encoder" else "TD"
        output_XD = self._call(f"{stack}_norm").output[0]
        yield TraceStage(f"{stack} final norm", "norm", formula, shape, output_XD, f"{stack} norm")
        return cast(Tensor, output_XD)

    def _sublayer(self, component: Component, x_XD: Tensor) -> Stages:
        """Yield the stages of a sublayer with its norm and residual connection."""
        block, shape = component.name, f"{component.side[0].upper()}D"
        residual_call = self._call(f"{component.module_name}_residual")
        norm = self._call(f"{component.module_name}_residual.norm")
        line = "pre-norm" if self._is_pre_norm else "post-norm"
        if self._is_pre_norm:
            formula = f"y = {self._norm_name}(x)"
            yield TraceStage(block, "norm", formula, shape, norm.output[0], line)
        is_network = component.kind.endswith("feed-forward")
        part = self._feed_forward(component) if is_network else self._attention(component)
        output_XD = yield from part
        sum_XD = residual_call.output[0] if self._is_pre_norm else norm.inputs[0][0]
        size = mean_contribution(output_XD, x_XD)
        yield TraceStage(block, "residual", "x = x + output", shape, sum_XD, line, size)
        if self._is_pre_norm:
            return cast(Tensor, sum_XD)
        normed_XD = norm.output[0]
        yield TraceStage(block, "norm", f"x = {self._norm_name}(x)", shape, normed_XD, line)
        return cast(Tensor, normed_XD)

    def _feed_forward(self, component: Component) -> Stages:
        block, letter, module = component.name, component.side[0].upper(), component.module_name
        network: Any = self.model.get_submodule(module)
        activation = self.model.config.activation
        line = "gated feed-forward" if activation == "swiglu" else "feed-forward"

        def project(name: str, formula: str, shape: str, layer: str) -> Stages:
            linear: nn.Linear = getattr(network, layer)
            output = self._call(f"{module}.{layer}").output[0]
            if linear.bias is not None:
                formula += f" + {formula.split()[-1].replace('W', 'b')}"
            yield TraceStage(block, name, formula, shape, output, line)
            return cast(Tensor, output)

        y, wide = "y" if self._is_pre_norm else "x", f"{letter}F"
        if activation == "swiglu":
            yield from project("gate projection", f"g = {y} W_g", wide, "gate_proj")
        yield from project("up projection", f"a = {y} W_1", wide, "up_proj")
        hidden_XF = self._call(f"{module}.down_proj").inputs[0][0]
        name, formula = ACTIVATIONS.get(activation, (activation, f"h = {activation}(a)"))
        yield TraceStage(block, name, formula, wide, hidden_XF, line)
        return (yield from project("down projection", "output = h W_2", f"{letter}D", "down_proj"))

    def _attention(self, component: Component) -> Stages:
        """Yield the stages of scaled dot-product attention, all heads at once."""
        block, module = component.name, component.module_name
        attention = cast(MultiHeadAttention, self.model.get_submodule(module))
        call, encoding = self._call(module), attention.position_encoding
        query_BHQK = split_heads(self._call(f"{module}.q_proj").output, attention.n_heads)
        key_BGMK = split_heads(self._call(f"{module}.k_proj").output, attention.n_kv_heads)
        value_BGMK = split_heads(self._call(f"{module}.v_proj").output, attention.n_kv_heads)
        before = {"queries": query_BHQK[0], "keys": attention.repeat_kv(key_BGMK)[0]}
        query_HQK = encoding.rotate(query_BHQK)[0]
        key_HMK = attention.repeat_kv(encoding.rotate(key_BGMK))[0]
        value_HMK = attention.repeat_kv(value_BGMK)[0]
        for name, tensor in (before | {"values": value_HMK}).items():
            formula = self._projection_formula(component, attention, name)
            shape = "HQK" if name == "queries" else "HMK"
            yield TraceStage(block, name, formula, shape, tensor)
        if type(encoding).rotate is not RelativePositionEncoding.rotate:
            yield self._rotated(block, encoding, "queries", "HQK", query_HQK)
            yield self._rotated(block, encoding, "keys", "HMK", key_HMK)

        n_queries, n_keys = query_HQK.shape[1], key_HMK.shape[1]
        bias_HQM = encoding.bias(n_queries, n_keys, query_HQK.device)
        scores_HQM = query_HQK @ key_HMK.transpose(-2, -1) / math.sqrt(query_HQK.shape[-1])
        formula = "scores = Q Kᵀ / sqrt(head size)"
        yield TraceStage(block, "scores", formula, "HQM", scores_HQM)
        if bias_HQM is not None:  # an encoding may have one bias for all heads
            bias_HQM = bias_HQM.expand(attention.n_heads, -1, -1)
            yield self._position_bias(block, encoding, bias_HQM)
            scores_HQM = scores_HQM + bias_HQM
            yield TraceStage(block, "biased scores", "scores + bias", "HQM", scores_HQM)
        assert call.attn_mask is not None
        attn_mask_QM = call.attn_mask.expand(1, 1, n_queries, n_keys)[0, 0]
        rule, line = "no query attends to padding", "padding mask"
        if component.kind == "decoder":
            rule, line = "a position attends to itself and to earlier positions", "causal mask"
        yield TraceStage(block, "mask", f"true = may attend: {rule}", "QM", attn_mask_QM, line)
        masked_HQM = scores_HQM.masked_fill(~attn_mask_QM, -torch.inf)
        formula = "-infinity where the mask is false"
        yield TraceStage(block, "masked scores", formula, "HQM", masked_HQM)
        weights_HQM = cast(Tensor, call.weights)[0]
        formula = "weights = exp(scores) / sum over the keys of exp(scores)"
        yield TraceStage(block, "softmax", formula, "HQM", weights_HQM)

        projection = self._call(f"{module}.out_proj")
        head_outputs_HQK = split_heads(projection.inputs[0], attention.n_heads)[0]
        formula = "weighted sum = weights V"
        yield TraceStage(block, "weighted sum", formula, "HQK", head_outputs_HQK)
        bias = "" if attention.out_proj.bias is None else " + b_O"
        formula, shape = f"output = concatenated heads W_O{bias}", f"{component.side[0].upper()}D"
        yield TraceStage(block, "output projection", formula, shape, projection.output[0])
        return cast(Tensor, projection.output[0])

    def _projection_formula(
        self, component: Component, attention: MultiHeadAttention, name: str
    ) -> str:
        """Return the formula of queries, keys or values, before the rotation of RoPE."""
        letter, source = name[0].upper(), "y" if self._is_pre_norm else "x"
        layer = getattr(attention, f"{name[0]}_proj")
        if name != "queries" and component.kind == "cross":
            source = "memory"
        formula = f"{letter} = {source} W_{letter}"
        formula += "" if layer.bias is None else f" + b_{letter}"
        formula += ", split into heads"
        sharing = attention.n_heads // attention.n_kv_heads
        formula += f", each shared by {sharing} heads" if name != "queries" and sharing > 1 else ""
        return formula + ("; memory: the encoder output" if source == "memory" else "")

    def _rotated(
        self, block: str, encoding: RelativePositionEncoding, name: str, shape: str, after: Tensor
    ) -> TraceStage:
        """Return queries or keys after the rotation; a new encoding has no formula here."""
        formula = f"rotated by {self.model.config.position_type}"
        line: str | Place = (type(encoding).rotate, "def rotate(")
        if isinstance(encoding, RotaryEmbedding):
            formula = "pairs (i, i + K/2) rotated by position · 10000^(-2i/K)"
            line = "rotation"
        return TraceStage(block, f"rotated {name}", formula, shape, after, line)

    def _position_bias(
        self, block: str, encoding: RelativePositionEncoding, bias_HQM: Tensor
    ) -> TraceStage:
        """Return the bias that the position encoding adds; a new encoding has no formula here."""
        type_name = self.model.config.position_type
        formula = POSITION_BIASES.get(type_name, f"bias = {type_name}")
        # A new encoding may return in several lines.
        place = "return " if type_name in POSITION_BIASES else "def bias("
        line = type(encoding).bias, place
        return TraceStage(block, "position bias", formula, "HQM", bias_HQM, line)

    def _output(self) -> Iterator[TraceStage]:
        call = self._call("output_proj")
        formula = "logits = x W_out" + ("" if self.model.output_proj.bias is None else " + b_out")
        yield TraceStage("output", "logits", formula, "TV", call.output[0])
        probs_TV = self.model.log_probs(call.inputs[0])[0].exp()
        formula = "p(v) = exp(logit_v) / sum over all tokens of exp(logit)"
        yield TraceStage("output", "probabilities", formula, "TV", probs_TV)


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
