"""Baselines of the benchmark: copying, majority, random guessing and elimination."""

from collections import Counter
from collections.abc import Sequence

from ..prompts import Example
from .examples import choices_for
from .models import BenchmarkModel, Output


class CopyBaseline(BenchmarkModel):
    """A baseline that copies the input."""

    name, kind, decoding, can_rank = "copy the input", "baseline", "copies the input", True

    def generate(self, example: Example) -> Output:
        return Output("", [], [], example.source_text, example.source)

    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        return [0.0 if each == example.source else float("-inf") for each in choices]


class MajorityTokenBaseline(BenchmarkModel):
    """A baseline that repeats the most frequent token of the input, as long as the target is."""

    name = "most frequent token"
    kind = "baseline"
    decoding = "the input's most frequent token, repeated"

    def generate(self, example: Example) -> Output:
        token, _ = Counter(example.source).most_common(1)[0]
        tokens = (token,) * len(example.target)
        return Output("", [], [], " ".join(tokens), tokens)


class MajorityTargetBaseline(BenchmarkModel):
    """A baseline that always predicts the most frequent target of the examples."""

    name, kind, can_rank = "most frequent target", "baseline", True

    def __init__(self, items: Sequence[Example]) -> None:
        self.target, _ = Counter(item.target for item in items).most_common(1)[0]
        self.decoding = "always the most frequent target of these sequences"

    def generate(self, example: Example) -> Output:
        return Output("", [], [], " ".join(self.target), self.target)

    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        return [0.0 if each == self.target else float("-inf") for each in choices]


class RandomBaseline(BenchmarkModel):
    """The expected scores of random guessing, calculated.

    Every symbol that occurs in targets is equally likely, and so is every candidate.
    """

    name, kind, decoding = "chance", "baseline", "calculated"

    @staticmethod
    def scores(
        items: Sequence[Example], symbols: int, ranked: Sequence[Example]
    ) -> dict[str, float | None]:
        """Return the scores; `symbols` is the number of different symbols in targets."""
        chances = [1 / len(choices_for(item, items)) for item in ranked]
        return {
            "exact_match": sum(symbols ** -len(item.target) for item in items) / len(items),
            "token_accuracy": 1 / symbols,
            "rank_accuracy": sum(chances) / len(chances) if chances else None,
        }


def elimination_baseline(example: Example) -> tuple[str | None, ...]:
    """Predict each token from the others alone, given that the target permutes the input.

    The result at a position is the token of the input that is left over, or None if there
    are several.
    """
    filled: list[str | None] = []
    for position in range(len(example.target)):
        left = list(example.source)
        for other, token in enumerate(example.target):
            if other != position and token in left:
                left.remove(token)
        filled.append(left[0] if len(left) == 1 else None)
    return tuple(filled)
