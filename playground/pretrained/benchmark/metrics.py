"""Metrics of predicted token sequences, with confidence intervals.

exact match      fraction of examples whose whole prediction is correct
token accuracy   fraction of the targets' tokens, EOS included, that are predicted at their
                 position, as in playground/evaluation.py; a missing or unparsable token is wrong

Pure Python, because the page's process uses it too.
"""

from collections.abc import Sequence

from playground.common.stats import mcnemar_test, wilson_interval


def parse_answer(text: str, symbols: Sequence[str]) -> tuple[str, ...] | None:
    """Return the tokens of the first line of a text; None unless it has symbols and spaces only."""
    parsed = tuple(part for part in text.split("\n", 1)[0].split(" ") if part)
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


class MetricAccumulator:
    """Accumulates the metrics of one model's predictions."""

    def __init__(self, has_eos: bool) -> None:
        self.has_eos = has_eos
        self.n_tokens = self.correct_tokens = 0
        self.is_exact: list[bool] = []  # of each example
        self.seconds = 0.0

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

    def compute(self) -> dict[str, float | int | None]:
        """Return the metrics with their 95 % intervals; None for those without a count."""
        row: dict[str, float | int | None] = {"n": self.n, "n_tokens": self.n_tokens}
        for name, correct, n in (
            ("exact_match", self.exact, self.n),
            ("token_accuracy", self.correct_tokens, self.n_tokens),
        ):
            low, high = wilson_interval(correct, n) if n else (None, None)
            row |= {name: correct / n if n else None, f"{name}_low": low, f"{name}_high": high}
        row["seconds_per_example"] = self.seconds / self.n if self.n else None
        return row
