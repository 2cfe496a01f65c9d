"""Positions told inside self-attention, by a bias on the scores that depends on how far apart query and key stand.

Queries are always the last of the positions that have keys: all of them when a sequence is read at once, the newest one when
a decoder goes symbol by symbol. So how many there are of each says where they stand.

Shapes: B batch, P positions, Q queries, M memory, H heads, G heads of keys and values, K numbers a head, R relative distances told apart.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import T5_BUCKETS, ModelConfig

FARTHEST = 128  # positions; from there on T5 tells no distances apart


class Relation(nn.Module):
    """What self-attention is told of where queries and keys stand. This one tells nothing: positions came with the vectors."""

    def rotate(self, x_BHPK: Tensor, first: int = 0) -> Tensor:
        """Queries or keys at the positions first, first + 1, ..., rotated by those positions."""
        return x_BHPK

    def bias(self, query_BHQK: Tensor, key_BGMK: Tensor) -> Tensor | None:
        """What is added to the scores (HQM)."""
        return None


class Alibi(Relation):
    """Attention with linear biases (Press et al. 2022, section 3): the farther the key, the lower its score, by a slope that no
    training changes, steep in some heads and shallow in others.

    The paper's model only looks back. In our encoder both sides count alike, so a head cannot tell left from right; what tells
    a sequence from its mirror image is the EOS at its end.
    """

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__()
        self.n_heads = config.n_heads

    def bias(self, query_BHQK: Tensor, key_BGMK: Tensor) -> Tensor:
        return -self.slopes(query_BHQK.device)[:, None, None] * offsets(query_BHQK, key_BGMK).abs()

    def slopes(self, device: torch.device) -> Tensor:
        """H: 2^(-8/n), 2^(-16/n), ... for n heads, a power of two. For other numbers of heads, those of the next smaller power of
        two, and as many as are missing out of the next larger one's, every other one (as in the authors' code)."""
        whole = 2 ** (self.n_heads.bit_length() - 1)
        exponent_h = torch.arange(1, whole + 1, device=device) * (8 / whole)
        between_h = (2 * torch.arange(self.n_heads - whole, device=device) + 1) * (4 / whole)
        return 2.0 ** -torch.cat([exponent_h, between_h])


class Buckets(Relation):
    """T5's relative positions (Raffel et al. 2020, section 2.1): one learned number for each head and distance, added to the score.

    Small distances are told apart one by one, larger ones in ever wider buckets. The encoder uses half of the buckets for
    either side, the decoder, which only looks back, all for its past. Each layer here learns numbers of its own; T5's layers share.
    """

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.table = nn.Parameter(torch.randn(T5_BUCKETS, config.n_heads))

    def bias(self, query_BHQK: Tensor, key_BGMK: Tensor) -> Tensor:
        return self.table[bucket(offsets(query_BHQK, key_BGMK), self.causal)].permute(2, 0, 1)


def offsets(query_BHQK: Tensor, key_BGMK: Tensor) -> Tensor:
    """QM: how many positions a key stands to the right of a query; below zero where it comes earlier."""
    n_queries, n_keys = query_BHQK.shape[2], key_BGMK.shape[2]
    place_M = torch.arange(n_keys, device=key_BGMK.device)
    return place_M - place_M[n_keys - n_queries :, None]


def bucket(offset_QM: Tensor, causal: bool) -> Tensor:
    """The bucket (QM) of each distance: below `exact` the distance itself, beyond on a logarithmic scale up to FARTHEST."""
    n_buckets = T5_BUCKETS if causal else T5_BUCKETS // 2
    distance_QM = (-offset_QM).clamp(min=0) if causal else offset_QM.abs()
    exact = n_buckets // 2
    share_QM = (distance_QM.clamp(min=1) / exact).log() / math.log(
        FARTHEST / exact
    )  # 0 at `exact`, 1 at FARTHEST
    wide_QM = (exact + (share_QM * (n_buckets - exact)).long()).clamp(max=n_buckets - 1)
    bucket_QM = torch.where(distance_QM < exact, distance_QM, wide_QM)
    return (
        bucket_QM if causal else bucket_QM + (offset_QM > 0) * n_buckets
    )  # what comes later has the second half
