"""A running average of the weights, which scores better than the weights of the last step."""

import copy

import torch
from torch import Tensor

from playground.architectures.base import Seq2SeqModel

ETA = 4  # larger values forget early weights sooner


def averaging_rate(step: int) -> float:
    """Return the rate of the weights after update `step` (1 is the first) in the average.

    It is polynomial-decay averaging (Shamir and Zhang 2013, section 4). The first rate is 1, so
    the initial weights do not count.
    """
    return (1 + ETA) / (step + ETA)


class WeightAverage:
    """The average of the weights of a model in training; `model` is a copy with these weights."""

    def __init__(self, trained: Seq2SeqModel) -> None:
        self.model = copy.deepcopy(trained).requires_grad_(False)
        self._weights: list[Tensor] = list(self.model.parameters())
        self._trained: list[Tensor] = list(trained.parameters())

    @torch.no_grad()
    def update(self, rate: float) -> None:
        """Move the average towards the present weights by `rate`, a fraction of the distance."""
        distances = torch._foreach_sub(self._trained, self._weights)
        torch._foreach_mul_(distances, rate)
        torch._foreach_add_(self._weights, distances)
