"""Ablation: measure how the output changes without a component.

Later parts may compensate for it, so a small effect is no proof of no role. The model is evaluated
on the same held-out sequences before and after the ablation.

mean      mean ablation: the component's output is replaced by its average at that position, which
          removes what depends on the input and keeps its constant contribution
zero      zero ablation: the component's output is zero, a value that training never produced; this
          removes the constant contribution, too, so an effect may be that of a lost bias
resample  resample ablation (Chan et al. 2022, causal scrubbing): the component's output is that on
          another held-out sequence of the same lengths, a value that the model produces itself

Two measures. Exact match: the fraction of sequences whose whole target is generated correctly by
greedy free-running decoding. Log-probability: that of the whole target in nats, teacher-forced.
It shows an effect before exact match changes, which matters because heads can stand in for one
another.

Shapes: B batch, T target, V vocabulary.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from playground.architectures.seq2seq_model import exact_match_mask, split_into_chunks
from playground.common.format import format_percent
from playground.common.stats import Z_95
from playground.models.config import TransformerConfig
from playground.tasks import PAD

from .hooks import (
    POSITION_KINDS,
    Component,
    all_components,
    all_heads,
    component_groups,
    component_outputs,
    mean_outputs,
    replace_outputs,
    run_with_cache,
)
from .inspected_model import InspectedModel

NUM_SEQUENCES = 512
Method = Literal["mean", "zero", "resample"]
METHODS: tuple[Method, ...] = get_args(Method)
# What a ranking ablates: each component, each group, or all but one head or one group of heads.
Ranked = Literal["single", "groups", "keep"]
NEGLIGIBLE_DROP = 0.02  # a smaller drop of exact match is negligible
NEGLIGIBLE_POINTS = f"{100 * NEGLIGIBLE_DROP:g} percentage points"
# Effects are superadditive if the joint drop exceeds the sum of the single drops by this.
SUPERADDITIVE_DROP = 0.1
MIN_EXACT_MATCH = 0.5  # below this exact match, a drop of exact match is not informative


@dataclass(frozen=True)
class AblationScore:
    """Exact match, and the mean log-probability of a whole target in nats.

    `log_prob_B` has that of each sequence.
    """

    exact_match: float
    log_prob: float
    log_prob_B: Tensor = field(compare=False, repr=False, default_factory=lambda: torch.zeros(0))


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

    @property
    def log_prob_drop_interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the drop, from its differences by sequence.

        An effect whose interval contains zero is not distinguishable from noise.
        """
        drop_B = self.baseline.log_prob_B - self.ablated.log_prob_B
        margin = Z_95 * float(drop_B.std()) / math.sqrt(len(drop_B))
        return self.log_prob_drop - margin, self.log_prob_drop + margin


class Ablation:
    """Evaluation on the same `n` held-out sequences; the model itself does not change."""

    def __init__(self, subject: InspectedModel, n: int = NUM_SEQUENCES) -> None:
        self.model, self.batch = subject.transformer, subject.held_out(n).batch

    @cached_property
    def baseline(self) -> AblationScore:
        """Return the score of the intact model."""
        return self.score()

    @cached_property
    def mean_outputs(self) -> dict[Component, Tensor]:
        """Return the mean output of each component over the same sequences."""
        return mean_outputs(self.model, self.batch)

    @cached_property
    def donor_B(self) -> Tensor:
        """Return the sequence whose outputs each gets: the next of the same lengths, cyclically."""
        of_lengths: dict[tuple[int, int], list[int]] = {}
        lengths = (
            (tokens != PAD).sum(1) for tokens in (self.batch.source_BS, self.batch.labels_BT)
        )
        for row, key in enumerate(zip(*(each.tolist() for each in lengths), strict=True)):
            of_lengths.setdefault(key, []).append(row)
        donor_B = torch.arange(len(self.batch.source_BS), device=self.batch.source_BS.device)
        for rows in of_lengths.values():
            donor_B[rows] = donor_B[rows].roll(-1)
        return donor_B

    def replacements(
        self,
        chosen_components: Iterable[Component],
        method: Method,
        rows: Tensor | slice = slice(None),
    ) -> dict[Component, Tensor]:
        """Return the outputs that replace those of the components, for these rows of the batch."""
        chosen = list(chosen_components)
        if method == "zero":
            return {part: torch.zeros((), device=self.batch.source_BS.device) for part in chosen}
        outputs = self.mean_outputs if method == "mean" else self._outputs(self.donor_B[rows])
        missing = [part.name for part in chosen if part not in outputs]
        if missing:
            raise ValueError(f"this model has no {missing[0]}; choose one of its components")
        return {part: outputs[part] for part in chosen}

    def _outputs(self, rows: Tensor) -> dict[Component, Tensor]:
        """Return the outputs of heads and feed-forward networks on these rows of the batch."""
        names = {part.hook_point for part in all_components(self.model.config)}
        return component_outputs(
            self.model, run_with_cache(self.model, self.batch.select(rows), names)[1]
        )

    @torch.no_grad()
    def score(
        self, ablated_components: Iterable[Component] = (), method: Method = "mean"
    ) -> AblationScore:
        """Return the score with the outputs of these components replaced.

        One teacher-forced pass yields both measures; `TeacherForcedModel.exact_match_and_loss` has
        the proof, which also holds with components replaced.
        """
        chosen = list(ablated_components)
        n_correct, parts = 0, []
        for index in split_into_chunks(self.model.config, self.batch):
            rows = index.to(self.batch.source_BS.device)
            batch = self.batch.select(rows)
            labels_BT = batch.labels_BT
            values = self.replacements(chosen, method, rows) if chosen else {}
            with replace_outputs(self.model, values):
                log_BTV = self.model(batch.source_BS, batch.decoder_input_BT).log_softmax(-1)
            n_correct += int(exact_match_mask(log_BTV, batch).sum())
            log_BT = log_BTV.gather(-1, labels_BT[..., None])[..., 0]
            parts.append((log_BT * (labels_BT != PAD)).sum(1, dtype=torch.double).cpu())
        log_prob_B = torch.cat(parts)
        return AblationScore(n_correct / len(log_prob_B), float(log_prob_B.mean()), log_prob_B)

    def ablate(
        self, ablated_components: Iterable[Component], method: Method = "mean", name: str = ""
    ) -> AblationEffect:
        """Return the effect of ablating these components together."""
        chosen = tuple(ablated_components)
        return self._effect(chosen, chosen, method, name)

    def keep_only(
        self, remaining_components: Iterable[Component], method: Method = "mean", name: str = ""
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
        after = self.score(ablated, method)
        name = name or "; ".join(part.name for part in chosen)
        return AblationEffect(name, chosen, method, keep_only, self.baseline, after)

    def rank(self, which: Ranked = "single", method: Method = "mean") -> list[AblationEffect]:
        """Return the effect of each ablation, the largest drop first (keep only: the smallest).

        Position vectors are the same on all sequences, so resampling does not change them.
        """
        run = self.keep_only if which == "keep" else self.ablate
        effects = [
            run(parts, method, name)
            for name, parts in ablated_components(self.model.config, which).items()
            if method != "resample" or parts[0].kind not in POSITION_KINDS
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


def describe_spared_heads(ablation: Ablation, singles: list[AblationEffect]) -> str:
    """Describe what heads with a negligible effect lose together, and what that agrees with.

    `singles` are the effects of every single head under mean ablation. One more pass ablates all
    heads with a negligible effect together. Returns "" if there are fewer than two of them.
    """
    negligible = [effect for effect in singles if effect.exact_match_drop < NEGLIGIBLE_DROP]
    if len(negligible) < 2:
        return ""
    together = ablation.ablate([effect.components[0] for effect in negligible])
    sum_of_drops = sum(effect.exact_match_drop for effect in negligible)
    measured = (
        f"{len(negligible)} of {len(singles)} heads have a negligible effect one at a time, each "
        f"a drop of less than {NEGLIGIBLE_POINTS}, {100 * sum_of_drops:.1f} in all. Ablated "
        f"together, the drop is {100 * together.exact_match_drop:.1f}, and exact match "
        f"{format_percent(together.ablated.exact_match)}"
    )
    if together.exact_match_drop < NEGLIGIBLE_DROP:
        return f"{measured}: consistent with heads that matter little on these sequences."
    if together.exact_match_drop < sum_of_drops + SUPERADDITIVE_DROP:
        return f"{measured}: consistent with small effects that add up."
    needed = [effect for effect in singles if effect not in negligible]
    whole_kinds = _kinds(negligible) - _kinds(needed)
    if whole_kinds:
        names = ", ".join(sorted(Component(kind).name for kind in whole_kinds))
        return (
            f"{measured}. They include every head of {names}, so single ablations do not show "
            "which of them matter."
        )
    return (
        f"{measured}: consistent with heads that stand in for one another. A head with a "
        "negligible effect may still have a function."
    )


def _kinds(effects: list[AblationEffect]) -> set[str]:
    return {effect.components[0].kind for effect in effects}
