"""What a part is for, found by taking it away: the same held-out sequences are asked before and after.

zero   the part's output is zero, which the model never met while it learned
mean   the part says at every position what it says there on average, whatever the sequence; what it knows of this sequence
       is gone, what it merely adds always stays

Two measures. Exact match: the share of sequences whose whole answer is right, as greedy free-running decoding gives it.
Log-probability: what the model, given the right answer so far, gives to the right answer, in nats; it tells a loss long
before an answer tips over, which matters because heads stand in for each other.

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
    """Over the same sequences: the share answered exactly right, and the mean log-probability of a whole right answer, in nats."""

    exact_match: float
    log_probability: float


@dataclass(frozen=True)
class Effect:
    """What the model scores before and after some parts were taken away (or all other heads, where `kept`)."""

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
    """Asks a model the same `n` held-out sequences, whole and without some of its parts. Nothing of the model changes."""

    def __init__(self, subject: Subject, n: int = SEQUENCES) -> None:
        self.family, self.batch = subject.family, subject.held_out(n).batch

    @cached_property
    def before(self) -> Score:
        """The model's score with everything in place."""
        return self.score({})

    @cached_property
    def means(self) -> dict[Component, Tensor]:
        """What each part says on average over the same sequences."""
        return means(self.family, self.batch)

    def values(self, parts: Iterable[Component], how: str) -> dict[Component, Tensor]:
        """What stands in for the parts: zero, or what each says on average.

        Raises:
            ValueError: for another way, or for a part that the model does not have.
        """
        if how not in WAYS:
            raise ValueError(f"how is {how!r}; choose one of {', '.join(WAYS)}")
        chosen = list(parts)
        if how == "zero":
            return {part: torch.zeros((), device=self.batch.source_BS.device) for part in chosen}
        missing = [part.name for part in chosen if part not in self.means]
        if missing:
            raise ValueError(f"there is no {missing[0]} in this model")
        return {part: self.means[part] for part in chosen}

    @torch.no_grad()
    def score(self, values: Mapping[Component, Tensor]) -> Score:
        """The score with `values` in the place of parts.

        One pass with the right answer given yields both measures: where every token is the likeliest one after the right
        ones, greedy decoding writes just these (`EncoderDecoder.solves` says why), with any part replaced as well.
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
        """The effect of taking these parts away together."""
        chosen = tuple(parts)
        after = self.score(self.values(chosen, how))
        return Effect(
            name or "; ".join(part.name for part in chosen), chosen, how, False, self.before, after
        )

    def keep_only(self, kept: Iterable[Component], how: str = "zero", name: str = "") -> Effect:
        """The effect of taking away every head but these."""
        chosen = tuple(kept)
        others = [head for head in heads(self.family.config) if head not in chosen]
        after = self.score(self.values(others, how))
        return Effect(
            name or "; ".join(part.name for part in chosen), chosen, how, True, self.before, after
        )

    def ranking(self, how: str = "zero") -> list[Effect]:
        """Every single part taken away, the one that the right answer misses most first."""
        return by_loss([self.without([part], how) for part in components(self.family.config)])

    def group_ranking(self, how: str = "zero") -> list[Effect]:
        """Every group of parts taken away together, likewise."""
        return by_loss(
            [self.without(parts, how, name) for name, parts in groups(self.family.config).items()]
        )

    def keep_only_ranking(self, how: str = "zero") -> list[Effect]:
        """Every single head, and every group of heads, left alone among the heads, the one that does best alone first."""
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
        """What the model writes (BT) to other sequences without these parts, symbol by symbol from its own earlier ones."""
        with replaced(self.family, self.values(parts, how)):
            return self.family.solve(batch.source_BS, max_tokens)


def by_loss(effects: Iterable[Effect]) -> list[Effect]:
    """Effects in order of the log-probability that is lost, the largest loss first."""
    return sorted(effects, key=lambda effect: effect.log_probability_lost, reverse=True)
