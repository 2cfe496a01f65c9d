"""Rotary position embedding (Su et al. 2021, section 3.2).

Queries and keys are rotated by angles that grow with their positions. The dot product of two
rotated vectors depends on the distance between their positions, not on the positions themselves.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .config import ModelConfig
from .relative import RelativePositionEncoding


class RotaryEmbedding(RelativePositionEncoding):
    """Rotation of the numbers i and i + K/2 of a vector, by position * 10000^(-2i/K).

    Which numbers form a pair is a convention. This is LLaMA's; the paper pairs neighbours.
    """

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__()
        self.head_size = config.key_size

    def rotate(self, x_BHPK: Tensor, first_position: int = 0) -> Tensor:
        return apply_rotary_emb(
            x_BHPK, self.rotation_angles(x_BHPK.shape[2], x_BHPK.device, first_position)
        )

    def rotation_angles(
        self, n_positions: int, device: torch.device, first_position: int = 0
    ) -> Tensor:
        """Return the angle of each pair (Pk), in radians, for positions from `first_position`
        on.
        """
        rate_k = torch.exp(
            torch.arange(0, self.head_size, 2, device=device)
            * (-math.log(10_000.0) / self.head_size)
        )
        return (
            torch.arange(first_position, first_position + n_positions, device=device)[:, None]
            * rate_k
        )


def apply_rotary_emb(x_BHPK: Tensor, angle_Pk: Tensor) -> Tensor:
    """Rotate each pair of numbers by its angle."""
    a_BHPk, b_BHPk = x_BHPK.chunk(2, dim=-1)
    cos_Pk, sin_Pk = angle_Pk.cos(), angle_Pk.sin()
    rotated_BHPK = torch.cat(
        [a_BHPk * cos_Pk - b_BHPk * sin_Pk, b_BHPk * cos_Pk + a_BHPk * sin_Pk], dim=-1
    )
    return rotated_BHPK.to(x_BHPK.dtype)  # angles are float32, the model may be half precision
