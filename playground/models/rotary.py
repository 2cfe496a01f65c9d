"""Rotary position embedding (Su et al. 2021, section 3.2): queries and keys are turned by angles that grow with their positions.

A product of two turned vectors depends on how far apart they stand, and not on where.
Shapes: P positions, B batch, H heads, K numbers a head, k half of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .config import ModelConfig
from .relative import Relation


class Rotary(Relation):
    """Numbers i and i + K/2 of a vector are a point in a plane, turned by position * 10000^(-2i/K).

    Which numbers make a pair is convention: these are LLaMA's; the paper pairs neighbours.
    """

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__()
        self.size = config.key_size

    def rotate(self, x_BHPK: Tensor, first: int = 0) -> Tensor:
        return turned(x_BHPK, self.angles(x_BHPK.shape[2], x_BHPK.device, first))

    def angles(self, n_positions: int, device: torch.device, first: int = 0) -> Tensor:
        """Pk: how far each pair is turned at each position from `first` on, in radians."""
        rate_k = torch.exp(
            torch.arange(0, self.size, 2, device=device) * (-math.log(10_000.0) / self.size)
        )
        return torch.arange(first, first + n_positions, device=device)[:, None] * rate_k


def turned(x_BHPK: Tensor, angle_Pk: Tensor) -> Tensor:
    """Each pair of numbers turned by its angle."""
    a_BHPk, b_BHPk = x_BHPK.chunk(2, dim=-1)
    cos_Pk, sin_Pk = angle_Pk.cos(), angle_Pk.sin()
    rotated_BHPK = torch.cat(
        [a_BHPk * cos_Pk - b_BHPk * sin_Pk, b_BHPk * cos_Pk + a_BHPk * sin_Pk], dim=-1
    )
    return rotated_BHPK.to(x_BHPK.dtype)  # angles have float32, the model may have half of it
