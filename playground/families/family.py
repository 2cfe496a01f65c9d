"""What the Trainer, evaluation, runs and checkpoints ask of a model.

Shapes: B batch, S source, T target, Q queries, M memory, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from playground.decoding import looking as looking
from playground.models.config import ModelConfig
from playground.models.transformer import AttentionRecord
from playground.tasks import EOS, PAD, SOS
from playground.tasks.task import Batch


class Family(nn.Module, ABC):
    """A model that knows its loss, its own answers and where it looked, and nothing of runs or pages."""

    config: ModelConfig
    kept = True  # whether its weights may be written down: not those of a lesson's copy with a mistake in it

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
        """Where the family looks while it reads the batch and writes its target. Kinds that it does not have stay empty."""

    @abstractmethod
    def axes(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """For each kind of attention in `record` ("encoder", "decoder", "cross"), the tokens that look (BQ) and those that are
        looked at (BM). Empty for a family that attends to nothing."""


class Taught(Family):
    """A family that scores the tokens of its answer, given the right answer so far where it writes one token after the other."""

    @abstractmethod
    def logits(self, batch: Batch) -> Tensor:
        """What is said for each token of the vocabulary at the place of each label (BTV)."""

    def loss(self, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        return cross_entropy(self.logits(batch), batch, label_smoothing)

    @torch.no_grad()
    def solves(self, batch: Batch) -> Tensor:
        """One pass over the right answer instead of writing one.

        By induction on the prefix: where every token is the most likely one given the right prefix, greedy decoding writes
        that very prefix, and so the same tokens; where some token is not, it leaves the right answer there.
        """
        with looking(self):
            return all_right(self.logits(batch), batch)


def rows_that_fit(
    config: ModelConfig, batch: Batch, first: int = 0, every: int = 1
) -> tuple[Tensor, ...]:
    """Return the row numbers of a batch in parts that a model runs at once without gradients.

    Source and target both count for the size of a row. With `first` and `every`, only row `first`
    and every so many behind it.
    """
    width = config.row_width(batch.source_BS.shape[1], batch.target_BT.shape[1])
    return torch.arange(len(batch.source_BS))[first::every].split(config.rows_at_a_time(width))


def cross_entropy(logits_BTV: Tensor, batch: Batch, label_smoothing: float) -> Tensor:
    """Mean cross-entropy of the labels over the tokens of the rows that train, with label smoothing (Szegedy et al. 2016; section
    5.4 in Vaswani et al. 2017).

    Smoothing gives every token of the vocabulary its share, PAD and SOS too. `evaluation.symbol_loss` leaves PAD out, as The
    Annotated Transformer does."""
    labels_BT = batch.labels_BT
    loss_BT = F.cross_entropy(
        logits_BTV.transpose(1, 2), labels_BT, reduction="none", label_smoothing=label_smoothing
    )
    weight_BT = (labels_BT != PAD) * batch.weight_B[:, None]
    return (loss_BT * weight_BT).sum() / weight_BT.sum().clamp(min=1)


def all_right(logits_BTV: Tensor, batch: Batch) -> Tensor:
    """For each row (B booleans), whether the most likely token is the right one at every place."""
    return ((logits_BTV.argmax(-1) == batch.labels_BT) | (batch.labels_BT == PAD)).all(1)


def check_room(config: ModelConfig, source_BS: Tensor, max_tokens: int) -> None:
    """Raises ValueError for sources or answers longer than the model has positions for."""
    if source_BS.shape[1] > config.max_positions:
        raise ValueError(
            f"a source has {source_BS.shape[1]} tokens, but the model has max_positions {config.max_positions}"
        )
    if max_tokens > config.max_positions:
        raise ValueError(
            f"max_tokens is {max_tokens}, but the model has max_positions {config.max_positions}"
        )


def written(next_token: Callable[[Tensor], Tensor], source_BS: Tensor, max_tokens: int) -> Tensor:
    """Answers (BT) token by token: `next_token` is given SOS and what was written so far, and scores (BV) what comes next."""
    given_BT = torch.full_like(source_BS[:, :1], SOS)
    ended_B = torch.zeros_like(source_BS[:, 0], dtype=torch.bool)
    for t in range(max_tokens):
        token_B = next_token(given_BT).argmax(-1).masked_fill(ended_B, PAD)
        given_BT = torch.cat([given_BT, token_B[:, None]], dim=1)
        ended_B |= token_B == EOS
        if t % 4 == 3 and bool(
            ended_B.all()
        ):  # asking at every token would make a GPU wait for each
            break
    return F.pad(given_BT[:, 1:], (0, max_tokens + 1 - given_BT.shape[1]), value=PAD)
