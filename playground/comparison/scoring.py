"""Scores of answers that are lists of symbols, with how sure they are. Pure Python: the page's process may use it too.

exact match      share of items whose whole answer is right
token accuracy   share of the right answers' symbols that stand at their place; what is missing, or cannot be read, is wrong
rank accuracy    share of items whose right answer the model holds for more likely than every other candidate
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Z_95 = 1.959963984540054  # of the normal distribution: 95 % lie within this many standard deviations


def wilson(right: int, n: int) -> tuple[float, float] | None:
    """The 95 % interval of a share (Wilson 1927), which stays within 0 and 1 and is not empty at 0 or n right; None for no trials."""
    if n <= 0:
        return None
    share, spread = right / n, Z_95**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = Z_95 * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return (0.0 if right == 0 else middle - half, 1.0 if right == n else middle + half)


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
    """The place of the right candidate among all, from 1; whoever ties with it stands before it, for nothing tells them apart.
    A score that is no number is the last of all."""
    known = [score if not math.isnan(score) else -math.inf for score in scores]
    return 1 + sum(score >= known[right] for place, score in enumerate(known) if place != right)


class Tally:
    """Scores as they come in, of one model's answers."""

    def __init__(self) -> None:
        self.n = self.exact = self.symbols = self.right_symbols = self.ranked = self.first = 0
        self.seconds = self.rank_seconds = 0.0
        self.chance: list[float] = []  # of ranking the right answer first, for each item that was ranked

    def add(self, given: Sequence[str | None] | None, answer: Sequence[str], seconds: float) -> None:
        places = right_places(given, answer)
        self.n += 1
        self.exact += is_exact(given, answer)
        self.symbols += len(places)
        self.right_symbols += sum(places)
        self.seconds += seconds

    def add_rank(self, rank: int, of: int, seconds: float) -> None:
        self.ranked += 1
        self.first += rank == 1
        self.chance.append(1 / of)
        self.rank_seconds += seconds

    def told(self) -> dict[str, float | int | None]:
        """The scores with their 95 % intervals; None where there is nothing to count."""
        row: dict[str, float | int | None] = {"n": self.n, "symbols": self.symbols, "ranked": self.ranked}
        for name, right, of in (
            ("exact_match", self.exact, self.n),
            ("token_accuracy", self.right_symbols, self.symbols),
            ("rank_accuracy", self.first, self.ranked),
        ):
            low, high = wilson(right, of) or (None, None)
            row |= {name: right / of if of else None, f"{name}_low": low, f"{name}_high": high}
        row["rank_chance"] = sum(self.chance) / len(self.chance) if self.chance else None
        row["seconds_an_item"] = self.seconds / self.n if self.n else None
        row["rank_seconds_an_item"] = self.rank_seconds / self.ranked if self.ranked else None
        return row
