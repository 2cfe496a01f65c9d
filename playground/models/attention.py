"""Attention and multi-head attention (Vaswani et al. 2017, section 3.2).

Letters of shapes: see `models/__init__.py`. Before the heads are split and after they are joined,
D stands for the numbers of all heads together.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import ModelConfig
from .relative import RelativePositionEncoding


def scaled_dot_product_attention(
    query_BHQK: Tensor,
    key_BHMK: Tensor,
    value_BHMK: Tensor,
    attn_mask: Tensor | None,
    bias_HQM: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute softmax(Q K^T / sqrt(K)) V, equation 1 of the paper.

    The first result is a weighted sum of the values for each query, the second its attention
    weights. `attn_mask` is True where a query may attend to a key, and broadcasts to BHQM; all
    other weights are exactly zero. None allows every pair. A bias is added to the scores, if
    positions are encoded by one.
    """
    scores_BHQM = query_BHQK @ key_BHMK.transpose(-2, -1) / math.sqrt(query_BHQK.shape[-1])
    if bias_HQM is not None:
        scores_BHQM += bias_HQM
    weights_BHQM = (
        scores_BHQM if attn_mask is None else scores_BHQM.masked_fill(~attn_mask, -torch.inf)
    ).softmax(-1)
    return weights_BHQM @ value_BHMK, weights_BHQM


def mix(
    query_BHQK: Tensor,
    key_BHMK: Tensor,
    value_BHMK: Tensor,
    attn_mask: Tensor | None,
    bias_HQM: Tensor | None = None,
) -> Tensor:
    """Compute attention without returning the weights.

    PyTorch's fused kernels never store them (Dao et al. 2022, FlashAttention, section 3.1).
    """
    mask = attn_mask
    if bias_HQM is not None:
        bias_HQM = bias_HQM.to(query_BHQK.dtype)  # the kernel accepts only the queries' dtype
        mask = bias_HQM if attn_mask is None else bias_HQM.masked_fill(~attn_mask, -torch.inf)
    return F.scaled_dot_product_attention(query_BHQK, key_BHMK, value_BHMK, attn_mask=mask)


def padding_mask(tokens_BM: Tensor) -> Tensor:
    """Return a mask (B11M) that is True at tokens and False at padding (token 0)."""
    return (tokens_BM != 0)[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Return a mask (QM) that lets each position attend to itself and to earlier positions.

    It is a square of `length` positions, True on and below the diagonal.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(nn.Module):
    """Several attention heads in parallel, each with its own projections (section 3.2.2).

    Keys and values have a method of their own, because a decoder computes them once and uses them
    for many queries. With fewer heads of keys and values than of queries, neighbouring query heads
    share one. This is grouped-query attention (Ainslie et al. 2023, section 2.2), or with a single
    head of keys and values multi-query attention (Shazeer 2019, section 3). It makes the key-value
    cache smaller by the same factor.
    """

    watched = False  # set by hooks: always compute the attention weights

    def __init__(
        self, config: ModelConfig, relation: RelativePositionEncoding | None = None
    ) -> None:
        super().__init__()
        d, bias = config.d_model, config.bias and config.attention_bias
        self.n_heads, self.n_kv_heads = config.n_heads, config.n_kv_heads_resolved
        self.sizes = [self.n_kv_heads * config.key_size, self.n_kv_heads * config.value_size]
        self.query = nn.Linear(d, config.n_heads * config.key_size, bias=bias)
        # One matrix holds two projections: first the keys, then the values.
        self.key_value = nn.Linear(d, sum(self.sizes), bias=bias)
        self.output = nn.Linear(config.n_heads * config.value_size, d, bias=bias)
        self.relation = relation or RelativePositionEncoding()  # the relative position encoding
        # Glorot and Bengio 2010. Smaller weights for queries and keys make the first attention
        # weights nearly uniform, and training is faster. Values start a little smaller, too.
        key_weight, value_weight = self.key_value.weight.split(self.sizes)
        for weight, gain in (
            (self.query.weight, 0.5),
            (key_weight, 0.5),
            (value_weight, 0.7),
            (self.output.weight, 1.0),
        ):
            nn.init.xavier_uniform_(weight, gain)

    def project_kv(self, memory_BMD: Tensor, first_position: int = 0) -> tuple[Tensor, Tensor]:
        """Return key_BGMK and value_BGMK of the positions `first_position`, `first_position` +
        1, ...
        """
        key_BMD, value_BMD = self.key_value(memory_BMD).split(self.sizes, dim=-1)
        key_BGMK = self.split_heads(key_BMD, self.n_kv_heads)
        return self.relation.rotate(key_BGMK, first_position), self.split_heads(
            value_BMD, self.n_kv_heads
        )

    def forward(
        self,
        x_BQD: Tensor,
        key_BGMK: Tensor,
        value_BGMK: Tensor,
        attn_mask: Tensor | None,
        need_weights: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attention output (BQD) and the attention weights (BHQM).

        Without `need_weights` the weights are None, and a faster kernel computes the output.
        """
        query_BHQK = self.split_heads(self.query(x_BQD), self.n_heads)
        query_BHQK = self.relation.rotate(
            query_BHQK, first_position=key_BGMK.shape[2] - query_BHQK.shape[2]
        )
        bias_HQM = self.relation.bias(query_BHQK, key_BGMK)
        attention_inputs = (
            query_BHQK,
            self.repeat_kv(key_BGMK),
            self.repeat_kv(value_BGMK),
            attn_mask,
            bias_HQM,
        )
        output_BHQK, weights_BHQM = (
            scaled_dot_product_attention(*attention_inputs)
            if need_weights or self.watched
            else (mix(*attention_inputs), None)
        )
        output_BQD = output_BHQK.transpose(1, 2).flatten(2)  # join the heads
        return self.output(output_BQD), weights_BHQM

    def repeat_kv(self, x_BGMK: Tensor) -> Tensor:
        """Repeat keys or values for each query head: BGMK -> BHMK."""
        return (
            x_BGMK
            if self.n_kv_heads == self.n_heads
            else x_BGMK.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)
        )

    @staticmethod
    def split_heads(x_BMD: Tensor, n_heads: int) -> Tensor:
        """Split vectors into heads: BMD -> BHMK. Head h has the h-th slice of every vector."""
        return x_BMD.view(*x_BMD.shape[:2], n_heads, x_BMD.shape[2] // n_heads).transpose(1, 2)
