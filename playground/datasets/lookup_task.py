"""The task of a user's dataset: its pairs give sources and targets.

Pairs stay packed in memory; only those of a batch are padded. As in the built-in tasks, a hash of
the source decides whether it is held out. Here it hashes the text of the symbols, so a source is on
the same side of the split in every dataset.
"""

from functools import cached_property

import torch
from torch import Tensor

from playground.tasks.hashing import sequence_hash
from playground.tasks.held_out import is_held_out
from playground.tasks.task import Task
from playground.tasks.vocabulary import Vocabulary

from .pairs import DatasetError, symbol_hashes
from .storage import load_tensors

HASH_CHUNK = 100_000  # pairs that are padded together while all are hashed


class PairTable:
    """Pairs as tensors: all tokens, the start of each sequence, and its length."""

    def __init__(self, sha256: str, vocabulary: tuple[str, ...]) -> None:
        tensors = load_tensors(sha256, vocabulary)
        # Token ids are below 2**15, and torch has few operations on unsigned integers.
        self.source = torch.from_numpy(tensors["source"].astype("int16"))
        self.target = torch.from_numpy(tensors["target"].astype("int16"))
        self.source_lengths_N = torch.from_numpy(tensors["source_lengths"]).long()
        self.target_lengths_N = torch.from_numpy(tensors["target_lengths"]).long()
        self.source_starts_N = self.source_lengths_N.cumsum(0) - self.source_lengths_N
        self.target_starts_N = self.target_lengths_N.cumsum(0) - self.target_lengths_N
        hash_ids_V = torch.tensor(symbol_hashes(vocabulary))
        hashes, is_held_out_parts = [], []
        for row_B in torch.arange(len(self)).split(HASH_CHUNK):
            source_BL, lengths_B = self.sources(row_B), self.source_lengths_N[row_B]
            hashes.append(sequence_hash(source_BL, lengths_B))
            is_held_out_parts.append(is_held_out(hash_ids_V[source_BL], lengths_B))
        self.held_out_N = torch.cat(is_held_out_parts)
        self.hash_N, self.by_hash_N = torch.cat(hashes).sort()

    def __len__(self) -> int:
        return len(self.source_lengths_N)

    def sources(self, index_B: Tensor, width: int | None = None) -> Tensor:
        return _pad_packed(
            self.source, self.source_starts_N[index_B], self.source_lengths_N[index_B], width
        )

    def targets(self, index_B: Tensor, width: int | None = None) -> Tensor:
        return _pad_packed(
            self.target, self.target_starts_N[index_B], self.target_lengths_N[index_B], width
        )

    def lookup(self, sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the index of each source's pair; -1 for a source that is not in the dataset."""
        hash_B = sequence_hash(sequence_BL, lengths_B)
        position_B = torch.searchsorted(self.hash_N, hash_B).clamp(max=len(self) - 1)
        return torch.where(self.hash_N[position_B] == hash_B, self.by_hash_N[position_B], -1)


class LookupTask(Task):
    """Give each source the target of its pair."""

    name = "dataset"
    max_enumerated = 10**12  # held-out pairs are always listed, never sampled

    def __init__(self, sha256: str, vocabulary: tuple[str, ...], max_target_symbols: int) -> None:
        super().__init__()
        self.sha256, self.max_target_symbols = sha256, max_target_symbols
        self.vocabulary = Vocabulary(
            vocabulary if any(len(symbol) > 1 for symbol in vocabulary) else "".join(vocabulary)
        )
        self._hash_ids_V = torch.tensor(symbol_hashes(vocabulary))
        self._training: dict[tuple[int, int], Tensor] = {}
        self._of_length: dict[int, Tensor] = {}

    @cached_property
    def table(self) -> PairTable:
        """Return the pairs. Raises DatasetError if they are not here or damaged."""
        return PairTable(self.sha256, tuple(self.vocabulary.symbols))

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the targets of these sources; a target of length 0 for unknown sources."""
        row_B = self.table.lookup(sequence_BL.cpu(), lengths_B.cpu())
        target_BL = self.table.targets(row_B.clamp(min=0), self.max_target_symbols)
        answer_lengths_B = torch.where(row_B >= 0, self.table.target_lengths_N[row_B], 0)
        return target_BL.to(sequence_BL.device), answer_lengths_B.to(sequence_BL.device)

    def max_target_length(self, length: int) -> int:
        return self.max_target_symbols

    def check_lengths(self, min_length: int, max_length: int) -> None:
        """Find the training pairs of these lengths. Raises DatasetError if there are none."""
        lengths_N, held_N = self.table.source_lengths_N, self.table.held_out_N
        in_range_N = (lengths_N >= min_length) & (lengths_N <= max_length)
        train_N = (in_range_N & ~held_N).nonzero()[:, 0]
        if not len(train_N) or not bool((in_range_N & held_N).any()):
            raise DatasetError(
                f"lengths {min_length} to {max_length} have {len(train_N):,} training pairs and "
                f"{int((in_range_N & held_N).sum()):,} held-out pairs; both are needed, so allow "
                "more lengths"
            )
        self._training[min_length, max_length] = train_N

    def sample(
        self, n: int, min_length: int, max_length: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Sample `n` training pairs, each with equal probability."""
        if (min_length, max_length) not in self._training:
            self.check_lengths(min_length, max_length)
        train_N = self._training[min_length, max_length]
        device = generator.device
        index_B = torch.randint(len(train_N), (n,), generator=generator, device=device)
        row_B = train_N[index_B.cpu()]
        source_BL = self.table.sources(row_B, max_length)
        return source_BL.to(device), self.table.source_lengths_N[row_B].to(device)

    def num_sources(self, length: int) -> int:
        return len(self._indices_of_length(length))

    def enumerate_sources(self, index_N: Tensor, length: int) -> Tensor:
        return self.table.sources(self._indices_of_length(length)[index_N], length)

    def hash_ids(self, sequence_BL: Tensor) -> Tensor:
        return self._hash_ids_V.to(sequence_BL.device)[sequence_BL]

    def example_source(self) -> str:
        """Return a held-out source of median length; any source if the dataset is not here."""
        try:
            held_out_N = self.table.held_out_N.nonzero()[:, 0]
        except DatasetError:
            held_out_N = torch.empty(0)
        if not len(held_out_N):
            return super().example_source()
        by_length_N = held_out_N[self.table.source_lengths_N[held_out_N].argsort(stable=True)]
        median = by_length_N[(len(by_length_N) - 1) // 2]
        return " ".join(self.vocabulary.decode(self.table.sources(median[None])[0].tolist()))

    def target_for(self, tokens: list[int]) -> list[int] | None:
        """Return the target of this source; None if it is unknown or there is no dataset."""
        try:
            return super().target_for(tokens) or None  # an unknown source has no symbols
        except DatasetError:
            return None

    def _indices_of_length(self, length: int) -> Tensor:
        if length not in self._of_length:
            self._of_length[length] = (self.table.source_lengths_N == length).nonzero()[:, 0]
        return self._of_length[length]


def _pad_packed(tokens: Tensor, starts_B: Tensor, lengths_B: Tensor, width: int | None) -> Tensor:
    """Return padded sequences (BL) of `width` tokens, by default the length of the longest."""
    column_L = torch.arange(int(lengths_B.max()) if width is None else width)
    index_BL = (starts_B[:, None] + column_L).clamp(max=len(tokens) - 1)
    return torch.where(column_L < lengths_B[:, None], tokens[index_BL].long(), 0)
