"""Position information inside self-attention: rotation, or a bias for each distance.

The queries are always the last of the positions that have keys. In training they are all positions;
in generation with a cache they are the newest. So the two lengths determine the positions.
"""

import math

import torch
from torch import Tensor, nn

from .config import T5_NUM_BUCKETS, StackConfig

T5_MAX_DISTANCE = 128  # positions; T5 does not distinguish larger distances


class RelativePositionEncoding(nn.Module):
    """Position encoding inside self-attention. This base class adds none."""

    def rotate(self, x_BHPK: Tensor, first_position: int = 0) -> Tensor:
        """Rotate queries or keys of the positions `first_position`, `first_position` + 1, ..."""
        return x_BHPK

    def bias(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor | None:
        """Return the bias (HQM) that is added to the attention scores, or None."""
        return None


class RotaryEmbedding(RelativePositionEncoding):
    """Rotary position embedding (Su et al. 2021, section 3.2).

    The numbers i and i + K/2 of a vector are rotated by position * 10000^(-2i/K). The dot product
    of two rotated vectors depends on the distance between their positions only. Which numbers form
    a pair is a convention: this is that of GPT-NeoX and of transformers; the paper and LLaMA's own
    code pair neighbors.
    """

    cos_sin_2PK: Tensor

    def __init__(self, config: StackConfig, causal: bool) -> None:
        super().__init__()
        self.head_size = config.key_size
        shape_2PK = 2, config.n_positions, self.head_size
        self.register_buffer("cos_sin_2PK", torch.empty(shape_2PK), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Compute the cosine and the sine of each angle."""
        self.cos_sin_2PK.copy_(self.cos_sin(self.cos_sin_2PK.shape[1]))

    def rotate(self, x_BHPK: Tensor, first_position: int = 0) -> Tensor:
        end, table_2PK = first_position + x_BHPK.shape[2], self.cos_sin_2PK
        if end > table_2PK.shape[1]:  # several sequences in a row (packed_rows.py)
            table_2PK = self.cos_sin_2PK = self.cos_sin(2 * end).to(table_2PK)
        cos_PK, sin_PK = table_2PK[:, first_position:end].to(x_BHPK.dtype)
        return apply_rotary_emb(x_BHPK, cos_PK, sin_PK)

    @torch.inference_mode(False)  # training uses the tensor, too
    def cos_sin(self, n_positions: int) -> Tensor:
        """Return the cosines and sines (2PK) of the first positions; both of a pair are equal."""
        angle_PK = self.rotation_angles(n_positions).repeat(1, 2)
        return torch.stack([angle_PK.cos(), angle_PK.sin()])

    def rotation_angles(self, n_positions: int) -> Tensor:
        """Return the angle of each pair (Pk) in radians, for the first positions."""
        dim_k = torch.arange(0, self.head_size, 2)
        rate_k = torch.exp(dim_k * (-math.log(10_000.0) / self.head_size))
        return torch.arange(n_positions)[:, None] * rate_k


def apply_rotary_emb(x_BHPK: Tensor, cos_PK: Tensor, sin_PK: Tensor) -> Tensor:
    """Rotate each pair of numbers (a, b) by its angle: (a cos - b sin, b cos + a sin)."""
    a_BHPk, b_BHPk = x_BHPK.chunk(2, dim=-1)
    return x_BHPK * cos_PK + torch.cat([-b_BHPk, a_BHPk], dim=-1) * sin_PK


class ALiBi(RelativePositionEncoding):
    """Attention with linear biases (Press et al. 2022, section 3).

    The farther the key, the lower its score. The slope is fixed, steep in some heads and shallow in
    others. The paper's model is causal. In this encoder both directions count alike, so a head
    cannot distinguish left from right. Only the EOS at the end distinguishes a sequence from its
    mirror image.
    """

    slope_H: Tensor

    def __init__(self, config: StackConfig, causal: bool) -> None:
        super().__init__()
        self.register_buffer("slope_H", torch.empty(config.n_heads), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Compute the slope of each head: 2^(-8/n), 2^(-16/n), ... for n heads, a power of two.

        Other numbers of heads get the slopes of the next smaller power of two, then every other
        slope of the next larger one, as many as are missing (as in the authors' code).
        """
        n_heads = len(self.slope_H)
        n = 2 ** (n_heads.bit_length() - 1)  # the largest power of two up to n_heads
        exponent_h = torch.arange(1, n + 1) * (8 / n)
        extra_h = (2 * torch.arange(n_heads - n) + 1) * (4 / n)
        self.slope_H.copy_(2.0 ** -torch.cat([exponent_h, extra_h]))

    def bias(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor:
        distance_QM = relative_positions(n_queries, n_keys, device).abs()
        return -self.slope_H[:, None, None] * distance_QM


class T5RelativePositionBias(RelativePositionEncoding):
    """T5's relative positions (Raffel et al. 2020, section 2.1).

    A learned number for each head and distance is added to the score. Every small distance has a
    separate number; larger distances share buckets, the wider the farther. The encoder uses half
    of the buckets for each direction, the causal decoder uses all of them for the past. Each layer
    here learns its own numbers; in T5 the layers share them.
    """

    def __init__(self, config: StackConfig, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.relative_attention_bias = nn.Parameter(torch.empty(T5_NUM_BUCKETS, config.n_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the numbers from a normal distribution."""
        nn.init.normal_(self.relative_attention_bias)

    def bias(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor:
        distance_QM = relative_positions(n_queries, n_keys, device)
        bucket_QM = relative_position_bucket(distance_QM, self.causal)
        return self.relative_attention_bias[bucket_QM].permute(2, 0, 1)


def relative_positions(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """Return key position minus query position (QM); it is negative if the key comes first."""
    position_M = torch.arange(n_keys, device=device)
    return position_M - position_M[n_keys - n_queries :, None]


def relative_position_bucket(relative_position_QM: Tensor, causal: bool) -> Tensor:
    """Return the bucket (QM) of each relative position.

    Below `max_exact` the bucket is the distance itself. From there on the scale is logarithmic, up
    to `T5_MAX_DISTANCE`.
    """
    n_buckets = T5_NUM_BUCKETS if causal else T5_NUM_BUCKETS // 2
    distance_QM = (-relative_position_QM).clamp(min=0) if causal else relative_position_QM.abs()
    max_exact = n_buckets // 2
    # 0 at `max_exact`, 1 at `T5_MAX_DISTANCE`
    log_ratio_QM = (distance_QM.clamp(min=1) / max_exact).log()
    log_ratio_QM = log_ratio_QM / math.log(T5_MAX_DISTANCE / max_exact)
    large_QM = max_exact + (log_ratio_QM * (n_buckets - max_exact)).long()
    bucket_QM = torch.where(distance_QM < max_exact, distance_QM, large_QM.clamp(max=n_buckets - 1))
    # keys behind the query use the second half
    return bucket_QM if causal else bucket_QM + (relative_position_QM > 0) * n_buckets


POSITION_ENCODINGS = {"rope": RotaryEmbedding, "alibi": ALiBi, "t5": T5RelativePositionBias}


def build_position_encoding(config: StackConfig, causal: bool) -> RelativePositionEncoding:
    """Build the position encoding of a self-attention; `causal` in a decoder."""
    if config.position_type not in POSITION_ENCODINGS:  # vectors are added to the embeddings
        return RelativePositionEncoding()
    return POSITION_ENCODINGS[config.position_type](config, causal)
