"""Rows that somebody brought: a source and a target each, read, checked and packed. No torch in here: forms read it too.

Symbols are single characters where no row has a blank inside, else words apart by blanks; whoever brings the rows may choose.
Rows come from anybody: sizes are bounded, and what is wrong is told by the number of its line.
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
NAMED = 5  # lines that a report names
COUNTED = 20_000  # rows up to which the held-out ones are counted here
RESERVED = {*SPECIAL, *(f"<{name}>" for name in SPECIAL)}
CONTENT = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FILE, _ABOUT = "rows.safetensors", "rows.json"

Lines = Callable[
    [], Iterable[tuple[int, Sequence[str]]]
]  # from the beginning at every call: a line's number, its fields


class RowsError(ValueError):
    """Rows that cannot be taken; the message says which lines, what is wrong and what to do.

    lines     what is wrong with the first of the lines that cannot be taken, a sentence each; `count` is how many there are
    columns   the columns that may be named, where it is about those
    rows      what was readable, to be shown beside what is wrong
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
    """The rows of a task are not kept here; the message says which, and how to bring them."""


@dataclass(frozen=True)
class Rows:
    """Distinct sources, each with its target. Numbers are tokens, one row behind the other.

    duplicates       rows that stood there before, left out
    contradictions   rows whose source had stood there with another target; the first is kept. `contradicted` are the first lines
    """

    vocabulary: tuple[str, ...]
    source: array[int] = field(repr=False)
    source_lengths: array[int] = field(repr=False)
    target: array[int] = field(repr=False)
    target_lengths: array[int] = field(repr=False)
    duplicates: int = 0
    contradictions: int = 0
    contradicted: tuple[int, ...] = ()
    origin: dict[str, str] = field(
        default_factory=dict, compare=False, repr=False
    )  # of rows from the Hub: dataset, license

    def __len__(self) -> int:
        return len(self.source_lengths)

    @cached_property
    def content(self) -> str:
        """The SHA-256 under which these rows are kept: the same rows have the same, from whatever kind of file."""
        return content_of(self.vocabulary, [self._bytes(name) for name in PARTS])

    def preview(self, n: int = 8) -> list[tuple[list[str], list[str]]]:
        """The first rows as symbols, source and target."""
        return [
            (list(self._symbols(self.source, s)), list(self._symbols(self.target, t)))
            for s, t in self._places(n)
        ]

    def held_out(self) -> int | None:
        """How many rows are held out; None where there are too many to count here."""
        if len(self) > COUNTED:
            return None
        marks = marks_of(self.vocabulary)
        return sum(
            _is_held_out(map(marks.__getitem__, self.source[begin:end]))
            for (begin, end), _ in self._places(len(self))
        )

    def settings(self) -> dict[str, Any]:
        """The settings of a run on these rows."""
        return {
            "task": "rows", "rows": self.content, "vocabulary": " ".join(self.vocabulary), "longest_answer": max(self.target_lengths),
            "min_length": min(self.source_lengths), "max_length": max(self.source_lengths),
        }  # fmt: skip

    def files(self) -> dict[str, bytes]:
        """The rows as files to keep."""
        about = {
            "rows": len(self), "vocabulary": list(self.vocabulary), "longest_source": max(self.source_lengths),
            "longest_target": max(self.target_lengths), "duplicates": self.duplicates, "contradictions": self.contradictions,
        } | ({"origin": self.origin} if self.origin else {})  # fmt: skip
        return {
            _FILE: _packed({name: self._bytes(name) for name in PARTS}),
            _ABOUT: json.dumps(about, indent=1).encode() + b"\n",
        }

    def in_words(self) -> list[str]:
        """What was found in the rows, a sentence each."""
        held, size = self.held_out(), len(self.vocabulary)
        told = [
            f"{len(self):,} rows of {size} different symbols; sources have {_span(self.source_lengths)} of them, "
            f"targets {_span(self.target_lengths)}",
            f"{_count(held, 'row')} {'is' if held == 1 else 'are'} held out, chosen by a hash of the source" if held is not None
            else "one row in sixteen is held out, chosen by a hash of the source",
        ]  # fmt: skip
        if self.duplicates:
            was = "was" if self.duplicates == 1 else "were"
            told.append(f"{_count(self.duplicates, 'row')} stood there before and {was} left out")
        if self.contradictions:
            where = ", ".join(f"{line:,}" for line in self.contradicted)
            more = " and more" if self.contradictions > len(self.contradicted) else ""
            told.append(
                f"{_count(self.contradictions, 'row')} gave a source another target than a row before (line {where}{more}); "
                "the first is kept"
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


PARTS = {
    "source": "U16",
    "target": "U16",
    "source_lengths": "U8",
    "target_lengths": "U8",
}  # as safetensors calls their types


def content_of(vocabulary: Sequence[str], parts: Iterable[bytes]) -> str:
    """The SHA-256 of rows: their symbols, then their tensors, each behind its size."""
    digest = hashlib.sha256()
    for part in (" ".join(vocabulary).encode(), *parts):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _packed(parts: dict[str, bytes]) -> bytes:
    """A safetensors file: the size of its header, the header as JSON, the tensors. Written by hand, since its own writers want torch."""
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
    """Where rows are kept on this machine: in the folder of the checkpoints."""
    return Path(os.environ.get("PLAYGROUND_CHECKPOINTS", CHECKPOINTS_DIR)) / "rows"


def rows_file(content: str) -> Path:
    """The file that holds the rows of this content, if it is kept.

    Raises:
        MissingRows: where it is not.
    """
    path = rows_root() / content / _FILE
    if not CONTENT.fullmatch(content) or not path.is_file():
        raise MissingRows(
            f"the rows that this task is made of ({content[:12]}…) are not kept here; bring them with "
            "`python -m playground rows FILE`, where the same rows are known by their content"
        )
    return path


def kept_rows(content: str) -> Rows:
    """The rows of this content.

    Raises:
        MissingRows: where they are not kept here.
        RowsError: where what is kept is broken.
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
            raise ValueError("its content is not what it was kept under")
    except (OSError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
        raise RowsError(
            f"the rows {content[:12]}… are broken ({error}); remove them and bring them again"
        ) from None
    return rows


def kept_about(content: str) -> dict[str, Any]:
    """What stands beside the rows of this content: `rows`, `vocabulary`, `longest_source`, `longest_target` and more.

    Raises:
        MissingRows: where they are not kept here.
        RowsError: where what is kept is broken.
    """
    path = rows_file(content).with_name(_ABOUT)
    try:
        about = json.loads(path.read_bytes())
        check_vocabulary(" ".join(about["vocabulary"]))
        if not all(
            type(about[name]) is int and about[name] > 0
            for name in ("rows", "longest_source", "longest_target")
        ):
            raise ValueError("its numbers are none")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RowsError(
            f"{path.parent.name[:12]}…/{_ABOUT} is broken ({error}); remove its folder and bring the rows again"
        ) from None
    return dict(about)


def origin_of(content: str) -> dict[str, str]:
    """Return the `dataset` on the Hub that these rows are from, and its `license` where it names one; empty where that is unknown."""
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
    """Symbols apart by single blanks, as a tuple.

    Raises:
        RowsError: for what is no such list of symbols.
    """
    symbols = text.split(" ")
    if not 1 <= len(symbols) <= MOST_SYMBOLS or len(set(symbols)) < len(symbols):
        raise RowsError(
            f"it must hold 1 to {MOST_SYMBOLS} different symbols, apart by single blanks"
        )
    for symbol in symbols:
        if problem := _problem_of_symbol(symbol):
            raise RowsError(problem)
    return tuple(symbols)


def read_rows(lines: Lines, words: bool | None = None) -> Rows:
    """Check and pack rows. `words`: whether symbols are words apart by blanks (True) or single characters (False); None: as found.

    Raises:
        RowsError: when a line cannot be taken (all such lines are counted, the first named), or when there are too few rows to
            learn from some and be asked others.
    """
    bad = _Bad()
    spaced = False
    total = 0
    for number, fields in lines():
        total += 1
        if total > MOST_ROWS:
            raise RowsError(f"there are more than {MOST_ROWS:,} rows; leave some out")
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
        raise RowsError("there are no rows; give a source and its target on each line")
    held = rows.held_out()
    if held in (0, len(rows)):
        which = f"of these {len(rows):,} distinct rows {'each' if held else 'none'}"
        if len(rows) == 1:
            which = "the only distinct row" if held else "not even the only distinct row"
        raise RowsError(
            f"{which} is held out, so that there is nothing to "
            f"{'ask' if not held else 'learn from'}; a hash of the source holds one in sixteen out: give more rows, 100 or so at least",
            rows=rows,
        )
    return rows


class _Bad:
    """Lines that cannot be taken: all are counted, the first ones keep what is wrong with them."""

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
            count = f"{len(self.numbers):,} of {_count(total, 'line')} cannot be taken"
            told = [problem for _, problem in self.told]
            raise RowsError(
                f"{count}: {'; '.join(told)}{more}",
                lines=told,
                count=len(self.numbers),
                rows=readable,
            )


class _Packed:
    """Rows on their way into arrays. Tokens are numbered as they come, and anew at the end, in the order of the symbols."""

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
                    self.bad.add(number, f"holds a symbol that cannot be: {problem}")
                    return
                tokens.append(array("H", map(self.numbers.__getitem__, symbols)))
        source, target = tokens
        # Two sources with one 64-bit hash would count as one: among a million rows once in 40 million files.
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
        """Number the symbols that are new; what is wrong with one, if something is."""
        for symbol in symbols:
            if symbol in self.numbers:
                continue
            if problem := _problem_of_symbol(symbol):
                return problem
            if len(self.numbers) == MOST_SYMBOLS:
                other = (
                    "choose single characters, if that is meant"
                    if self.words
                    else "apart by blanks, words may be symbols"
                )
                raise RowsError(
                    f"line {number:,} brings more than {MOST_SYMBOLS} different symbols; use fewer ({other})"
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
            tuple(vocabulary), source, self.source_lengths, target, self.target_lengths,
            self.duplicates, self.contradictions, tuple(self.contradicted),
        )  # fmt: skip


def _problem_of_line(fields: Sequence[str]) -> str:
    """What is wrong with a line whatever its symbols are; empty where nothing is."""
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
            continue  # as nearly all are
        if len(text) > LONGEST_FIELD:
            return f"has a {name} of {len(text):,} characters, above {LONGEST_FIELD:,}"
        if found := _CONTROL.search(text):
            return f"holds the control character U+{ord(found[0]):04X}"
        if not text.strip():
            return f"has no {name}"
    return ""


def _problem_of_symbol(symbol: str) -> str:
    """Why this cannot be a symbol; empty where it can."""
    if not symbol or len(symbol) > LONGEST_SYMBOL:
        return f"{symbol[:LONGEST_SYMBOL]!r} begins one of {len(symbol):,} characters; 1 to {LONGEST_SYMBOL} are possible"
    if not symbol.isprintable() or len(symbol.split()) != 1:
        return f"{symbol!a} holds a character that cannot be printed"
    return (
        f"{symbol} is what the playground calls a special token; write it otherwise"
        if symbol in RESERVED
        else ""
    )


def marks_of(vocabulary: Sequence[str]) -> list[int]:
    """For each token the 64 bits (signed) that stand for it in the hash that holds sources out: of its symbol's own text, since a
    symbol's token changes with what other symbols the rows have. 0 for the special ones."""
    digests = (hashlib.sha256(symbol.encode()).digest() for symbol in vocabulary)
    return [0] * len(SPECIAL) + [
        int.from_bytes(digest[:8], "little", signed=True) for digest in digests
    ]


def _is_held_out(marks: Iterable[int]) -> bool:
    """What held_out.is_held_out says of a sequence, in Python's own numbers."""
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
