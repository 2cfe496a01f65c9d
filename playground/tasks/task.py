"""A task: sequences of symbols and the answer to each.

Shapes: B rows of a batch, L symbols of the longest sequence, S source tokens,
T target tokens (S and T count EOS; targets also SOS).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .about import TASKS, UNLISTED
from .vocabulary import EOS, PAD, SOS, SPECIAL, Vocabulary


class Task:
    """A rule from sequences to sequences. To add one: a subclass with a name and `answer`, and a line in `TASKS` (about.py).

    `answer` works on a whole batch of padded rows at once. The rule "drop the first symbol", as an example:

        class Tail(Task):
            name, example = "tail", ("3 1 4", "1 4")

            def answer(self, sequence_BL, lengths_B):
                return sequence_BL.roll(-1, dims=1), lengths_B - 1
    """

    name: str
    example: tuple[str, str]
    all_kinds: tuple[int, ...] = ()  # every value of `kinds`; empty where the task has none
    enumerable = 200_000  # up to this many sources of a length are listed rather than drawn

    def __init__(self, symbols: int = 10) -> None:
        self.about = TASKS.get(self.name, UNLISTED)
        if self.name in TASKS:
            self.example = self.about.example
        self.symbols = symbols
        self.vocabulary = Vocabulary(self.about.alphabet(symbols))

    def answer(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """The right answer to each row and its length; what stands behind the length in a row is ignored."""
        raise NotImplementedError

    def answer_length(self, length: int) -> int:
        """The longest answer to a sequence of `length` symbols. Where it is longer than the sequence, raise max_positions."""
        return self.about.answer_length(length)

    def alignment(self, length: int) -> list[int] | None:
        """The source position that each answer position depends on, where the rule has just one; else None."""
        return None

    # Which sources there are, and how they are drawn

    def prepare(self, min_length: int, max_length: int) -> None:
        """Make sure that there are sources of these lengths to draw. Raises RowsError where there are none, as rows may be missing."""

    def draw(
        self, n: int, min_length: int, max_length: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """`n` sources and their lengths, on the generator's device: every length equally often, in rows of `max_length` symbols."""
        low = max(min_length, self.about.shortest)
        lengths_B = torch.randint(
            low, max_length + 1, (n,), generator=generator, device=generator.device
        )
        return self.fill(lengths_B, max_length, generator), lengths_B

    def fill(self, lengths_B: Tensor, width: int, generator: torch.Generator) -> Tensor:
        """A source of each length, in rows of `width` symbols: here, every symbol equally often."""
        shape = (len(lengths_B), width)
        return torch.randint(
            len(SPECIAL),
            len(SPECIAL) + self.symbols,
            shape,
            generator=generator,
            device=generator.device,
        )

    def count(self, length: int) -> int:
        """How many distinct sources of this length there are."""
        return self.about.sources(self.symbols, length) if length >= self.about.shortest else 0

    def listed(self, number_N: Tensor, length: int) -> Tensor:
        """The sources of this length with these numbers, of 0 to `count` - 1 (NL)."""
        return number_N[:, None] // self.symbols ** torch.arange(length) % self.symbols + len(
            SPECIAL
        )

    def marks(self, sequence_BL: Tensor) -> Tensor:
        """A number for each symbol (BL, int64), by whose hash a source is held out or not: its token, unless that may change."""
        return sequence_BL

    def kinds(self, sequence_NL: Tensor) -> Tensor | None:
        """The kind of each source of full length, one of `all_kinds`, where scores should rest on every kind alike although some are
        rare; else None."""
        return None

    # One source at a time, as a person types it

    def question(self) -> str:
        """A short source that may be asked: the task's example, where its symbols are there."""
        example = getattr(self, "example", ("", ""))[0]
        return (
            example
            if example and set(example.split()) <= set(self.vocabulary.symbols)
            else self.vocabulary.example()
        )

    def problem(self, tokens: list[int]) -> str:
        """Why these symbols are no question of this task, as a sentence; empty where they are one."""
        return ""

    def right(self, tokens: list[int]) -> list[int] | None:
        """The right answer to one source; None where nobody knows it."""
        answer_BL, lengths_B = self.answer(torch.tensor([tokens]), torch.tensor([len(tokens)]))
        return answer_BL[0, : int(lengths_B[0])].tolist()


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


def make_batch(
    task: Task, sequence_BL: Tensor, lengths_B: Tensor, weight_B: Tensor | None = None
) -> Batch:
    """Sources and targets of the given sequences. Widths depend on L only, never on the data, as a captured graph needs."""
    answer_BL, answer_lengths_B = task.answer(sequence_BL, lengths_B)
    target_BT = torch.nn.functional.pad(
        end_with_eos(answer_BL, answer_lengths_B), (1, 0), value=SOS
    )
    if weight_B is None:
        weight_B = torch.ones(len(sequence_BL), device=sequence_BL.device)
    return Batch(end_with_eos(sequence_BL, lengths_B), target_BT, weight_B)
