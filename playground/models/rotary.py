"""Rotary position embedding (Su et al. 2021, section 3.2): queries and keys are turned by angles that grow with their positions.

A product of two turned vectors depends on how far apart they stand, and not on where.
Shapes: P positions, B batch, H heads, G heads of keys and values, Q queries, M memory, K numbers a head, k half of them.
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

    def turn(self, query_BHQK: Tensor, key_BGMK: Tensor) -> tuple[Tensor, Tensor]:
        angle_Mk = self.angles(key_BGMK.shape[2], key_BGMK.device)
        return turned(query_BHQK, angle_Mk[-query_BHQK.shape[2] :]), turned(key_BGMK, angle_Mk)

    def angles(self, n_positions: int, device: torch.device) -> Tensor:
        """Pk: how far each pair is turned at each position, in radians."""
        rate_k = torch.exp(torch.arange(0, self.size, 2, device=device) * (-math.log(10_000.0) / self.size))
        return torch.arange(n_positions, device=device)[:, None] * rate_k


def turned(x_BHPK: Tensor, angle_Pk: Tensor) -> Tensor:
    """Each pair of numbers turned by its angle."""
    a_BHPk, b_BHPk = x_BHPK.chunk(2, dim=-1)
    cos_Pk, sin_Pk = angle_Pk.cos(), angle_Pk.sin()
    return torch.cat([a_BHPk * cos_Pk - b_BHPk * sin_Pk, b_BHPk * cos_Pk + a_BHPk * sin_Pk], dim=-1)
