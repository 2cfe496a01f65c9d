"""Datasets from users: pairs of a source and a target, parsed, checked and packed.

This file does not import torch, because forms use it too. Symbols are single characters if no line
contains a space between symbols, else words separated by spaces; the user may choose. The data is
untrusted: sizes are limited, and errors are reported with line numbers.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from playground.common.format import format_count
from playground.errors import UserError
from playground.tasks.vocabulary import SPECIAL_TOKENS

MAX_PAIRS = 1_000_000
MAX_VOCAB_SIZE = 512
MAX_LENGTH = 128  # tokens of a source or a target
MAX_SYMBOL_CHARS = 40  # characters
MAX_FIELD_CHARS = 10_000  # characters
MAX_REPORTED_ERRORS = 5  # lines that an error report lists
MAX_PAIRS_TO_COUNT = 20_000  # up to this many pairs the held-out ones are counted here
RESERVED = {*SPECIAL_TOKENS, *(f"<{name}>" for name in SPECIAL_TOKENS)}
SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

TENSOR_DTYPES: dict[str, np.dtype[Any]] = {
    "source": np.dtype("<u2"),
    "target": np.dtype("<u2"),
    "source_lengths": np.dtype("u1"),
    "target_lengths": np.dtype("u1"),
}

# Yields the number and the fields of each line; every call starts at the first line.
LineSource = Callable[[], Iterable[tuple[int, Sequence[str]]]]


class DatasetError(UserError):
    """An invalid dataset; the message contains the lines, the problem and what to do.

    lines     the problems of the first invalid lines, a sentence each; `count` is the number of all
              invalid lines
    columns   the columns that can be selected, if the error is about columns
    dataset   the valid pairs, for a preview next to the error
    """

    def __init__(
        self,
        message: str,
        *,
        lines: Sequence[str] = (),
        count: int = 0,
        columns: Sequence[str] = (),
        dataset: PairDataset | None = None,
    ) -> None:
        super().__init__(message)
        self.lines = list(lines)
        self.count = count
        self.columns = list(columns)
        self.dataset = dataset


class DatasetNotFoundError(DatasetError):
    """A task's dataset is not stored here; the message names it and how to add it."""


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

    def __len__(self) -> int:
        return len(self.source_lengths)

    @cached_property
    def sha256(self) -> str:
        """Return the SHA-256 that identifies the pairs, independent of the file format."""
        return content_sha256(self.vocabulary, self.tensors())

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the token ids and the lengths, by the names of the stored tensors."""
        return {name: np.array(getattr(self, name), TENSOR_DTYPES[name]) for name in TENSOR_DTYPES}

    def preview(self, n: int = 8) -> list[tuple[list[str], list[str]]]:
        """Return the first pairs as symbols, source and target."""
        return [
            (list(self._decode(self.source, s)), list(self._decode(self.target, t)))
            for s, t in self._spans(n)
        ]

    def count_held_out(self) -> int | None:
        """Return the number of held-out pairs; None if there are too many to count here."""
        if len(self) > MAX_PAIRS_TO_COUNT:
            return None
        hash_ids = symbol_hashes(self.vocabulary)
        return sum(
            _is_held_out_py(map(hash_ids.__getitem__, self.source[begin:end]))
            for (begin, end), _ in self._spans(len(self))
        )

    def task_settings(self) -> dict[str, Any]:
        return {
            "task": "dataset",
            "dataset_sha256": self.sha256,
            "dataset_symbols": " ".join(self.vocabulary),
            "max_target_length": max(self.target_lengths),
            "min_length": min(self.source_lengths),
            "max_length": max(self.source_lengths),
        }

    def summary(self) -> list[str]:
        """Summarize the dataset, a sentence each."""
        n_held_out, size = self.count_held_out(), len(self.vocabulary)
        held_out = (
            "one pair in sixteen is"
            if n_held_out is None
            else f"{format_count(n_held_out, 'pair')} {'is' if n_held_out == 1 else 'are'}"
        )
        messages = [
            f"{format_count(len(self), 'pair')} with {format_count(size, 'different token')}; "
            f"length of the sources: {_format_range(self.source_lengths)}, "
            f"of the targets: {_format_range(self.target_lengths)}",
            f"{held_out} held out, selected by a hash of the source sequence",
        ]
        if self.duplicates:
            was = "was a duplicate and was" if self.duplicates == 1 else "were duplicates and were"
            messages.append(f"{format_count(self.duplicates, 'pair')} {was} left out")
        if self.conflicts:
            where = ", ".join(f"{line:,}" for line in self.conflict_lines)
            lines = "line" if self.conflicts == 1 else "lines"
            more = " and more" if self.conflicts > len(self.conflict_lines) else ""
            messages.append(
                f"{format_count(self.conflicts, 'pair')} had another target than an earlier pair "
                f"with the same source ({lines} {where}{more}); the first target is used"
            )
        return messages

    def _decode(self, tokens: array[int], span: tuple[int, int]) -> Iterable[str]:
        return (self.vocabulary[token - len(SPECIAL_TOKENS)] for token in tokens[slice(*span)])

    def _spans(self, n: int) -> Iterable[tuple[tuple[int, int], tuple[int, int]]]:
        s = t = 0
        for n_source, n_target in zip(
            self.source_lengths[:n], self.target_lengths[:n], strict=True
        ):
            yield (s, s + n_source), (t, t + n_target)
            s, t = s + n_source, t + n_target


def content_sha256(vocabulary: Sequence[str], tensors: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of a dataset: its symbols, then its tensors, each after its size."""
    parts = [" ".join(vocabulary).encode()]
    parts += [tensors[name].tobytes() for name in TENSOR_DTYPES]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def validate_vocabulary(text: str) -> tuple[str, ...]:
    """Parse symbols separated by single spaces.

    Raises:
        DatasetError: for an invalid list of symbols.
    """
    symbols = text.split(" ")
    if not 1 <= len(symbols) <= MAX_VOCAB_SIZE or len(set(symbols)) < len(symbols):
        raise DatasetError(
            f"the vocabulary must be 1 to {MAX_VOCAB_SIZE} different tokens, separated by single "
            f"spaces"
        )
    for symbol in symbols:
        if error := _symbol_error(symbol):
            raise DatasetError(error)
    return tuple(symbols)


def read_pairs(lines: LineSource, split_on_spaces: bool | None = None) -> PairDataset:
    """Check and pack the pairs of a file.

    `split_on_spaces`: True if symbols are words separated by spaces, False if they are single
    characters; None to detect it.

    Raises:
        DatasetError: for invalid lines (all are counted, the first are listed), or if no pair or
            every pair is held out.
    """
    errors = LineErrors()
    has_spaces = False
    total = 0
    for number, fields in lines():
        total += 1
        if total > MAX_PAIRS:
            raise DatasetError(f"there are more than {MAX_PAIRS:,} pairs; leave some out")
        if problem := _line_error(fields):
            errors.add(number, problem)
        else:
            has_spaces = has_spaces or len(fields[0].split()) > 1 or len(fields[1].split()) > 1
    builder = PairBuilder(has_spaces if split_on_spaces is None else split_on_spaces, errors)
    for number, fields in lines():
        if not errors.has(number):
            builder.add(number, fields)
    dataset = builder.build()
    errors.raise_if_any(total, dataset if len(dataset) else None)
    if not len(dataset):
        raise DatasetError("the dataset is empty; write a source and its target on each line")
    n_held_out = dataset.count_held_out()
    if n_held_out in (0, len(dataset)):
        which = (
            f"{'all' if n_held_out else 'none'} of these {len(dataset):,} distinct pairs are "
            "held out"
        )
        if len(dataset) == 1:
            which = f"the only distinct pair is {'' if n_held_out else 'not '}held out"
        raise DatasetError(
            f"{which}, so there is nothing to {'train on' if n_held_out else 'evaluate'}; a hash "
            "of the source holds out one pair in sixteen: add more pairs, at least about 100",
            dataset=dataset,
        )
    return dataset


class LineErrors:
    """Invalid lines: all are counted, and the problems of the first ones are stored."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.messages: list[tuple[int, str]] = []

    def add(self, number: int, problem: str) -> None:
        self.numbers.add(number)
        if len(self.messages) < MAX_REPORTED_ERRORS or number < self.messages[-1][0]:
            self.messages = sorted([*self.messages, (number, f"line {number:,} {problem}")])[
                :MAX_REPORTED_ERRORS
            ]

    def has(self, number: int) -> bool:
        return number in self.numbers

    def raise_if_any(self, total: int, readable: PairDataset | None) -> None:
        if self.numbers:
            more = (
                f"; and {len(self.numbers) - MAX_REPORTED_ERRORS:,} more"
                if len(self.numbers) > MAX_REPORTED_ERRORS
                else ""
            )
            count = f"{len(self.numbers):,} of {format_count(total, 'line')} cannot be used"
            messages = [problem for _, problem in self.messages]
            raise DatasetError(
                f"{count}: {'; '.join(messages)}{more}",
                lines=messages,
                count=len(self.numbers),
                dataset=readable,
            )


class PairBuilder:
    """Collects pairs into arrays.

    Symbols are numbered as they occur, and again at the end, in sorted order.
    """

    def __init__(self, split_on_spaces: bool, errors: LineErrors) -> None:
        self.split_on_spaces, self.errors = split_on_spaces, errors
        self.token_ids: dict[str, int] = {}
        self.source, self.target = array("H"), array("H")
        self.source_lengths, self.target_lengths = array("B"), array("B")
        self.target_hashes: dict[int, int] = {}  # by the hash of the source
        self.duplicates = self.conflicts = 0
        self.conflict_lines: list[int] = []

    def add(self, number: int, fields: Sequence[str]) -> None:
        tokens = []
        for name, text in zip(("source", "target"), fields, strict=True):
            symbols: Sequence[str] = text.split() if self.split_on_spaces else "".join(text.split())
            if len(symbols) > MAX_LENGTH:
                self.errors.add(
                    number, f"has a {name} of {len(symbols):,} tokens, above {MAX_LENGTH}"
                )
                return
            try:
                tokens.append(array("H", map(self.token_ids.__getitem__, symbols)))
            except KeyError:
                if problem := self.add_symbols(number, symbols):
                    self.errors.add(number, f"has an invalid token: {problem}")
                    return
                tokens.append(array("H", map(self.token_ids.__getitem__, symbols)))
        source, target = tokens
        # Two sources with the same 64-bit hash would count as one. With a million pairs that
        # happens in one of 40 million files.
        key, value = hash(source.tobytes()), hash(target.tobytes())
        previous = self.target_hashes.get(key)
        if previous is None:
            self.target_hashes[key] = value
            self.source += source
            self.target += target
            self.source_lengths.append(len(source))
            self.target_lengths.append(len(target))
        elif previous == value:
            self.duplicates += 1
        else:
            self.conflicts += 1
            if len(self.conflict_lines) < MAX_REPORTED_ERRORS:
                self.conflict_lines.append(number)

    def add_symbols(self, number: int, symbols: Sequence[str]) -> str:
        """Number the new symbols; return the problem of an invalid one, if there is any."""
        for symbol in symbols:
            if symbol in self.token_ids:
                continue
            if problem := _symbol_error(symbol):
                return problem
            if len(self.token_ids) == MAX_VOCAB_SIZE:
                other = (
                    "or choose single characters as tokens"
                    if self.split_on_spaces
                    else "or separate words by spaces to use words as tokens"
                )
                raise DatasetError(
                    f"there are more than {MAX_VOCAB_SIZE} different tokens, from line {number:,} "
                    f"on; use fewer, {other}"
                )
            self.token_ids[symbol] = len(self.token_ids)
        return ""

    def build(self) -> PairDataset:
        vocabulary = sorted(self.token_ids)
        sorted_ids = {
            self.token_ids[symbol]: len(SPECIAL_TOKENS) + i for i, symbol in enumerate(vocabulary)
        }
        source, target = (
            array("H", map(sorted_ids.__getitem__, tokens)) for tokens in (self.source, self.target)
        )
        return PairDataset(
            tuple(vocabulary),
            source,
            self.source_lengths,
            target,
            self.target_lengths,
            self.duplicates,
            self.conflicts,
            tuple(self.conflict_lines),
        )


def _line_error(fields: Sequence[str]) -> str:
    """Return the error of a line, independent of its symbols; empty if it is valid."""
    if len(fields) != 2:
        return (
            "has no tab, arrow, comma or two spaces between source and target"
            if len(fields) < 2
            else f"has {len(fields) - 1} separators; one is expected"
        )
    for name, text in zip(("source", "target"), fields, strict=True):
        if (
            text.isascii()
            and text.isprintable()
            and 0 < len(text) <= MAX_FIELD_CHARS
            and not text.isspace()
        ):
            continue  # the usual case
        if len(text) > MAX_FIELD_CHARS:
            return f"has a {name} of {len(text):,} characters, above {MAX_FIELD_CHARS:,}"
        if match := _CONTROL_CHARACTERS.search(text):
            return f"has the control character U+{ord(match[0]):04X}"
        if not text.strip():
            return f"has no {name}"
    return ""


def _symbol_error(symbol: str) -> str:
    """Return why a text cannot be a symbol; empty if it can."""
    if not symbol or len(symbol) > MAX_SYMBOL_CHARS:
        return (
            f"{symbol[:MAX_SYMBOL_CHARS]!r} is the start of a token of {len(symbol):,} "
            f"characters; 1 to {MAX_SYMBOL_CHARS} are accepted"
        )
    if not symbol.isprintable() or len(symbol.split()) != 1:
        return f"{symbol!a} contains a character that cannot be printed"
    return (
        f"{symbol} is the name of a special token; use another token" if symbol in RESERVED else ""
    )


def symbol_hashes(vocabulary: Sequence[str]) -> list[int]:
    """Return for each token a signed 64-bit number, from which the held-out hash is computed.

    It is the hash of the symbol's text, since the token id depends on the other symbols of the
    dataset. Special tokens have 0.
    """
    digests = (hashlib.sha256(symbol.encode()).digest() for symbol in vocabulary)
    return [0] * len(SPECIAL_TOKENS) + [
        int.from_bytes(digest[:8], "little", signed=True) for digest in digests
    ]


def _is_held_out_py(hash_ids: Iterable[int]) -> bool:
    """Return what `held_out.is_held_out` returns, computed without torch."""
    key = sum(
        hash_id * (_splitmix64_py((position + 1) * 0x9E3779B97F4A7C15 % 2**64) | 1)
        for position, hash_id in enumerate(hash_ids)
    )
    return _splitmix64_py(_splitmix64_py(key % 2**64)) % 16 == 0


def _splitmix64_py(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    return x ^ x >> 27


def _format_range(lengths: array[int]) -> str:
    low, high = min(lengths), max(lengths)
    return f"{low} to {high}" if low < high else f"{low}"
