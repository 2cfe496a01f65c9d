"""What the Trainer, evaluation, runs and checkpoints ask of a model.

Shapes: B batch, S source, T target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from playground.models.config import ModelConfig
from playground.models.transformer import AttentionRecord
from playground.tasks.task import Batch


class Family(nn.Module, ABC):
    """A model that knows its loss, its own answers and where it looked, and nothing of runs or pages."""

    config: ModelConfig

    @abstractmethod
    def loss(self, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """The mean loss over the tokens of the rows whose weight is not zero."""

    @abstractmethod
    def solve(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        """The family's own answers (BT), EOS included, PAD behind it, each symbol made from its own earlier ones."""

    @abstractmethod
    def solves(self, batch: Batch) -> Tensor:
        """For each row (B booleans), whether `solve` would give exactly the right answer; may be found a quicker way."""

    @abstractmethod
    def record(self, batch: Batch) -> AttentionRecord:
        """Where the family looks while it reads the batch."""
