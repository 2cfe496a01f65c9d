"""Facts about each task that need no torch: for forms, command lines and settings."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from . import words
from .vocabulary import ALPHABET


@dataclass(frozen=True)
class TaskSpec:
    """An entry of `TASKS`.

    class_path          the class, as an import string
    description         what the task does with a sequence, in one sentence
    example             a sequence and its target, over ten tokens
    n_symbols_range     minimum and maximum of the setting `n_symbols_range`; None if the alphabet
                        is fixed
    extra_symbols       tokens of this task only, numbered after those of the setting; words only
                        with a fixed alphabet
    min_length          minimum length of a source; shorter ones are never sampled
    default_max_length  maximum length of a source in a run that does not set max_length
    max_target_length   the maximum length of a target for a source of this length
    num_sources         number of distinct sources, from the setting `n_symbols_range` and the
                        length, which is at least `min_length`
    """

    class_path: str
    description: str
    example: tuple[str, str] = ("", "")
    n_symbols_range: tuple[int, int] | None = (2, len(ALPHABET))
    extra_symbols: str | tuple[str, ...] = ""
    min_length: int = 1
    default_max_length: int = 10
    max_target_length: Callable[[int], int] = lambda length: length
    num_sources: Callable[[int, int], int] = lambda tokens, length: tokens**length

    def alphabet(self, n_symbols: int) -> str | tuple[str, ...]:
        """Return all tokens of sources and targets, in the order of their token ids."""
        if isinstance(self.extra_symbols, tuple):
            return self.extra_symbols
        return (ALPHABET[:n_symbols] if self.n_symbols_range else "") + self.extra_symbols


def _constant_one(length: int) -> int:
    return 1


def _num_sums(n_symbols: int, length: int) -> int:
    return n_symbols ** (length - 1)  # one position is the plus sign


def _num_permutations(n_symbols: int, length: int) -> int:
    n_whole, rest = divmod(length, n_symbols)
    return int(math.factorial(n_symbols) ** n_whole) * math.perm(n_symbols, rest)


TASKS = {
    "reverse": TaskSpec(
        "playground.tasks.rules:Reverse", "Reverse the sequence.", ("3 1 4 1 5", "5 1 4 1 3")
    ),
    "copy": TaskSpec(
        "playground.tasks.rules:Copy", "Copy the sequence.", ("3 1 4 1 5", "3 1 4 1 5")
    ),
    "sort": TaskSpec(
        "playground.tasks.rules:Sort",
        "Sort the tokens in ascending order.",
        ("3 1 4 1 5", "1 1 3 4 5"),
    ),
    "duplicate": TaskSpec(
        "playground.tasks.rules:Duplicate",
        "Repeat the sequence once.",
        ("3 1", "3 1 3 1"),
        max_target_length=lambda length: 2 * length,
    ),
    "repeat": TaskSpec(
        "playground.tasks.rules:Repeat",
        "Repeat the sequence, in which no token occurs again before all others have occurred.",
        ("3 1 4", "3 1 4"),
        num_sources=_num_permutations,
    ),
    "swap-halves": TaskSpec(
        "playground.tasks.rules:SwapHalves",
        "Swap the two halves. If the length is odd, the first half is the shorter one.",
        ("3 1 4 1 5", "4 1 5 3 1"),
    ),
    "caesar": TaskSpec(
        "playground.tasks.rules:Caesar",
        "Replace each token with the one three positions later in the alphabet, cyclically. With "
        "fewer than four different tokens, it is the one before it.",
        ("3 1 9", "6 4 2"),
    ),
    "dedupe": TaskSpec(
        "playground.tasks.rules:Dedupe",
        "Remove repeated tokens; the first occurrence of each token stays.",
        ("3 1 4 1 3", "3 1 4"),
    ),
    "histogram": TaskSpec(
        "playground.tasks.rules:Histogram",
        "Replace each token with the number of times it occurs in the sequence. The largest token "
        "stands for all larger counts.",
        ("3 1 3", "2 1 2"),
    ),
    "parity": TaskSpec(
        "playground.tasks.rules:Parity",
        "Output 1 if the sum of the tokens is odd, else 0.",
        ("3 1 4 1", "1"),
        max_target_length=_constant_one,
    ),
    "brackets": TaskSpec(
        "playground.tasks.rules:Brackets",
        "Output 1 if the brackets are balanced, else 0.",
        ("( ( ) )", "1"),
        n_symbols_range=None,
        extra_symbols="01()",
        default_max_length=16,
        max_target_length=_constant_one,
        num_sources=lambda tokens, length: 2**length,
    ),
    "addition": TaskSpec(
        "playground.tasks.arithmetic:Addition",
        "Add two numbers. The sum has one digit more than the longer number.",
        ("3 8 + 7 5", "1 1 3"),
        extra_symbols="+",
        min_length=3,
        num_sources=_num_sums,
    ),
    "addition-reversed": TaskSpec(
        "playground.tasks.arithmetic:AdditionReversed",
        "Add two numbers; the digits of the sum are in reverse order.",
        ("3 8 + 7 5", "3 1 1"),
        extra_symbols="+",
        min_length=3,
        num_sources=_num_sums,
    ),
    "modular-addition": TaskSpec(
        "playground.tasks.arithmetic:ModularAddition",
        "Add the tokens modulo the number of different tokens.",
        ("7 5", "2"),
        min_length=2,
        max_target_length=_constant_one,
    ),
    "odds-first": TaskSpec(
        "playground.tasks.rules:OddsFirst",
        "Move the odd tokens before the even ones; both groups keep their order.",
        ("3 4 1 2", "3 1 4 2"),
    ),
    "translate": TaskSpec(
        "playground.tasks.phrases:Translate",
        "Translate English phrases into an invented language with its own word order and endings.",
        ("a dog sees two red cars", "kan gar ruvo du vidi"),
        n_symbols_range=None,
        extra_symbols=words.WORDS,
        min_length=2,
        default_max_length=9,
        num_sources=lambda tokens, length: words.count_sources(length),
    ),
    "random": TaskSpec(
        "playground.tasks.rules:RandomMapping",
        "Map each source to a fixed random target: there is no rule to learn, only pairs to "
        "memorize.",
        ("3 1 4", "1 7 4"),
    ),
}
DEFAULT_SPEC = TaskSpec("", "")  # for a task that is not in TASKS
