"""Scores of answers that are lists of symbols, with how sure they are. Pure Python: the page's process may use it too.

exact match      share of items whose whole answer is right
token accuracy   share of the right answers' symbols that stand at their place; what is missing, or cannot be read, is wrong
rank accuracy    share of items whose right answer the model holds for more likely than every other candidate; a tie of k counts 1/k
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from playground.statistics import wilson

TIE = 1e-4  # nats; rows of one batch differ by float noise of 1e-7 where nothing tells them apart


def read_answer(text: str, symbols: Sequence[str]) -> tuple[str, ...] | None:
    """The symbols of an answer that holds nothing but symbols with blanks between them; None for anything else."""
    parts = text.split(" ")
    read = tuple(part for part in parts if part)
    return read if read and set(read) <= set(symbols) else None


def right_places(given: Sequence[str | None] | None, answer: Sequence[str]) -> list[bool]:
    """For each symbol of the right answer, whether the given one has it at its place."""
    given = given or ()
    return [place < len(given) and given[place] == symbol for place, symbol in enumerate(answer)]


def is_exact(given: Sequence[str | None] | None, answer: Sequence[str]) -> bool:
    """Whether this is the right answer, no more and no less."""
    return given is not None and tuple(given) == tuple(answer)


def rank_of(scores: Sequence[float], right: int) -> int:
    """Return the rank of the right candidate, from 1.

    Candidates that tie with it, within TIE, stand before it, for nothing tells them from it. A
    score that is no number is the last of all.
    """
    known = _ordered(scores)
    return 1 + sum(
        score > known[right] or _is_tie(score, known[right])
        for place, score in enumerate(known)
        if place != right
    )


def first_credit(scores: Sequence[float], right: int) -> float:
    """Return 1 where the right candidate has the best score, 1/k where k candidates tie for it, else 0.

    A model that cannot tell candidates from each other gets what guessing among them gets. One
    that gives no candidate any probability gets nothing.
    """
    known = _ordered(scores)
    best = max(known)
    if best == -math.inf:
        return 0.0
    tied = [_is_tie(score, best) for score in known]
    return 1 / sum(tied) if tied[right] else 0.0


def _ordered(scores: Sequence[float]) -> list[float]:
    return [score if not math.isnan(score) else -math.inf for score in scores]


def _is_tie(one: float, other: float) -> bool:
    return one == other or abs(one - other) < TIE


class Tally:
    """Scores as they come in, of one model's answers."""

    def __init__(self) -> None:
        self.n = self.exact = self.symbols = self.right_symbols = self.ranked = 0
        self.first = self.seconds = self.rank_seconds = 0.0
        self.chance: list[
            float
        ] = []  # of ranking the right answer first, for each item that was ranked

    def add(
        self, given: Sequence[str | None] | None, answer: Sequence[str], seconds: float
    ) -> None:
        places = right_places(given, answer)
        self.n += 1
        self.exact += is_exact(given, answer)
        self.symbols += len(places)
        self.right_symbols += sum(places)
        self.seconds += seconds

    def add_rank(self, credit: float, of: int, seconds: float) -> None:
        """`credit` is the item's `first_credit` among `of` candidates."""
        self.ranked += 1
        self.first += credit
        self.chance.append(1 / of)
        self.rank_seconds += seconds

    def told(self) -> dict[str, float | int | None]:
        """The scores with their 95 % intervals; None where there is nothing to count."""
        row: dict[str, float | int | None] = {
            "n": self.n,
            "symbols": self.symbols,
            "ranked": self.ranked,
        }
        for name, right, of in (
            ("exact_match", self.exact, self.n),
            ("token_accuracy", self.right_symbols, self.symbols),
            ("rank_accuracy", self.first, self.ranked),
        ):
            low, high = wilson(right, of) if of else (None, None)
            row |= {name: right / of if of else None, f"{name}_low": low, f"{name}_high": high}
        row["rank_chance"] = sum(self.chance) / len(self.chance) if self.chance else None
        row["seconds_an_item"] = self.seconds / self.n if self.n else None
        row["rank_seconds_an_item"] = self.rank_seconds / self.ranked if self.ranked else None
        return row
