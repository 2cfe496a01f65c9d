"""Other ways to compute parts of the model, and their difference from it.

Multi-head attention with modules of its own for each head, and the feed-forward network as
convolutions of width 1.

Shapes: B batch, S sequence, H heads, M keys, K head size, D d_model, F d_ff, X any of them.
"""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from playground.models.attention import (
    MultiHeadAttention,
    scaled_dot_product_attention,
    split_heads,
)
from playground.models.feed_forward import FeedForward, SwiGLU
from playground.tasks.task import Batch

from .hooks import Component, record_activations
from .inspected_model import InspectedModel


@dataclass(frozen=True)
class SeparateHeads:
    """Encoder self-attention computed by separate modules, compared with the fused projections.

    modules     the number of linear layers of all heads
    parameters  of these modules, with one bias of the output
    fused       parameters of the model's attention
    difference  the largest difference between the outputs of both
    """

    modules: int
    parameters: int
    fused: int
    difference: float


@torch.no_grad()
def compare_separate_heads(subject: InspectedModel, batch: Batch, layer: int = 0) -> SeparateHeads:
    """Compute the encoder self-attention of one layer on a batch with one module per head."""
    model = subject.transformer
    name = Component("encoder", layer).module_name
    attention = cast(MultiHeadAttention, model.get_submodule(name))
    with record_activations(model, name) as calls:
        model.encode(batch.source_BS)
    x_BSD, _, _, attn_mask = calls[name][-1].inputs
    queries, keys, values = (
        _split_linear(projection, n_heads)
        for projection, n_heads in (
            (attention.q_proj, attention.n_heads),
            (attention.k_proj, attention.n_kv_heads),
            (attention.v_proj, attention.n_kv_heads),
        )
    )
    outputs = [
        _linear(weight) for weight in attention.out_proj.weight.chunk(attention.n_heads, dim=1)
    ]
    bias = attention.out_proj.bias
    bias_HQM = attention.position_encoding.bias(x_BSD.shape[1], x_BSD.shape[1], x_BSD.device)
    sum_BSD = torch.zeros_like(x_BSD) if bias is None else bias.expand_as(x_BSD)
    heads_per_group = attention.n_heads // attention.n_kv_heads
    for head, (query, output) in enumerate(zip(queries, outputs, strict=True)):
        group = head // heads_per_group
        query_BHSK, key_BHSK = (
            attention.position_encoding.rotate(split_heads(linear(x_BSD), 1))
            for linear in (query, keys[group])
        )
        value_BHSK = split_heads(values[group](x_BSD), 1)
        head_bias = None if bias_HQM is None else bias_HQM[head : head + 1]
        output_BHSK, _ = scaled_dot_product_attention(
            query_BHSK, key_BHSK, value_BHSK, attn_mask, head_bias
        )
        sum_BSD = sum_BSD + output(output_BHSK[:, 0])
    modules = [*queries, *keys, *values, *outputs]
    separate = sum(weight.numel() for module in modules for weight in module.parameters())
    return SeparateHeads(
        modules=len(modules),
        parameters=separate + (0 if bias is None else bias.numel()),
        fused=sum(
            weight.numel()
            for each in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj)
            for weight in each.parameters()
        ),
        difference=float((sum_BSD - calls[name][-1].output[0]).abs().max()),
    )


def _split_linear(linear: nn.Linear, n: int) -> list[nn.Linear]:
    """Return a module for each slice of the outputs of a linear layer."""
    biases = linear.bias.chunk(n) if linear.bias is not None else [None] * n
    return [
        _linear(weight, bias) for weight, bias in zip(linear.weight.chunk(n), biases, strict=True)
    ]


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    module = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    module.weight = nn.Parameter(weight)
    if bias is not None:
        module.bias = nn.Parameter(bias)
    return module


@torch.no_grad()
def convolution_difference(network: FeedForward | SwiGLU, x_SD: Tensor) -> float:
    """Return the largest difference between a feed-forward network and convolutions of width 1."""
    up_SF = _convolve(network.up_proj, x_SD)
    if isinstance(network, SwiGLU):
        hidden_SF = F.silu(_convolve(network.gate_proj, x_SD)) * up_SF
    else:
        hidden_SF = network.activation(up_SF)
    return float((_convolve(network.down_proj, hidden_SF) - network(x_SD)).abs().max())


def _convolve(linear: nn.Linear, x_SX: Tensor) -> Tensor:
    """Apply a linear layer as a convolution over the positions, with kernel size 1."""
    return F.conv1d(x_SX.T[None], linear.weight[:, :, None], linear.bias)[0].T
