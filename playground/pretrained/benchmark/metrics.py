"""Metrics of predicted token sequences, with confidence intervals.

exact match      fraction of examples whose whole prediction is correct
token accuracy   fraction of the targets' tokens, EOS included, that are predicted at their
                 position, as in playground/evaluation.py; a missing or unparsable token is wrong
rank accuracy    fraction of examples whose target has a higher log-probability than every other
                 candidate; a tie of k counts 1/k

Pure Python, because the page's process uses it too.
"""

import math
from collections.abc import Sequence

from playground.common.stats import mcnemar_test, wilson_interval

# nats; sequences of one batch differ by float noise of 1e-7 even if they are equal
TIE_TOLERANCE = 1e-4


def parse_answer(text: str, symbols: Sequence[str]) -> tuple[str, ...] | None:
    """Return the tokens of a text of symbols and spaces only; None for any other text."""
    parts = text.split(" ")
    parsed = tuple(part for part in parts if part)
    return parsed if parsed and set(parsed) <= set(symbols) else None


def correct_positions(
    predicted: Sequence[str | None] | None, target: Sequence[str], has_eos: bool
) -> list[bool]:
    """Return for each token of the target whether it is predicted at its position.

    The last one is EOS if targets have it: the prediction ends where the target ends.
    """
    tokens = predicted or ()
    correct = [
        position < len(tokens) and tokens[position] == token
        for position, token in enumerate(target)
    ]
    return [*correct, predicted is not None and len(predicted) == len(target)][
        : len(target) + has_eos
    ]


def exact_match(predicted: Sequence[str | None] | None, target: Sequence[str]) -> bool:
    """Return whether the prediction equals the target."""
    return predicted is not None and tuple(predicted) == tuple(target)


def rank_of(scores: Sequence[float], target: int) -> int:
    """Return the rank of the target among the candidates, from 1.

    Candidates that tie with it, within TIE_TOLERANCE, rank before it. A NaN score ranks last.
    """
    ordered = _ordered(scores)
    return 1 + sum(
        score > ordered[target] or _is_tie(score, ordered[target])
        for index, score in enumerate(ordered)
        if index != target
    )


def first_credit(scores: Sequence[float], target: int) -> float:
    """Return 1 if the target has the best score, 1/k if k candidates tie for it, else 0.

    A model that scores all candidates equally gets the accuracy of random guessing. A model
    that gives no candidate any probability gets nothing.
    """
    ordered = _ordered(scores)
    best = max(ordered)
    if best == -math.inf:
        return 0.0
    tied = [_is_tie(score, best) for score in ordered]
    return 1 / sum(tied) if tied[target] else 0.0


def _ordered(scores: Sequence[float]) -> list[float]:
    return [score if not math.isnan(score) else -math.inf for score in scores]


def _is_tie(one: float, other: float) -> bool:
    return one == other or abs(one - other) < TIE_TOLERANCE


class MetricAccumulator:
    """Accumulates the metrics of one model's predictions."""

    def __init__(self, has_eos: bool) -> None:
        self.has_eos = has_eos
        self.n_tokens = self.correct_tokens = self.ranked = 0
        self.is_exact: list[bool] = []  # of each example
        self.first = self.seconds = self.rank_seconds = 0.0
        self.chance: list[float] = []  # of ranking the target first, per ranked example

    def add(
        self, predicted: Sequence[str | None] | None, target: Sequence[str], seconds: float
    ) -> None:
        correct = correct_positions(predicted, target, self.has_eos)
        self.is_exact.append(exact_match(predicted, target))
        self.n_tokens += len(correct)
        self.correct_tokens += sum(correct)
        self.seconds += seconds

    @property
    def n(self) -> int:
        return len(self.is_exact)

    @property
    def exact(self) -> int:
        return sum(self.is_exact)

    def compare(self, other: "MetricAccumulator") -> dict[str, float | int]:
        """Compare the exact matches with those of another model on the same examples, so far."""
        pairs = list(zip(self.is_exact, other.is_exact, strict=False))
        only_this, only_other = pairs.count((True, False)), pairs.count((False, True))
        return {
            "only_this": only_this,
            "only_checkpoint": only_other,
            "p_value": mcnemar_test(only_this, only_other),
        }

    def add_rank(self, credit: float, of: int, seconds: float) -> None:
        """Add a ranking; `credit` is the example's `first_credit` among `of` candidates."""
        self.ranked += 1
        self.first += credit
        self.chance.append(1 / of)
        self.rank_seconds += seconds

    def compute(self) -> dict[str, float | int | None]:
        """Return the metrics with their 95 % intervals; None for those without a count."""
        row: dict[str, float | int | None] = {
            "n": self.n,
            "n_tokens": self.n_tokens,
            "ranked": self.ranked,
        }
        for name, correct, n in (
            ("exact_match", self.exact, self.n),
            ("token_accuracy", self.correct_tokens, self.n_tokens),
            ("rank_accuracy", self.first, self.ranked),
        ):
            low, high = wilson_interval(correct, n) if n else (None, None)
            row |= {name: correct / n if n else None, f"{name}_low": low, f"{name}_high": high}
        row["rank_chance"] = sum(self.chance) / len(self.chance) if self.chance else None
        row["seconds_per_example"] = self.seconds / self.n if self.n else None
        row["rank_seconds_per_example"] = self.rank_seconds / self.ranked if self.ranked else None
        return row
