"""Scaled dot-product attention and multi-head attention (Vaswani et al. 2017, section 3.2).

Before the heads are split and after they are joined, D stands for the numbers of all heads (H K).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import StackConfig
from .kv_cache import KVCache
from .position_encoding import RelativePositionEncoding


def scaled_dot_product_attention(
    query_BHQK: Tensor,
    key_BHMK: Tensor,
    value_BHMK: Tensor,
    attn_mask: Tensor | None = None,
    bias_HQM: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute softmax(Q K^T / sqrt(d_k)) V, equation 1 of the paper.

    Returns the attention output (BHQK) and the attention weights (BHQM). `attn_mask` is boolean and
    broadcasts to BHQM. It is True where a query may attend to a key; all other weights are exactly
    zero. A query without any key gets NaN. `bias_HQM`, of relative positions, is added to scores.
    """
    scores_BHQM = query_BHQK @ key_BHMK.transpose(-2, -1) / math.sqrt(query_BHQK.shape[-1])
    if bias_HQM is not None:
        scores_BHQM = scores_BHQM + bias_HQM
    if attn_mask is not None:
        scores_BHQM = scores_BHQM.masked_fill(~attn_mask, -torch.inf)
    weights_BHQM = scores_BHQM.softmax(dim=-1)
    return weights_BHQM @ value_BHMK, weights_BHQM


def padding_mask(tokens_BM: Tensor) -> Tensor:
    """Return a mask (B11M) that is True at tokens and False at padding (token 0)."""
    return (tokens_BM != 0)[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Return a mask (QM), True on and below the diagonal.

    Each of the `length` positions attends to itself and to earlier positions.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(nn.Module):
    """Attention heads in parallel, each with its own projections (section 3.2.2).

    With fewer key/value heads (G) than query heads (H), neighboring query heads share one:
    grouped-query attention (Ainslie et al. 2023, section 2.2), or multi-query attention if G = 1
    (Shazeer 2019, section 3).
    """

    def __init__(
        self, config: StackConfig, position_encoding: RelativePositionEncoding | None = None
    ) -> None:
        super().__init__()
        d_model, bias = config.d_model, config.bias and config.attention_bias
        self.n_heads, self.n_kv_heads = config.n_heads, config.n_kv_heads_resolved
        self.q_proj = nn.Linear(d_model, self.n_heads * config.key_size, bias=bias)
        self.k_proj = nn.Linear(d_model, self.n_kv_heads * config.key_size, bias=bias)
        self.v_proj = nn.Linear(d_model, self.n_kv_heads * config.value_size, bias=bias)
        self.out_proj = nn.Linear(self.n_heads * config.value_size, d_model, bias=bias)
        # Cross-attention has none: a distance from a target to a source position has no meaning.
        self.position_encoding = position_encoding or RelativePositionEncoding()
        self.dropout = config.attention_dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the matrices as Glorot and Bengio (2010) do, "Xavier".

        With gains below 1 attention is nearly uniform at initialization, and training is faster.
        """
        gains = {self.q_proj: 0.5, self.k_proj: 0.5, self.v_proj: 0.7, self.out_proj: 1.0}
        for projection, gain in gains.items():
            nn.init.xavier_uniform_(projection.weight, gain)

    def forward(
        self,
        x_BQD: Tensor,
        memory_BMD: Tensor | None = None,
        attn_mask: Tensor | None = None,
        cache: KVCache | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """Return a vector for each position of x (BQD), from the memory or from x itself.

        In self-attention (no memory), a `cache` holds the positions before x and is extended by
        x; without a cache, M = Q. In cross-attention, it holds the memory after the first call. If
        `weights` is a list, the attention weights (BHQM) are appended to it, without any dropout.
        """
        # 1. Project the vectors to the queries, keys and values of every head.
        query_BHQK = split_heads(self.q_proj(x_BQD), self.n_heads)
        key_BGMK, value_BGMK = self.keys_and_values(x_BQD, memory_BMD, cache)

        # 2. Relative positions rotate queries (and keys) or bias the scores. Others do neither.
        n_queries, n_keys = query_BHQK.shape[2], key_BGMK.shape[2]
        query_BHQK = self.position_encoding.rotate(query_BHQK, first_position=n_keys - n_queries)
        bias_HQM = self.position_encoding.bias(n_queries, n_keys, x_BQD.device)
        bias_HQM = None if bias_HQM is None else bias_HQM.to(query_BHQK.dtype)

        # 3. Attend in every head: with a kernel that never stores the weights (Dao et al. 2022,
        #    section 3.1), or with the equation.
        key_BHMK, value_BHMK = self.repeat_kv(key_BGMK), self.repeat_kv(value_BGMK)
        if weights is None:
            mask, dropout = merge_mask_and_bias(attn_mask, bias_HQM), self.dropout * self.training
            output_BHQK = F.scaled_dot_product_attention(
                query_BHQK, key_BHMK, value_BHMK, mask, dropout
            )
        else:
            output_BHQK, weights_BHQM = scaled_dot_product_attention(
                query_BHQK, key_BHMK, value_BHMK, attn_mask, bias_HQM
            )
            weights.append(weights_BHQM)

        # 4. Join the heads, and mix them by the last projection.
        return self.out_proj(output_BHQK.transpose(1, 2).flatten(2))

    def keys_and_values(
        self, x_BQD: Tensor, memory_BMD: Tensor | None, cache: KVCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return the keys and values (BGMK) of the memory, or of x and the positions before it."""
        n_cached = cache.length if cache else 0
        if cache and n_cached and memory_BMD is not None:
            return cache.key_BGMK, cache.value_BGMK
        y_BMD = x_BQD if memory_BMD is None else memory_BMD
        key_BGMK = split_heads(self.k_proj(y_BMD), self.n_kv_heads)
        key_BGMK = self.position_encoding.rotate(key_BGMK, first_position=n_cached)
        value_BGMK = split_heads(self.v_proj(y_BMD), self.n_kv_heads)
        return cache.update(key_BGMK, value_BGMK) if cache else (key_BGMK, value_BGMK)

    def repeat_kv(self, x_BGMK: Tensor) -> Tensor:
        """Repeat keys or values for each query head that shares them: BGMK -> BHMK."""
        group_size = self.n_heads // self.n_kv_heads
        return x_BGMK if group_size == 1 else x_BGMK.repeat_interleave(group_size, dim=1)


def split_heads(x_BMD: Tensor, n_heads: int) -> Tensor:
    """Split vectors into heads: BMD -> BHMK. Head h has the h-th slice of every vector."""
    return x_BMD.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_mask_and_bias(attn_mask: Tensor | None, bias_HQM: Tensor | None) -> Tensor | None:
    """Return mask and bias as the one tensor that PyTorch's kernel accepts, or None."""
    if attn_mask is None or bias_HQM is None:
        return attn_mask if bias_HQM is None else bias_HQM
    return bias_HQM.masked_fill(~attn_mask, -torch.inf)
