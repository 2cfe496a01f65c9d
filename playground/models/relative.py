"""Relative position encoding: a bias on the scores for each distance.

The queries are always the last of the positions that have keys. In training they are all positions;
in generation with a cache they are the newest. So the two lengths determine the positions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import T5_NUM_BUCKETS, ModelConfig

T5_MAX_DISTANCE = 128  # positions; T5 does not distinguish larger distances


class RelativePositionEncoding(nn.Module):
    """Relative position encoding inside self-attention. The base class adds none.

    With absolute positions it stays like this: their vectors are added to the embeddings.
    """

    def rotate(self, x_BHPK: Tensor, first_position: int = 0) -> Tensor:
        """Rotate queries or keys by the angles of their positions, `first_position`,
        `first_position` + 1, ...
        """
        return x_BHPK

    def bias(self, query_BHQK: Tensor, key_BGMK: Tensor) -> Tensor | None:
        """Return the bias that is added to the attention scores (HQM), or None."""
        return None


class ALiBi(RelativePositionEncoding):
    """Attention with linear biases (Press et al. 2022, section 3).

    The farther the key, the lower its score. The slope is fixed, steep in some heads and shallow in
    others. The paper's model is causal. In this encoder both directions count alike, so a head
    cannot distinguish left from right. Only the EOS at the end distinguishes a sequence from its
    mirror image.
    """

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__()
        self.n_heads = config.n_heads

    def bias(self, query_BHQK: Tensor, key_BGMK: Tensor) -> Tensor:
        return (
            -self.slopes(query_BHQK.device)[:, None, None]
            * relative_positions(query_BHQK, key_BGMK).abs()
        )

    def slopes(self, device: torch.device) -> Tensor:
        """Return the slope of each head (H): 2^(-8/n), 2^(-16/n), ... for n heads, a power of two.

        Other numbers of heads get the slopes of the next smaller power of two, then every other
        slope of the next larger one, as many as are missing (as in the authors' code).
        """
        closest_power_of_2 = 2 ** (self.n_heads.bit_length() - 1)
        exponent_h = torch.arange(1, closest_power_of_2 + 1, device=device) * (
            8 / closest_power_of_2
        )
        extra_h = (2 * torch.arange(self.n_heads - closest_power_of_2, device=device) + 1) * (
            4 / closest_power_of_2
        )
        return 2.0 ** -torch.cat([exponent_h, extra_h])


class T5RelativePositionBias(RelativePositionEncoding):
    """T5's relative positions (Raffel et al. 2020, section 2.1).

    A learned number for each head and distance is added to the score. Every small distance has a
    separate number; larger distances share buckets, the wider the farther. The encoder uses half
    of the buckets for each direction, the causal decoder uses all of them for the past. Each layer
    here learns its own numbers; in T5 the layers share them.
    """

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.table = nn.Parameter(torch.randn(T5_NUM_BUCKETS, config.n_heads))

    def bias(self, query_BHQK: Tensor, key_BGMK: Tensor) -> Tensor:
        return self.table[
            relative_position_bucket(relative_positions(query_BHQK, key_BGMK), self.causal)
        ].permute(2, 0, 1)


def relative_positions(query_BHQK: Tensor, key_BGMK: Tensor) -> Tensor:
    """Return key position minus query position (QM); it is negative if the key comes first."""
    n_queries, n_keys = query_BHQK.shape[2], key_BGMK.shape[2]
    position_M = torch.arange(n_keys, device=key_BGMK.device)
    return position_M - position_M[n_keys - n_queries :, None]


def relative_position_bucket(relative_position_QM: Tensor, causal: bool) -> Tensor:
    """Return the bucket (QM) of each relative position.

    Below `max_exact` the bucket is the distance itself; from there on the scale is logarithmic, up
    to `T5_MAX_DISTANCE`.
    """
    n_buckets = T5_NUM_BUCKETS if causal else T5_NUM_BUCKETS // 2
    distance_QM = (-relative_position_QM).clamp(min=0) if causal else relative_position_QM.abs()
    max_exact = n_buckets // 2
    # 0 at `exact`, 1 at FARTHEST
    log_ratio_QM = (distance_QM.clamp(min=1) / max_exact).log() / math.log(
        T5_MAX_DISTANCE / max_exact
    )
    large_QM = (max_exact + (log_ratio_QM * (n_buckets - max_exact)).long()).clamp(
        max=n_buckets - 1
    )
    bucket_QM = torch.where(distance_QM < max_exact, distance_QM, large_QM)
    # keys behind the query use the second half
    return bucket_QM if causal else bucket_QM + (relative_position_QM > 0) * n_buckets
