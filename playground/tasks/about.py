"""What is known of each task without loading torch: forms, command lines and settings read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .vocabulary import ALPHABET


@dataclass(frozen=True)
class About:
    """A line of `TASKS`.

    origin          the class, as an import string
    sentence        what is done with a sequence, in one sentence
    example         a sequence and its answer, over ten symbols
    symbols         fewest and most of the setting `symbols`; None where the task's alphabet is fixed
    extra           symbols of the task's own, numbered behind those of the setting
    shortest        symbols of its shortest source; shorter ones are never drawn
    longest         symbols of the longest source in a run that names no max_length
    answer_length   the longest answer to a source of so many symbols
    sources         how many distinct sources there are, by the setting `symbols` and their length (at least `shortest`)
    """

    origin: str
    sentence: str
    example: tuple[str, str] = ("", "")
    symbols: tuple[int, int] | None = (2, len(ALPHABET))
    extra: str = ""
    shortest: int = 1
    longest: int = 10
    answer_length: Callable[[int], int] = lambda length: length
    sources: Callable[[int, int], int] = lambda symbols, length: symbols**length

    def alphabet(self, symbols: int) -> str:
        """All symbols of the task, sources' and answers', in the order of their numbers."""
        return (ALPHABET[:symbols] if self.symbols else "") + self.extra


def _one(length: int) -> int:
    return 1


def _sums(symbols: int, length: int) -> int:
    return symbols ** (length - 1)  # one place is the plus sign's


TASKS = {
    "reverse": About("playground.tasks.rules:Reverse", "Write the sequence backwards.", ("3 1 4 1 5", "5 1 4 1 3")),
    "copy": About("playground.tasks.rules:Copy", "Write the sequence again.", ("3 1 4 1 5", "3 1 4 1 5")),
    "sort": About("playground.tasks.rules:Sort", "Write the symbols in order, the smallest first.", ("3 1 4 1 5", "1 1 3 4 5")),
    "duplicate": About(
        "playground.tasks.rules:Duplicate",
        "Write the sequence twice.",
        ("3 1", "3 1 3 1"), answer_length=lambda length: 2 * length,
    ),
    "swap-halves": About(
        "playground.tasks.rules:SwapHalves",
        "Write the second half, then the first, which is the shorter one of an odd length.",
        ("3 1 4 1 5", "4 1 5 3 1"),
    ),
    "caesar": About(
        "playground.tasks.rules:Caesar",
        "Write for each symbol the one three further on, round the end of the alphabet (fewer than four symbols: the one before).",
        ("3 1 9", "6 4 2"),
    ),
    "dedupe": About(
        "playground.tasks.rules:Dedupe",
        "Write each symbol the first time it comes, and leave out every repeat.",
        ("3 1 4 1 3", "3 1 4"),
    ),
    "histogram": About(
        "playground.tasks.rules:Histogram",
        "Write for each symbol how often it stands in the sequence; counts beyond the last symbol are written as the last symbol.",
        ("3 1 3", "2 1 2"),
    ),
    "parity": About(
        "playground.tasks.rules:Parity", "Write 1 if the sum of the symbols is odd, else 0.", ("3 1 4 1", "1"), answer_length=_one
    ),
    "brackets": About(
        "playground.tasks.rules:Brackets",
        "Write 1 if every bracket has its partner, else 0.",
        ("( ( ) )", "1"),
        symbols=None, extra="01()", longest=16, answer_length=_one, sources=lambda symbols, length: 2**length,
    ),
    "addition": About(
        "playground.tasks.arithmetic:Addition",
        "Add two numbers; the sum has one digit more than the longer of them.",
        ("3 8 + 7 5", "1 1 3"),
        extra="+", shortest=3, sources=_sums,
    ),
    "addition-reversed": About(
        "playground.tasks.arithmetic:AdditionReversed",
        "Add two numbers and write the sum from its last digit to its first.",
        ("3 8 + 7 5", "3 1 1"),
        extra="+", shortest=3, sources=_sums,
    ),
    "odds-first": About(
        "playground.tasks.rules:OddsFirst",
        "Write the odd symbols, then the even ones, each kind in the order in which they came.",
        ("3 4 1 2", "3 1 4 2"),
    ),
    "random": About(
        "playground.tasks.rules:RandomMapping",
        "Write the answer that chance has fixed for this very sequence: there is no rule to find, only sequences to remember.",
        ("3 1 4", "1 7 4"),
    ),
}  # fmt: skip
UNLISTED = About("", "")  # for a task that is not in TASKS
