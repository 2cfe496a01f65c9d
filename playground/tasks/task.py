"""A task: sequences of symbols and the answer to each.

Shapes: B rows of a batch, L symbols of the longest sequence, S source tokens,
T target tokens (S and T count EOS; targets also SOS).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .vocabulary import ALPHABET, EOS, PAD, SOS, Vocabulary


class Task:
    """A rule from sequences to sequences. To add one: a subclass with a name and `answer`, and a line in `TASKS`.

    `answer` works on a whole batch of padded rows at once. The rule "drop the first symbol", as an example:

        class Tail(Task):
            name, example = "tail", ("3 1 4", "1 4")

            def answer(self, sequence_BL, lengths_B):
                return sequence_BL.roll(-1, dims=1), lengths_B - 1
    """

    name: str
    example: tuple[str, str]

    def __init__(self, symbols: int = 10) -> None:
        self.vocabulary = Vocabulary(ALPHABET[:symbols])

    def answer(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """The right answer to each row and its length; what stands behind the length in a row is ignored."""
        raise NotImplementedError

    def answer_length(self, length: int) -> int:
        """The longest answer to a sequence of `length` symbols. Where it is longer than the sequence, raise max_positions."""
        return length

    def alignment(self, length: int) -> list[int] | None:
        """The source position that each answer position depends on, where the rule has just one; else None."""
        return None


@dataclass(frozen=True)
class Batch:
    """Rows ready for a model, padded with PAD.

    source_BS   the sequence and EOS
    target_BT   SOS, the answer and EOS
    weight_B    1.0 for rows that train, 0.0 for rows that belong to the held-out set
    """

    source_BS: Tensor
    target_BT: Tensor
    weight_B: Tensor

    @property
    def decoder_input_BT(self) -> Tensor:
        """The target shifted right: what the decoder has written so far."""
        return self.target_BT[:, :-1]

    @property
    def labels_BT(self) -> Tensor:
        """What the decoder should write next."""
        return self.target_BT[:, 1:]

    def rows(self, pick: Tensor) -> Batch:
        """Some of the rows: a boolean mask or row numbers."""
        return Batch(self.source_BS[pick], self.target_BT[pick], self.weight_B[pick])

    def to(self, device: torch.device) -> Batch:
        return Batch(self.source_BS.to(device), self.target_BT.to(device), self.weight_B.to(device))


def end_with_eos(sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
    """Rows one token wider: the symbols, EOS right behind them, PAD behind that."""
    column_W = torch.arange(sequence_BL.shape[1] + 1, device=sequence_BL.device)
    lengths_B1 = lengths_B[:, None]
    wider_BW = torch.nn.functional.pad(sequence_BL, (0, 1))
    ended_BW = torch.where(column_W == lengths_B1, EOS, wider_BW)
    return torch.where(column_W > lengths_B1, PAD, ended_BW)


def make_batch(task: Task, sequence_BL: Tensor, lengths_B: Tensor, weight_B: Tensor | None = None) -> Batch:
    """Sources and targets of the given sequences. Widths depend on L only, never on the data, as a captured graph needs."""
    answer_BL, answer_lengths_B = task.answer(sequence_BL, lengths_B)
    target_BT = torch.nn.functional.pad(end_with_eos(answer_BL, answer_lengths_B), (1, 0), value=SOS)
    if weight_B is None:
        weight_B = torch.ones(len(sequence_BL), device=sequence_BL.device)
    return Batch(end_with_eos(sequence_BL, lengths_B), target_BT, weight_B)
