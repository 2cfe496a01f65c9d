"""The task of a user's dataset: its pairs give sources and targets.

Pairs stay packed in memory; only those of a batch are padded. The same hash decides here which
sources are held out. It uses the text of the symbols, so a source is on the same side in every
dataset, whatever other symbols the dataset has.
"""

from __future__ import annotations

from functools import cached_property

import safetensors.torch
import torch
from torch import Tensor

from .hashing import sequence_hash
from .held_out import is_held_out
from .rows import PARTS, RowsError, content_of, marks_of, rows_file
from .task import Task
from .vocabulary import Vocabulary

AT_ONCE = 100_000  # pairs that are padded together while all are hashed


class Table:
    """Pairs as tensors: all tokens, the start of each sequence, and its length."""

    def __init__(self, content: str, vocabulary: tuple[str, ...]) -> None:
        path = rows_file(content)
        try:
            parts = safetensors.torch.load_file(path)
            if content_of(vocabulary, [parts[name].numpy().tobytes() for name in PARTS]) != content:
                raise ValueError("its SHA-256 is not the one it was stored under")
        except (
            safetensors.SafetensorError,
            OSError,
            ValueError,
            KeyError,
            TypeError,
            RuntimeError,
        ) as error:
            raise RowsError(
                f"{path} is damaged ({error}); remove its folder and add the dataset again"
            ) from None
        self.source, self.target = (parts[name].view(torch.int16) for name in ("source", "target"))
        self.source_lengths_N, self.target_lengths_N = (
            parts[f"{name}_lengths"].long() for name in ("source", "target")
        )
        self.source_begins_N = self.source_lengths_N.cumsum(0) - self.source_lengths_N
        self.target_begins_N = self.target_lengths_N.cumsum(0) - self.target_lengths_N
        marks_V = torch.tensor(marks_of(vocabulary))
        hashes, held = [], []
        for row_B in torch.arange(len(self)).split(AT_ONCE):
            source_BL, lengths_B = self.sources(row_B), self.source_lengths_N[row_B]
            hashes.append(sequence_hash(source_BL, lengths_B))
            held.append(is_held_out(marks_V[source_BL], lengths_B))
        self.held_out_N = torch.cat(held)
        self.hash_N, self.by_hash_N = torch.cat(hashes).sort()

    def __len__(self) -> int:
        return len(self.source_lengths_N)

    def sources(self, row_B: Tensor, width: int | None = None) -> Tensor:
        return _unpacked(
            self.source, self.source_begins_N[row_B], self.source_lengths_N[row_B], width
        )

    def targets(self, row_B: Tensor, width: int | None = None) -> Tensor:
        return _unpacked(
            self.target, self.target_begins_N[row_B], self.target_lengths_N[row_B], width
        )

    def find(self, sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the index of each source's pair; -1 for a source that is not in the dataset."""
        hash_B = sequence_hash(sequence_BL, lengths_B)
        place_B = torch.searchsorted(self.hash_N, hash_B).clamp(max=len(self) - 1)
        return torch.where(self.hash_N[place_B] == hash_B, self.by_hash_N[place_B], -1)

    def of_length(self, length: int) -> Tensor:
        """Return the indices of the pairs whose source has this length."""
        return (self.source_lengths_N == length).nonzero()[:, 0]


class RowsTask(Task):
    """Give each source the target of its pair."""

    name = "rows"
    enumerable = 10**12  # held-out pairs are always listed, never sampled

    def __init__(self, content: str, vocabulary: tuple[str, ...], longest_answer: int) -> None:
        super().__init__()
        self.content, self.longest_answer = content, longest_answer
        self.vocabulary = Vocabulary(
            vocabulary if any(len(symbol) > 1 for symbol in vocabulary) else "".join(vocabulary)
        )
        self._marks_V = torch.tensor(marks_of(vocabulary))
        self._training: dict[tuple[int, int], Tensor] = {}
        self._of_length: dict[int, Tensor] = {}

    @cached_property
    def table(self) -> Table:
        """Return the pairs.

        Raises:
            MissingRows: if the dataset is not stored here.
            RowsError: if it is damaged.
        """
        return Table(self.content, tuple(self.vocabulary.symbols))

    def answer(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the targets of these sources; a target of length 0 for unknown sources."""
        row_B = self.table.find(sequence_BL.cpu(), lengths_B.cpu())
        target_BL = self.table.targets(row_B.clamp(min=0), self.longest_answer)
        answer_lengths_B = torch.where(row_B >= 0, self.table.target_lengths_N[row_B], 0)
        return target_BL.to(sequence_BL.device), answer_lengths_B.to(sequence_BL.device)

    def answer_length(self, length: int) -> int:
        return self.longest_answer

    def prepare(self, min_length: int, max_length: int) -> None:
        """Find the training pairs of these lengths.

        Raises:
            MissingRows: if the dataset is not stored here.
            RowsError: if it is damaged, or has no training or no held-out pairs of these lengths.
        """
        lengths_N, held_N = self.table.source_lengths_N, self.table.held_out_N
        asked_N = (lengths_N >= min_length) & (lengths_N <= max_length)
        train_N = (asked_N & ~held_N).nonzero()[:, 0]
        if not len(train_N) or not bool((asked_N & held_N).any()):
            raise RowsError(
                f"lengths {min_length} to {max_length} have {len(train_N):,} training pairs and "
                f"{int((asked_N & held_N).sum()):,} held-out pairs; both are needed, so allow more "
                f"lengths"
            )
        self._training[min_length, max_length] = train_N

    def draw(
        self, n: int, min_length: int, max_length: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Sample `n` training pairs, each with equal probability."""
        if (min_length, max_length) not in self._training:
            self.prepare(min_length, max_length)
        train_N = self._training[min_length, max_length]
        row_B = train_N[
            torch.randint(len(train_N), (n,), generator=generator, device=generator.device).cpu()
        ]
        source_BL = self.table.sources(row_B, max_length)
        return source_BL.to(generator.device), self.table.source_lengths_N[row_B].to(
            generator.device
        )

    def count(self, length: int) -> int:
        return len(self._rows_of(length))

    def listed(self, number_N: Tensor, length: int) -> Tensor:
        return self.table.sources(self._rows_of(length)[number_N], length)

    def marks(self, sequence_BL: Tensor) -> Tensor:
        return self._marks_V.to(sequence_BL.device)[sequence_BL]

    def question(self) -> str:
        """Return the first source; an arbitrary one if the dataset is not stored here."""
        try:
            return " ".join(
                self.vocabulary.decode(self.table.sources(torch.tensor([0]))[0].tolist())
            )
        except RowsError:
            return super().question()

    def right(self, tokens: list[int]) -> list[int] | None:
        """Return the target of this source; None if it is unknown or there is no dataset."""
        try:
            known = (
                int(self.table.find(torch.tensor([tokens]), torch.tensor([len(tokens)]))[0]) >= 0
            )
        except RowsError:
            return None
        return super().right(tokens) if known else None

    def _rows_of(self, length: int) -> Tensor:
        if length not in self._of_length:
            self._of_length[length] = self.table.of_length(length)
        return self._of_length[length]


def _unpacked(tokens: Tensor, begins_B: Tensor, lengths_B: Tensor, width: int | None) -> Tensor:
    """Return padded sequences (BL) of `width` tokens, by default the length of the longest."""
    column_L = torch.arange(int(lengths_B.max()) if width is None else width)
    place_BL = (begins_B[:, None] + column_L).clamp(max=len(tokens) - 1)
    return torch.where(column_L < lengths_B[:, None], tokens[place_BL].long(), 0)
