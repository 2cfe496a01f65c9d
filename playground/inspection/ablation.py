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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from playground.architectures.seq2seq_model import exact_match_mask, split_into_chunks
from playground.common.format import format_percent
from playground.models.config import TransformerConfig
from playground.tasks import PAD

from .hooks import (
    Component,
    all_components,
    all_heads,
    component_groups,
    mean_outputs,
    replace_outputs,
)
from .inspected_model import InspectedModel

NUM_SEQUENCES = 512
Method = Literal["zero", "mean"]
METHODS: tuple[Method, ...] = get_args(Method)
# What a ranking ablates: each component, each group, or all but one head or one group of heads.
Ranked = Literal["single", "groups", "keep"]
NEGLIGIBLE_DROP = 0.02  # a smaller drop of exact match is negligible
NEGLIGIBLE_POINTS = f"{100 * NEGLIGIBLE_DROP:g} percentage points"
# Components are redundant if their joint drop exceeds the sum of the single drops by this.
SUPERADDITIVE_DROP = 0.1
MIN_EXACT_MATCH = 0.5  # below this exact match, a drop of exact match is not informative


@dataclass(frozen=True)
class AblationScore:
    """Exact match, and the mean log-probability of a whole target in nats."""

    exact_match: float
    log_prob: float


@dataclass(frozen=True)
class AblationEffect:
    """Scores before and after ablating `components`, or all other heads if `keep_only`."""

    name: str
    components: tuple[Component, ...]
    method: Method
    keep_only: bool
    baseline: AblationScore
    ablated: AblationScore

    @property
    def exact_match_drop(self) -> float:
        return self.baseline.exact_match - self.ablated.exact_match

    @property
    def log_prob_drop(self) -> float:
        return self.baseline.log_prob - self.ablated.log_prob


class Ablation:
    """Evaluation on the same `n` held-out sequences, intact and ablated.

    The model itself does not change.
    """

    def __init__(self, subject: InspectedModel, n: int = NUM_SEQUENCES) -> None:
        self.model, self.batch = subject.transformer, subject.held_out(n).batch

    @cached_property
    def baseline(self) -> AblationScore:
        """Return the score of the intact model."""
        return self.score({})

    @cached_property
    def mean_outputs(self) -> dict[Component, Tensor]:
        """Return the mean output of each component over the same sequences."""
        return mean_outputs(self.model, self.batch)

    def replacements(
        self, chosen_components: Iterable[Component], method: Method
    ) -> dict[Component, Tensor]:
        """Return the replacement outputs of the components: zero, or each one's mean output.

        Raises:
            ValueError: for a component that the model does not have.
        """
        chosen = list(chosen_components)
        if method == "zero":
            return {part: torch.zeros((), device=self.batch.source_BS.device) for part in chosen}
        missing = [part.name for part in chosen if part not in self.mean_outputs]
        if missing:
            raise ValueError(f"this model has no {missing[0]}; choose one of its components")
        return {part: self.mean_outputs[part] for part in chosen}

    @torch.no_grad()
    def score(self, replacements: Mapping[Component, Tensor]) -> AblationScore:
        """Return the score with the outputs of components replaced by `replacements`.

        One teacher-forced pass yields both measures: if every target token is the most likely one
        after the target tokens before it, greedy decoding generates exactly the target.
        `TeacherForcedModel.exact_match_and_loss` has the proof, which also holds with
        components replaced.
        """
        n_correct, log_prob = 0, 0.0
        for rows in split_into_chunks(self.model.config, self.batch):
            batch = self.batch.select(rows.to(self.batch.source_BS.device))
            labels_BT = batch.labels_BT
            with replace_outputs(self.model, replacements):
                log_BTV = self.model(batch.source_BS, batch.decoder_input_BT).log_softmax(-1)
            n_correct += int(exact_match_mask(log_BTV, batch).sum())
            log_BT = log_BTV.gather(-1, labels_BT[..., None])[..., 0]
            log_prob += float((log_BT * (labels_BT != PAD)).sum(dtype=torch.double))
        n = len(self.batch.source_BS)
        return AblationScore(n_correct / n, log_prob / n)

    def ablate(
        self, ablated_components: Iterable[Component], method: Method = "zero", name: str = ""
    ) -> AblationEffect:
        """Return the effect of ablating these components together."""
        chosen = tuple(ablated_components)
        return self._effect(chosen, chosen, method, name)

    def keep_only(
        self, remaining_components: Iterable[Component], method: Method = "zero", name: str = ""
    ) -> AblationEffect:
        """Return the effect of ablating every head except these."""
        chosen = tuple(remaining_components)
        others = [head for head in all_heads(self.model.config) if head not in chosen]
        return self._effect(chosen, others, method, name, keep_only=True)

    def _effect(
        self,
        chosen: tuple[Component, ...],
        ablated: Iterable[Component],
        method: Method,
        name: str,
        keep_only: bool = False,
    ) -> AblationEffect:
        after = self.score(self.replacements(ablated, method))
        name = name or "; ".join(part.name for part in chosen)
        return AblationEffect(name, chosen, method, keep_only, self.baseline, after)

    def rank(self, which: Ranked = "single", method: Method = "zero") -> list[AblationEffect]:
        """Return the effect of each ablation, the largest drop first (keep only: the smallest)."""
        run = self.keep_only if which == "keep" else self.ablate
        effects = [
            run(parts, method, name)
            for name, parts in ablated_components(self.model.config, which).items()
        ]
        return sorted(effects, key=lambda each: each.log_prob_drop, reverse=which != "keep")


def ablated_components(config: TransformerConfig, which: Ranked) -> dict[str, list[Component]]:
    """Return the components of each ablation of a ranking, by name."""
    if which == "groups":
        return component_groups(config)
    alone = all_components(config) if which == "single" else all_heads(config)
    together = component_groups(config) if which == "keep" else {}
    return {part.name: [part] for part in alone} | {
        name: parts for name, parts in together.items() if parts[0].head is not None
    }


def describe_redundant_heads(
    ablation: Ablation, singles: list[AblationEffect], method: Method
) -> str:
    """Describe whether heads with a negligible effect are unneeded or redundant.

    `singles` are the effects of every single head. One more pass ablates all heads with a
    negligible effect together. Returns "" if there are fewer than two of them.
    """
    negligible = [effect for effect in singles if effect.exact_match_drop < NEGLIGIBLE_DROP]
    if len(negligible) < 2:
        return ""
    together = ablation.ablate([effect.components[0] for effect in negligible], method)
    sum_of_drops = sum(effect.exact_match_drop for effect in negligible)
    finding = (
        f"{len(negligible)} of {len(singles)} heads have a negligible effect one at a time, each a "
        f"drop of less than {NEGLIGIBLE_POINTS}. Without all {len(negligible)} "
        f"together, exact match is {format_percent(together.ablated.exact_match)}"
    )
    if together.exact_match_drop < NEGLIGIBLE_DROP:
        return f"{finding}: the model does not need them for these sequences."
    if together.exact_match_drop < sum_of_drops + SUPERADDITIVE_DROP:
        return (
            f"{finding}: about the sum of the single drops, so each of them contributes a little."
        )
    needed = [effect for effect in singles if effect not in negligible]
    whole_kinds = _kinds(negligible) - _kinds(needed)
    if whole_kinds:
        names = ", ".join(sorted(Component(kind).name for kind in whole_kinds))
        return (
            f"{finding}. They include every head of {names}, so single ablations do not show which "
            "of them are needed."
        )
    return (
        f"{finding}, far less than the single drops predict. These heads are redundant: "
        "other heads compensate for a missing one. A head with a negligible effect may still have "
        "a function."
    )


def _kinds(effects: list[AblationEffect]) -> set[str]:
    return {effect.components[0].kind for effect in effects}
