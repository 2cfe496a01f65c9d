"""Check rows of sources and targets, and pack them into a dataset, without torch.

Symbols are single characters if no row contains a space between symbols, else words separated by
spaces; the user may choose. The data is untrusted: sizes are limited.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

from playground.tasks.vocabulary import FIRST_SYMBOL_ID, SPECIAL_TOKENS, normalize

from .pairs import MAX_LENGTH, MAX_REPORTED_ERRORS, NO_REPORT, DatasetError, PairDataset, ReadReport

MAX_PAIRS = 1_000_000
MAX_VOCAB_SIZE = 512
MAX_SYMBOL_CHARS = 40  # characters
MAX_COMBINING_MARKS = 30  # in a row: the Stream-Safe Text Format (UAX 15, section 13)
MIN_CHARS_TO_CHECK = 400  # shorter texts are normalized fast, whatever they have
SEPARATOR_ADVICE = (
    "; write a tab, an arrow, a comma, a semicolon or two spaces between source and target"
)
# Control characters but tab and line feed, and unpaired surrogates.
_REFUSED_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

# Yields the number of each line, and its source and target or its problem; every call starts at the
# first line.
LineSource = Callable[[], Iterable[tuple[int, Sequence[str] | str]]]


def validate_vocabulary(text: str) -> tuple[str, ...]:
    """Parse symbols separated by single spaces. Raises DatasetError."""
    symbols = text.split(" ")
    if not 1 <= len(symbols) <= MAX_VOCAB_SIZE or len(set(symbols)) < len(symbols):
        raise DatasetError(
            f"the vocabulary must be 1 to {MAX_VOCAB_SIZE} different tokens, separated by single "
            "spaces"
        )
    for symbol in symbols:
        if error := _symbol_error(symbol):
            raise DatasetError(error)
    return tuple(symbols)


def read_pairs(
    lines: LineSource, split_on_spaces: bool | None = None, report: ReadReport = NO_REPORT
) -> PairDataset:
    """Check and pack the pairs of a file; unusable rows are left out and reported.

    `split_on_spaces`: whether symbols are words, else characters; None to detect it. Raises
    DatasetError if most rows are unusable, or if no pair or every pair is held out.
    """
    builder = PairBuilder(lines, bool(split_on_spaces), stops_at_space=split_on_spaces is None)
    if builder.has_stopped:
        builder = PairBuilder(lines, True)
    dataset = builder.build(report)
    n_skipped, skipped = dataset.report.n_skipped, dataset.report.skipped
    if 2 * n_skipped > dataset.n_rows:
        has_no_separator = any("no separator" in each for each in skipped)
        raise DatasetError(
            dataset.describe_skipped("unusable") + (SEPARATOR_ADVICE if has_no_separator else ""),
            lines=skipped,
            count=n_skipped,
            dataset=dataset if len(dataset) else None,
        )
    if not len(dataset):
        raise DatasetError("the dataset is empty; write a source and its target on each line")
    n_held_out = dataset.count_held_out()
    if n_held_out in (0, len(dataset)):
        share = "all" if n_held_out else "none"
        which = f"{share} of these {len(dataset):,} distinct pairs are held out"
        if len(dataset) == 1:
            which = f"the only distinct pair is {'' if n_held_out else 'not '}held out"
        raise DatasetError(
            f"{which}, so there is nothing to {'train on' if n_held_out else 'evaluate'}; a hash "
            "of the source holds out one pair in sixteen: add more pairs, at least about 100",
            dataset=dataset,
        )
    return dataset


class PairBuilder:
    """Collects the pairs of lines into arrays.

    Symbols are numbered as they occur, and again at the end, in sorted order. With `stops_at_space`
    it stops at the first pair with a space between symbols; these are words then.
    """

    def __init__(
        self, lines: LineSource, split_on_spaces: bool, stops_at_space: bool = False
    ) -> None:
        self.split_on_spaces, self.stops_at_space = split_on_spaces, stops_at_space
        self.n_skipped, self.skipped = 0, list[str]()
        self.token_ids: dict[str, int] = {}
        self.source, self.target = array("H"), array("H")
        self.source_lengths, self.target_lengths = array("B"), array("B")
        self.target_hashes: dict[int, int] = {}  # by the hash of the source
        self.n_rows = self.duplicates = self.conflicts = self.normalized = 0
        self.conflict_lines: list[int] = []
        self.has_stopped = False
        for number, fields in lines():
            self.n_rows += 1
            if self.n_rows > MAX_PAIRS:
                raise DatasetError(f"there are more than {MAX_PAIRS:,} pairs; leave some out")
            n_known = len(self.token_ids)
            if problem := fields if isinstance(fields, str) else self.add(number, *fields):
                self.n_skipped += 1
                if self.n_skipped <= MAX_REPORTED_ERRORS:
                    self.skipped.append(f"row {number:,} {problem}")
                while len(self.token_ids) > n_known:  # the symbols of this row
                    self.token_ids.popitem()
            if self.has_stopped:
                return

    def add(self, number: int, source_text: str, target_text: str) -> str:
        """Add a pair; return its problem if it is unusable."""
        if not source_text.isascii() or not target_text.isascii():
            texts = source_text, target_text
            is_long = len(source_text) + len(target_text) >= MIN_CHARS_TO_CHECK
            if is_long and any(map(_has_many_combining_marks, texts)):
                return f"has more than {MAX_COMBINING_MARKS} combining marks in a row"
            source_text, target_text = normalize(source_text), normalize(target_text)
            self.normalized += texts != (source_text, target_text)
        source_words, target_words = source_text.split(), target_text.split()
        is_complete = source_words and target_words
        if self.stops_at_space and is_complete and len(source_words) + len(target_words) > 2:
            self.has_stopped = True
            return ""
        source = self._encode("source", source_text, source_words)
        if isinstance(source, str):
            return source
        target = self._encode("target", target_text, target_words)
        if isinstance(target, str):
            return target
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
        return ""

    def _encode(self, name: str, text: str, words: Sequence[str]) -> array[int] | str:
        """Return the numbers of the symbols, or the problem of the text."""
        symbols = words if self.split_on_spaces else "".join(words)
        if not 0 < len(symbols) <= MAX_LENGTH:
            if not symbols:
                return f"has no {name}"
            return f"has a {name} of {len(symbols):,} tokens, above {MAX_LENGTH}"
        if not text.isprintable() and (match := _REFUSED_CHARACTERS.search(text)):
            return f"has the {_describe_character(match[0])}"
        try:
            return array("H", map(self.token_ids.__getitem__, symbols))
        except KeyError:
            if problem := self.add_symbols(symbols):
                return f"has an invalid token: {problem}"
            return array("H", map(self.token_ids.__getitem__, symbols))

    def add_symbols(self, symbols: Sequence[str]) -> str:
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
                    f"there are more than {MAX_VOCAB_SIZE} different tokens, from row "
                    f"{self.n_rows:,} on; use fewer, {other}"
                )
            self.token_ids[symbol] = len(self.token_ids)
        return ""

    def build(self, report: ReadReport) -> PairDataset:
        vocabulary = sorted(self.token_ids)
        old_ids = map(self.token_ids.__getitem__, vocabulary)
        new_ids = dict(zip(old_ids, count(FIRST_SYMBOL_ID), strict=False))
        source, target = (
            array("H", map(new_ids.__getitem__, tokens)) for tokens in (self.source, self.target)
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
            report=replace(
                report, n_skipped=self.n_skipped, skipped=self.skipped, normalized=self.normalized
            ),
        )


def _has_many_combining_marks(text: str) -> bool:
    """Return whether a text has so many combining marks in a row that sorting them takes long."""
    if len(text) < MIN_CHARS_TO_CHECK or text.isascii():
        return False
    n_marks = 0
    for character in text:
        n_marks = n_marks + 1 if unicodedata.combining(character) else 0
        if n_marks > MAX_COMBINING_MARKS:
            return True
    return False


def _describe_character(character: str) -> str:
    kind = "unpaired surrogate" if character >= "\ud800" else "control character"
    return f"{kind} U+{ord(character):04X}"


def _symbol_error(symbol: str) -> str:
    """Return why a text cannot be a symbol; empty if it can."""
    if not symbol or len(symbol) > MAX_SYMBOL_CHARS:
        return (
            f"{symbol[:MAX_SYMBOL_CHARS]!r} is the start of a token of {len(symbol):,} "
            f"characters; 1 to {MAX_SYMBOL_CHARS} are accepted"
        )
    if match := _REFUSED_CHARACTERS.search(symbol):
        return f"{symbol!a} contains the {_describe_character(match[0])}"
    if symbol.split() != [symbol]:
        return f"{symbol!a} contains a blank"
    if symbol in SPECIAL_TOKENS:
        return f"{symbol} is the name of a special token; use another token"
    return ""
