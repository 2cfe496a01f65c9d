"""Ablation: measure what a component contributes by removing it.

The model is evaluated on the same held-out sequences before and after the ablation.

zero   zero ablation: the component's output is zero, a value that training never produced
mean   mean ablation: the component's output is replaced by its average at that position, which
       removes what depends on the input and keeps its constant contribution

Two measures. Exact match: the fraction of sequences whose whole target is generated correctly by
greedy free-running decoding. Log-probability: that of the whole target in nats, teacher-forced.
It shows an effect before exact match changes, which matters because heads can be redundant.

Shapes: B batch, T target, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from playground.families.family import rows_that_fit
from playground.tasks import PAD
from playground.tasks.task import Batch

from .components import Component, components, groups, heads, means, replaced
from .subject import Subject

SEQUENCES = 512
WAYS = ("zero", "mean")


@dataclass(frozen=True)
class Score:
    """Exact match, and the mean log-probability of a whole target in nats."""

    exact_match: float
    log_probability: float


@dataclass(frozen=True)
class Effect:
    """Scores before and after the ablation of `parts`, or of all other heads if `kept`."""

    name: str
    parts: tuple[Component, ...]
    how: str
    kept: bool
    before: Score
    after: Score

    @property
    def exact_match_lost(self) -> float:
        return self.before.exact_match - self.after.exact_match

    @property
    def log_probability_lost(self) -> float:
        return self.before.log_probability - self.after.log_probability


class Ablation:
    """Evaluation on the same `n` held-out sequences, intact and ablated.

    The model itself does not change.
    """

    def __init__(self, subject: Subject, n: int = SEQUENCES) -> None:
        self.family, self.batch = subject.family, subject.held_out(n).batch

    @cached_property
    def before(self) -> Score:
        """Return the score of the intact model."""
        return self.score({})

    @cached_property
    def means(self) -> dict[Component, Tensor]:
        """Return the mean output of each component over the same sequences."""
        return means(self.family, self.batch)

    def values(self, parts: Iterable[Component], how: str) -> dict[Component, Tensor]:
        """Return the replacement outputs of the components: zero, or each one's mean output.

        Raises:
            ValueError: for an unknown method, or for a component that the model does not have.
        """
        if how not in WAYS:
            raise ValueError(f"how is {how!r}; choose one of {', '.join(WAYS)}")
        chosen = list(parts)
        if how == "zero":
            return {part: torch.zeros((), device=self.batch.source_BS.device) for part in chosen}
        missing = [part.name for part in chosen if part not in self.means]
        if missing:
            raise ValueError(f"this model has no {missing[0]}; choose one of its components")
        return {part: self.means[part] for part in chosen}

    @torch.no_grad()
    def score(self, values: Mapping[Component, Tensor]) -> Score:
        """Return the score with the outputs of components replaced by `values`.

        One teacher-forced pass yields both measures: if every target token is the most likely one
        after the target tokens before it, greedy decoding generates exactly the target. See
        `EncoderDecoder.solves` for the reason. The same holds with components replaced.
        """
        right, log_probability = 0, 0.0
        for rows in rows_that_fit(self.family.config, self.batch):
            batch = self.batch.rows(rows.to(self.batch.source_BS.device))
            labels_BT = batch.labels_BT
            with replaced(self.family, values):
                log_BTV = self.family(batch.source_BS, batch.decoder_input_BT).log_softmax(-1)
            right += int(((log_BTV.argmax(-1) == labels_BT) | (labels_BT == PAD)).all(1).sum())
            log_BT = log_BTV.gather(-1, labels_BT[..., None])[..., 0]
            log_probability += float((log_BT * (labels_BT != PAD)).sum(dtype=torch.double))
        n = len(self.batch.source_BS)
        return Score(right / n, log_probability / n)

    def without(self, parts: Iterable[Component], how: str = "zero", name: str = "") -> Effect:
        """Return the effect of ablating these components together."""
        chosen = tuple(parts)
        after = self.score(self.values(chosen, how))
        return Effect(
            name or "; ".join(part.name for part in chosen), chosen, how, False, self.before, after
        )

    def keep_only(self, kept: Iterable[Component], how: str = "zero", name: str = "") -> Effect:
        """Return the effect of ablating every head except these."""
        chosen = tuple(kept)
        others = [head for head in heads(self.family.config) if head not in chosen]
        after = self.score(self.values(others, how))
        return Effect(
            name or "; ".join(part.name for part in chosen), chosen, how, True, self.before, after
        )

    def ranking(self, how: str = "zero") -> list[Effect]:
        """Return the effect of ablating each single component, the largest drop first."""
        return by_loss([self.without([part], how) for part in components(self.family.config)])

    def group_ranking(self, how: str = "zero") -> list[Effect]:
        """Return the effect of ablating each group of components, the largest drop first."""
        return by_loss(
            [self.without(parts, how, name) for name, parts in groups(self.family.config).items()]
        )

    def keep_only_ranking(self, how: str = "zero") -> list[Effect]:
        """Return the effect of keeping only one head or one group of heads, the best first."""
        alone = [self.keep_only([head], how) for head in heads(self.family.config)]
        together = {
            name: parts
            for name, parts in groups(self.family.config).items()
            if parts[0].head is not None
        }
        return by_loss(
            [*alone, *(self.keep_only(parts, how, name) for name, parts in together.items())]
        )[::-1]

    def answer(
        self, batch: Batch, max_tokens: int, parts: Iterable[Component], how: str = "zero"
    ) -> Tensor:
        """Generate tokens (BT) for other sequences with these components ablated.

        Decoding is free-running and greedy.
        """
        with replaced(self.family, self.values(parts, how)):
            return self.family.solve(batch.source_BS, max_tokens)


def by_loss(effects: Iterable[Effect]) -> list[Effect]:
    """Sort effects by the drop in log-probability, the largest drop first."""
    return sorted(effects, key=lambda effect: effect.log_probability_lost, reverse=True)
