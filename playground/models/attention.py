"""Scaled dot-product attention and its multi-head form (Vaswani et al. 2017, section 3.2).

Shapes: B batch, Q queries, M memory (what is looked at), H heads, K numbers a head, D d_model.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import ModelConfig


def attend(query_BHQK: Tensor, key_BHMK: Tensor, value_BHMK: Tensor, may_look: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(K)) V, equation 1 of the paper: each query's mix of the values, and the weights of the mix.

    `may_look` is true where a query may look and broadcasts to BHQM; elsewhere the weight is exactly zero.
    """
    scores_BHQM = query_BHQK @ key_BHMK.transpose(-2, -1) / math.sqrt(query_BHQK.shape[-1])
    weights_BHQM = scores_BHQM.masked_fill(~may_look, -torch.inf).softmax(-1)
    return weights_BHQM @ value_BHMK, weights_BHQM


def padding_mask(tokens_BM: Tensor) -> Tensor:
    """B11M, true at real tokens: nobody looks at padding (token 0)."""
    return (tokens_BM != 0)[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """QM of length x length, true on and below the diagonal: a target position looks at itself and at its past."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(nn.Module):
    """Several small attentions side by side, each in its own projection of the same vectors (section 3.2.2).

    Keys and values are one call of their own, because a decoder computes them once and uses them for many queries.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, bias = config.d_model, config.attention_bias
        self.n_heads = config.n_heads
        self.query = nn.Linear(d, d, bias=bias)
        self.key_value = nn.Linear(d, 2 * d, bias=bias)  # two projections in one product: the keys, then the values
        self.output = nn.Linear(d, d, bias=bias)
        # Glorot and Bengio 2010, made smaller where scores are formed: attention begins soft and finds its place sooner.
        key_weight, value_weight = self.key_value.weight.chunk(2)
        for weight, gain in ((self.query.weight, 0.5), (key_weight, 0.5), (value_weight, 0.7), (self.output.weight, 1.0)):
            nn.init.xavier_uniform_(weight, gain)

    def keys_and_values(self, memory_BMD: Tensor) -> tuple[Tensor, Tensor]:
        """key_BHMK and value_BHMK of what can be looked at."""
        key_BMD, value_BMD = self.key_value(memory_BMD).chunk(2, dim=-1)
        return self._split(key_BMD), self._split(value_BMD)

    def forward(self, x_BQD: Tensor, key_BHMK: Tensor, value_BHMK: Tensor, may_look: Tensor) -> tuple[Tensor, Tensor]:
        """What each position gathers (BQD), and where it looked (weights_BHQM)."""
        mix_BHQK, weights_BHQM = attend(self._split(self.query(x_BQD)), key_BHMK, value_BHMK, may_look)
        mix_BQD = mix_BHQK.transpose(1, 2).flatten(2)  # the heads' results, one behind the other
        return self.output(mix_BQD), weights_BHQM

    def _split(self, x_BMD: Tensor) -> Tensor:
        """BMD -> BHMK: head h owns the h-th slice of every vector."""
        return x_BMD.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
