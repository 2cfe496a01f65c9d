"""The tasks that ship: reverse and copy."""

from __future__ import annotations

import torch
from torch import Tensor

from .task import Task


class Reverse(Task):
    """Write the sequence backwards: 3 1 4 1 5 -> 5 1 4 1 3."""

    name, example = "reverse", ("3 1 4 1 5", "5 1 4 1 3")

    def answer(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        column_L = torch.arange(sequence_BL.shape[1], device=sequence_BL.device)
        mirrored_BL = (lengths_B[:, None] - 1 - column_L).clamp(min=0)
        return sequence_BL.gather(1, mirrored_BL), lengths_B

    def alignment(self, length: int) -> list[int]:
        return list(range(length - 1, -1, -1))


class Copy(Task):
    """Write the sequence again: 3 1 4 1 5 -> 3 1 4 1 5."""

    name, example = "copy", ("3 1 4 1 5", "3 1 4 1 5")

    def answer(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        return sequence_BL, lengths_B

    def alignment(self, length: int) -> list[int]:
        return list(range(length))
