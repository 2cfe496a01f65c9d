"""Datasets from users: packed pairs of a source and a target, and how they were read."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from playground.common.format import format_count
from playground.errors import UserError
from playground.tasks.vocabulary import SPECIAL_TOKENS

MAX_LENGTH = 128  # tokens of a source or a target
MAX_REPORTED_ERRORS = 5  # lines that an error report lists
SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")

TENSOR_DTYPES: dict[str, np.dtype[Any]] = {
    "source": np.dtype("<u2"),
    "target": np.dtype("<u2"),
    "source_lengths": np.dtype("u1"),
    "target_lengths": np.dtype("u1"),
}


class DatasetError(UserError):
    """An invalid dataset; the message contains the lines, the problem and what to do.

    lines     the problems of the first invalid lines, a sentence each; `count` is the number of all
              invalid lines
    columns   the columns that can be selected, if the error is about columns; `configs` and
              `splits` likewise, of a dataset on the Hub
    dataset   the valid pairs, for a preview next to the error
    """

    def __init__(
        self,
        message: str,
        *,
        lines: Sequence[str] = (),
        count: int = 0,
        columns: Sequence[str] = (),
        configs: Sequence[str] = (),
        splits: Sequence[str] = (),
        dataset: PairDataset | None = None,
    ) -> None:
        super().__init__(message)
        self.lines = list(lines)
        self.count = count
        self.columns, self.configs, self.splits = list(columns), list(configs), list(splits)
        self.dataset = dataset


class DatasetNotFoundError(DatasetError):
    """A task's dataset is not stored here; the message names it and how to add it."""


@dataclass(frozen=True)
class ReadReport:
    """How a file was read.

    format, encoding, delimiter, has_names  as in `tables.Table`
    columns     the names of all columns; `selected` are those of sources and targets
    n_skipped   number of unusable rows; `skipped` has the first ones, a sentence each
    normalized  number of pairs that were written in another Unicode form than NFC
    """

    format: str = ""
    encoding: str = ""
    delimiter: str = ""
    has_names: bool | None = None
    columns: Sequence[str] = ()
    selected: Sequence[str] = ()
    n_skipped: int = 0
    skipped: Sequence[str] = ()
    normalized: int = 0


NO_REPORT = ReadReport()


@dataclass(frozen=True)
class PairDataset:
    """Distinct sources, each with its target, as token ids in flat arrays.

    duplicates  number of omitted pairs that were equal to an earlier one
    conflicts   number of omitted pairs whose source had an earlier, different target;
                `conflict_lines` has the first line numbers
    """

    vocabulary: tuple[str, ...]
    source: array[int] = field(repr=False)
    source_lengths: array[int] = field(repr=False)
    target: array[int] = field(repr=False)
    target_lengths: array[int] = field(repr=False)
    duplicates: int = 0
    conflicts: int = 0
    conflict_lines: tuple[int, ...] = ()
    # for data from the Hub: dataset and license
    origin: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    report: ReadReport = field(default=NO_REPORT, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.source_lengths)

    @property
    def n_rows(self) -> int:
        return len(self) + self.duplicates + self.conflicts + self.report.n_skipped

    def describe_skipped(self, state: str) -> str:
        """Return how many rows are in a `state`, such as left out, and why the first ones."""
        n, reasons = self.report.n_skipped, "; ".join(self.report.skipped)
        unlisted = n - len(self.report.skipped)
        more = f"; and {unlisted:,} more" if unlisted else ""
        verb = "is" if n == 1 else "are"
        return f"{n:,} of {format_count(self.n_rows, 'row')} {verb} {state}: {reasons}{more}"

    @cached_property
    def sha256(self) -> str:
        """Return the SHA-256 that identifies the pairs, independent of the file format."""
        return content_sha256(self.vocabulary, self.tensors())

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the token ids and the lengths, by the names of the stored tensors."""
        return {name: np.array(getattr(self, name), TENSOR_DTYPES[name]) for name in TENSOR_DTYPES}

    def preview(self, n: int = 8) -> list[tuple[list[str], list[str]]]:
        """Return the first pairs as symbols, source and target."""
        names, pairs = (*SPECIAL_TOKENS, *self.vocabulary), []
        s = t = 0
        lengths = zip(self.source_lengths, self.target_lengths, strict=True)
        for n_source, n_target in islice(lengths, n):
            source, target = self.source[s : s + n_source], self.target[t : t + n_target]
            pairs.append(([names[each] for each in source], [names[each] for each in target]))
            s, t = s + n_source, t + n_target
        return pairs

    def count_held_out(self) -> int:
        """Return the number of held-out pairs: those of `held_out.is_held_out`, without torch."""
        source = np.array(self.source)
        lengths_N = np.array(self.source_lengths, np.int64)
        starts_N = lengths_N.cumsum() - lengths_N
        hash_ids_V = np.array(symbol_hashes(self.vocabulary)).view(np.uint64)
        keys_L = _splitmix64(np.arange(1, MAX_LENGTH + 1, dtype=np.uint64) * 0x9E3779B97F4A7C15) | 1
        sum_N = np.zeros(len(self), np.uint64)
        for position in range(max(self.source_lengths, default=0)):
            has_symbol_N = lengths_N > position
            symbols = source[starts_N[has_symbol_N] + position]
            sum_N[has_symbol_N] += hash_ids_V[symbols] * keys_L[position]
        return int((_splitmix64(_splitmix64(sum_N)) % 16 == 0).sum())

    def task_settings(self) -> dict[str, Any]:
        return {
            "task": "dataset",
            "dataset_sha256": self.sha256,
            "dataset_symbols": " ".join(self.vocabulary),
            "max_target_length": max(self.target_lengths),
            "min_length": min(self.source_lengths),
            "max_length": max(self.source_lengths),
        }


def content_sha256(vocabulary: Sequence[str], tensors: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of a dataset: its symbols, then its tensors, each after its size."""
    parts = [" ".join(vocabulary).encode()]
    parts += [tensors[name].tobytes() for name in TENSOR_DTYPES]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def symbol_hashes(vocabulary: Sequence[str]) -> list[int]:
    """Return for each token a signed 64-bit number, from which the held-out hash is computed.

    It is the hash of the symbol's text, since the token id depends on the other symbols of the
    dataset. Special tokens have 0.
    """
    digests = (hashlib.sha256(symbol.encode()).digest() for symbol in vocabulary)
    return [0] * len(SPECIAL_TOKENS) + [
        int.from_bytes(digest[:8], "little", signed=True) for digest in digests
    ]


def _splitmix64(x: np.ndarray) -> np.ndarray:
    """Compute what `hashing.splitmix64` does, on uint64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    return x ^ (x >> 27)
