"""Datasets from users: pairs of a source and a target, read, checked and packed.

This file does not import torch, because forms use it too. Symbols are single characters if no line
contains a space between symbols, else words separated by spaces; the user may choose. The data is
untrusted: sizes are limited, and errors are reported with line numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from playground import CHECKPOINTS_DIR

from .vocabulary import SPECIAL

MOST_ROWS = 1_000_000
MOST_SYMBOLS = 512
LONGEST_ROW = 128  # symbols of a source or a target
LONGEST_SYMBOL = 40  # characters
LONGEST_FIELD = 10_000  # characters
NAMED = 5  # lines that an error report lists
COUNTED = 20_000  # up to this many pairs the held-out ones are counted here
RESERVED = {*SPECIAL, *(f"<{name}>" for name in SPECIAL)}
CONTENT = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FILE, _ABOUT = "rows.safetensors", "rows.json"

# Yields the number and the fields of each line; every call starts at the first line.
Lines = Callable[[], Iterable[tuple[int, Sequence[str]]]]


class RowsError(ValueError):
    """An invalid dataset; the message contains the lines, the problem and what to do.

    lines     the problems of the first invalid lines, a sentence each; `count` is the number of all
              invalid lines
    columns   the columns that can be selected, if the error is about columns
    rows      the valid pairs, for a preview next to the error
    """

    def __init__(
        self,
        message: str,
        *,
        lines: Sequence[str] = (),
        count: int = 0,
        columns: Sequence[str] = (),
        rows: Rows | None = None,
    ) -> None:
        super().__init__(message)
        self.lines, self.count, self.columns, self.rows = list(lines), count, list(columns), rows


class MissingRows(RowsError):
    """A task's dataset is not stored here; the message says which one and how to add it."""


@dataclass(frozen=True)
class Rows:
    """Distinct sources, each with its target, as token ids in flat arrays.

    duplicates       number of omitted pairs that were equal to an earlier one
    contradictions   number of omitted pairs whose source had an earlier, different target;
                     `contradicted` has the first line numbers
    """

    vocabulary: tuple[str, ...]
    source: array[int] = field(repr=False)
    source_lengths: array[int] = field(repr=False)
    target: array[int] = field(repr=False)
    target_lengths: array[int] = field(repr=False)
    duplicates: int = 0
    contradictions: int = 0
    contradicted: tuple[int, ...] = ()
    # for data from the Hub: dataset and license
    origin: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.source_lengths)

    @cached_property
    def content(self) -> str:
        """Return the SHA-256 that identifies the pairs, whatever the format of their file."""
        return content_of(self.vocabulary, [self._bytes(name) for name in PARTS])

    def preview(self, n: int = 8) -> list[tuple[list[str], list[str]]]:
        """Return the first pairs as symbols, source and target."""
        return [
            (list(self._symbols(self.source, s)), list(self._symbols(self.target, t)))
            for s, t in self._places(n)
        ]

    def held_out(self) -> int | None:
        """Return the number of held-out pairs; None if there are too many to count here."""
        if len(self) > COUNTED:
            return None
        marks = marks_of(self.vocabulary)
        return sum(
            _is_held_out(map(marks.__getitem__, self.source[begin:end]))
            for (begin, end), _ in self._places(len(self))
        )

    def settings(self) -> dict[str, Any]:
        """Return the settings of a run on this dataset."""
        return {
            "task": "rows",
            "rows": self.content,
            "vocabulary": " ".join(self.vocabulary),
            "longest_answer": max(self.target_lengths),
            "min_length": min(self.source_lengths),
            "max_length": max(self.source_lengths),
        }

    def files(self) -> dict[str, bytes]:
        """Return the files that store the dataset."""
        about = {
            "rows": len(self),
            "vocabulary": list(self.vocabulary),
            "longest_source": max(self.source_lengths),
            "longest_target": max(self.target_lengths),
            "duplicates": self.duplicates,
            "contradictions": self.contradictions,
        } | ({"origin": self.origin} if self.origin else {})
        return {
            _FILE: _packed({name: self._bytes(name) for name in PARTS}),
            _ABOUT: json.dumps(about, indent=1).encode() + b"\n",
        }

    def in_words(self) -> list[str]:
        """Summarize the dataset, a sentence each."""
        held, size = self.held_out(), len(self.vocabulary)
        told = [
            f"{len(self):,} pairs with {size} different symbols; sources have "
            f"{_span(self.source_lengths)} symbols, targets {_span(self.target_lengths)}",
            f"{_count(held, 'pair')} {'is' if held == 1 else 'are'} held out, chosen by a hash of "
            "the source"
            if held is not None
            else "one pair in sixteen is held out, chosen by a hash of the source",
        ]
        if self.duplicates:
            was = "was a duplicate and was" if self.duplicates == 1 else "were duplicates and were"
            told.append(f"{_count(self.duplicates, 'pair')} {was} left out")
        if self.contradictions:
            where = ", ".join(f"{line:,}" for line in self.contradicted)
            more = " and more" if self.contradictions > len(self.contradicted) else ""
            told.append(
                f"{_count(self.contradictions, 'pair')} had another target than an earlier pair "
                f"with the same source (line {where}{more}); the first target is used"
            )
        return told

    def _bytes(self, name: str) -> bytes:
        values = array(getattr(self, name).typecode, getattr(self, name))
        if sys.byteorder == "big":
            values.byteswap()
        return values.tobytes()

    def _symbols(self, tokens: array[int], place: tuple[int, int]) -> Iterable[str]:
        return (self.vocabulary[token - len(SPECIAL)] for token in tokens[slice(*place)])

    def _places(self, n: int) -> Iterable[tuple[tuple[int, int], tuple[int, int]]]:
        s = t = 0
        for source, target in zip(self.source_lengths[:n], self.target_lengths[:n], strict=True):
            yield (s, s + source), (t, t + target)
            s, t = s + source, t + target


PARTS = {  # with their types in the safetensors format
    "source": "U16",
    "target": "U16",
    "source_lengths": "U8",
    "target_lengths": "U8",
}


def content_of(vocabulary: Sequence[str], parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of a dataset: its symbols, then its tensors, each after its size."""
    digest = hashlib.sha256()
    for part in (" ".join(vocabulary).encode(), *parts):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _packed(parts: dict[str, bytes]) -> bytes:
    """Build a safetensors file: the size of the header, the header as JSON, the tensors.

    It is written here, because the writers of the library need torch.
    """
    header: dict[str, Any] = {}
    end = 0
    for name, data in parts.items():
        size = len(data) // (2 if PARTS[name] == "U16" else 1)
        header[name] = {
            "dtype": PARTS[name],
            "shape": [size],
            "data_offsets": [end, end + len(data)],
        }
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts.values()])


def rows_root() -> Path:
    """Return the folder of datasets on this machine, inside the folder of checkpoints."""
    return Path(os.environ.get("PLAYGROUND_CHECKPOINTS", CHECKPOINTS_DIR)) / "rows"


def rows_file(content: str) -> Path:
    """Return the file of the dataset with this SHA-256.

    Raises:
        MissingRows: if it is not stored here.
    """
    path = rows_root() / content / _FILE
    if not CONTENT.fullmatch(content) or not path.is_file():
        raise MissingRows(
            f"the dataset of this task ({content[:12]}…) is not stored here; add it with "
            "`python -m playground rows FILE`, which recognizes the same data by its SHA-256"
        )
    return path


def kept_rows(content: str) -> Rows:
    """Load the dataset with this SHA-256.

    Raises:
        MissingRows: if it is not stored here.
        RowsError: if the stored files are damaged.
    """
    path = rows_file(content)
    try:
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            parts = {name: array("H" if kind == "U16" else "B") for name, kind in PARTS.items()}
            for name, values in parts.items():
                values.frombytes(
                    file.read(header[name]["data_offsets"][1] - header[name]["data_offsets"][0])
                )
                if sys.byteorder == "big":
                    values.byteswap()
        vocabulary = tuple(kept_about(content)["vocabulary"])
        rows = Rows(
            vocabulary,
            parts["source"],
            parts["source_lengths"],
            parts["target"],
            parts["target_lengths"],
        )
        if rows.content != content:
            raise ValueError("its SHA-256 is not the one it was stored under")
    except (OSError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
        raise RowsError(
            f"the dataset {content[:12]}… is damaged ({error}); remove it and add it again"
        ) from None
    return rows


def kept_about(content: str) -> dict[str, Any]:
    """Load the metadata of a dataset: `rows`, `vocabulary`, `longest_source` and more.

    Raises:
        MissingRows: if the dataset is not stored here.
        RowsError: if the stored files are damaged.
    """
    path = rows_file(content).with_name(_ABOUT)
    try:
        about = json.loads(path.read_bytes())
        check_vocabulary(" ".join(about["vocabulary"]))
        if not all(
            type(about[name]) is int and about[name] > 0
            for name in ("rows", "longest_source", "longest_target")
        ):
            raise ValueError("its counts must be positive whole numbers")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RowsError(
            f"{path.parent.name[:12]}…/{_ABOUT} is damaged ({error}); remove its folder and add "
            f"the dataset again"
        ) from None
    return dict(about)


def origin_of(content: str) -> dict[str, str]:
    """Return the `dataset` on the Hub that the pairs come from, and its `license` if it has one.

    The result is empty if the origin is unknown.
    """
    try:
        origin = kept_about(content).get("origin")
    except RowsError:
        return {}
    if not isinstance(origin, dict) or not re.fullmatch(
        r"\w[\w.-]*/\w[\w.-]*", str(origin.get("dataset")), re.ASCII
    ):
        return {}
    named = str(origin.get("license") or "")
    return {
        "dataset": str(origin["dataset"]),
        "license": named if re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,39}", named) else "",
    }


def check_vocabulary(text: str) -> tuple[str, ...]:
    """Parse symbols separated by single spaces.

    Raises:
        RowsError: for an invalid list of symbols.
    """
    symbols = text.split(" ")
    if not 1 <= len(symbols) <= MOST_SYMBOLS or len(set(symbols)) < len(symbols):
        raise RowsError(
            f"the vocabulary must be 1 to {MOST_SYMBOLS} different symbols, separated by single "
            f"spaces"
        )
    for symbol in symbols:
        if problem := _problem_of_symbol(symbol):
            raise RowsError(problem)
    return tuple(symbols)


def read_rows(lines: Lines, words: bool | None = None) -> Rows:
    """Check and pack the pairs of a file.

    `words`: True if symbols are words separated by spaces, False if they are single characters;
    None to detect it.

    Raises:
        RowsError: for invalid lines (all are counted, the first are listed), or if either no pair
            or every pair is held out.
    """
    bad = _Bad()
    spaced = False
    total = 0
    for number, fields in lines():
        total += 1
        if total > MOST_ROWS:
            raise RowsError(f"there are more than {MOST_ROWS:,} pairs; leave some out")
        if problem := _problem_of_line(fields):
            bad.add(number, problem)
        else:
            spaced = spaced or len(fields[0].split()) > 1 or len(fields[1].split()) > 1
    packed = _Packed(spaced if words is None else words, bad)
    for number, fields in lines():
        if not bad.has(number):
            packed.add(number, fields)
    rows = packed.rows()
    bad.refuse(total, rows if len(rows) else None)
    if not len(rows):
        raise RowsError("the dataset is empty; write a source and its target on each line")
    held = rows.held_out()
    if held in (0, len(rows)):
        which = f"{'all' if held else 'none'} of these {len(rows):,} distinct pairs are held out"
        if len(rows) == 1:
            which = f"the only distinct pair is {'' if held else 'not '}held out"
        raise RowsError(
            f"{which}, so there is nothing to {'train on' if held else 'evaluate'}; a hash of the "
            "source holds out one pair in sixteen: add more pairs, at least about 100",
            rows=rows,
        )
    return rows


class _Bad:
    """Invalid lines: all are counted, and the problems of the first ones are stored."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.told: list[tuple[int, str]] = []

    def add(self, number: int, problem: str) -> None:
        self.numbers.add(number)
        if len(self.told) < NAMED or number < self.told[-1][0]:
            self.told = sorted([*self.told, (number, f"line {number:,} {problem}")])[:NAMED]

    def has(self, number: int) -> bool:
        return number in self.numbers

    def refuse(self, total: int, readable: Rows | None) -> None:
        if self.numbers:
            more = f"; and {len(self.numbers) - NAMED:,} more" if len(self.numbers) > NAMED else ""
            count = f"{len(self.numbers):,} of {_count(total, 'line')} cannot be used"
            told = [problem for _, problem in self.told]
            raise RowsError(
                f"{count}: {'; '.join(told)}{more}",
                lines=told,
                count=len(self.numbers),
                rows=readable,
            )


class _Packed:
    """Collects pairs into arrays.

    Symbols are numbered as they occur, and again at the end, in sorted order.
    """

    def __init__(self, words: bool, bad: _Bad) -> None:
        self.words, self.bad = words, bad
        self.numbers: dict[str, int] = {}
        self.source, self.target = array("H"), array("H")
        self.source_lengths, self.target_lengths = array("B"), array("B")
        self.targets: dict[int, int] = {}  # by the hash of the source, that of its target
        self.duplicates = self.contradictions = 0
        self.contradicted: list[int] = []

    def add(self, number: int, fields: Sequence[str]) -> None:
        tokens = []
        for name, text in zip(("source", "target"), fields, strict=True):
            symbols: Sequence[str] = text.split() if self.words else "".join(text.split())
            if len(symbols) > LONGEST_ROW:
                self.bad.add(
                    number, f"has a {name} of {len(symbols):,} symbols, above {LONGEST_ROW}"
                )
                return
            try:
                tokens.append(array("H", map(self.numbers.__getitem__, symbols)))
            except KeyError:
                if problem := self.learn(number, symbols):
                    self.bad.add(number, f"has an invalid symbol: {problem}")
                    return
                tokens.append(array("H", map(self.numbers.__getitem__, symbols)))
        source, target = tokens
        # Two sources with the same 64-bit hash would count as one. With a million pairs that
        # happens in one of 40 million files.
        key, value = hash(source.tobytes()), hash(target.tobytes())
        known = self.targets.get(key)
        if known is None:
            self.targets[key] = value
            self.source += source
            self.target += target
            self.source_lengths.append(len(source))
            self.target_lengths.append(len(target))
        elif known == value:
            self.duplicates += 1
        else:
            self.contradictions += 1
            if len(self.contradicted) < NAMED:
                self.contradicted.append(number)

    def learn(self, number: int, symbols: Sequence[str]) -> str:
        """Number the new symbols; return the problem of an invalid one, if there is any."""
        for symbol in symbols:
            if symbol in self.numbers:
                continue
            if problem := _problem_of_symbol(symbol):
                return problem
            if len(self.numbers) == MOST_SYMBOLS:
                other = (
                    "or choose single characters as symbols"
                    if self.words
                    else "or separate words by spaces to use words as symbols"
                )
                raise RowsError(
                    f"there are more than {MOST_SYMBOLS} different symbols, from line {number:,} "
                    f"on; use fewer, {other}"
                )
            self.numbers[symbol] = len(self.numbers)
        return ""

    def rows(self) -> Rows:
        vocabulary = sorted(self.numbers)
        token = {self.numbers[symbol]: at + len(SPECIAL) for at, symbol in enumerate(vocabulary)}
        source, target = (
            array("H", map(token.__getitem__, tokens)) for tokens in (self.source, self.target)
        )
        return Rows(
            tuple(vocabulary),
            source,
            self.source_lengths,
            target,
            self.target_lengths,
            self.duplicates,
            self.contradictions,
            tuple(self.contradicted),
        )


def _problem_of_line(fields: Sequence[str]) -> str:
    """Return the problem of a line, whatever its symbols are; empty if there is none."""
    if len(fields) != 2:
        return (
            "has no tab between source and target"
            if len(fields) < 2
            else f"has {len(fields) - 1} tabs; one is expected"
        )
    for name, text in zip(("source", "target"), fields, strict=True):
        if (
            text.isascii()
            and text.isprintable()
            and 0 < len(text) <= LONGEST_FIELD
            and not text.isspace()
        ):
            continue  # the usual case
        if len(text) > LONGEST_FIELD:
            return f"has a {name} of {len(text):,} characters, above {LONGEST_FIELD:,}"
        if found := _CONTROL.search(text):
            return f"has the control character U+{ord(found[0]):04X}"
        if not text.strip():
            return f"has no {name}"
    return ""


def _problem_of_symbol(symbol: str) -> str:
    """Return why a text cannot be a symbol; empty if it can."""
    if not symbol or len(symbol) > LONGEST_SYMBOL:
        return (
            f"{symbol[:LONGEST_SYMBOL]!r} is the start of a symbol of {len(symbol):,} characters; "
            f"1 to {LONGEST_SYMBOL} are accepted"
        )
    if not symbol.isprintable() or len(symbol.split()) != 1:
        return f"{symbol!a} contains a character that cannot be printed"
    return (
        f"{symbol} is the name of a special token; use another symbol" if symbol in RESERVED else ""
    )


def marks_of(vocabulary: Sequence[str]) -> list[int]:
    """Return for each token a signed 64-bit number, from which the held-out hash is computed.

    It is the hash of the symbol's text, since the token id depends on the other symbols of the
    dataset. Special tokens have 0.
    """
    digests = (hashlib.sha256(symbol.encode()).digest() for symbol in vocabulary)
    return [0] * len(SPECIAL) + [
        int.from_bytes(digest[:8], "little", signed=True) for digest in digests
    ]


def _is_held_out(marks: Iterable[int]) -> bool:
    """Return what `held_out.is_held_out` returns, computed without torch."""
    key = sum(
        mark * (_scramble((at + 1) * 0x9E3779B97F4A7C15 % 2**64) | 1)
        for at, mark in enumerate(marks)
    )
    return _scramble(_scramble(key % 2**64)) % 16 == 0


def _scramble(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    return x ^ x >> 27


def _span(lengths: array[int]) -> str:
    low, high = min(lengths), max(lengths)
    return f"{low} to {high}" if low < high else f"{low}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
