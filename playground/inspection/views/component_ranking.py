"""Components ranked by ablation on held-out sequences, and the output with any of them ablated.

Shapes: B batch, T target, V vocabulary.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from playground.common.format import format_percent
from playground.inspection.ablation import (
    NUM_SEQUENCES,
    Ablation,
    AblationEffect,
    Method,
    Ranked,
    ablated_components,
)
from playground.inspection.hooks import (
    Component,
    all_components,
    all_heads,
    component_groups,
    replace_outputs,
)
from playground.inspection.inspected_model import InspectedModel, InspectionError
from playground.tasks.task import Batch

from .request import Name, SequenceRequest, ViewRequest, json_number
from .shared_fields import DECIMALS, answer_fields, length_range

# seconds; a large model is measured on fewer sequences, and the result states it
TIME_BUDGET = 60.0
SHORT_TIME_BUDGET = 2.0  # seconds, for interactive requests
MIN_SEQUENCES = 32  # sequences
NEGLIGIBLE_DROP = 0.02  # a smaller drop of exact match is negligible
NEGLIGIBLE_POINTS = f"{100 * NEGLIGIBLE_DROP:g} percentage points"
# Components are redundant if their joint drop exceeds the sum of the single drops by this.
SUPERADDITIVE_DROP = 0.1
MIN_EXACT_MATCH = 0.5  # below this exact match, a drop of exact match is not informative


class RankingRequest(ViewRequest):
    """The ablations that are ranked."""

    method: Method = "zero"
    set: Ranked = "single"


class AblatedOutputRequest(SequenceRequest):
    """The ablated components; if `keep`, all heads except these."""

    method: Method = "zero"
    components: list[Name] = Field(default_factory=list)
    keep: bool = False


def ablation_view(subject: InspectedModel, request: RankingRequest) -> dict[str, Any]:
    """Return the scores of an ablation on the same held-out sequences, with a summary.

    The largest drop is first (keep only: the smallest).
    """
    method, which = request.method, request.set
    passes = 3 + len(ablated_components(subject.transformer.config, which))
    n = sequences_within_budget(subject, passes, TIME_BUDGET)
    ablation = Ablation(subject, n)
    effects = ablation.rank(which, method)
    return {
        "method": method,
        "set": which,
        "sequences": len(ablation.batch.source_BS),
        "is_reduced": n < NUM_SEQUENCES,
        "lengths": length_range(subject),
        "baseline": _score_fields(ablation.baseline),
        "rows": [
            {
                "name": effect.name,
                "components": [part.name for part in effect.components],
                **_score_fields(effect.ablated),
            }
            for effect in effects
        ],
        "summary": summarize_ablation(ablation, effects, which, method),
    }


def sequences_within_budget(subject: InspectedModel, passes: int, seconds: float) -> int:
    """Return how many sequences allow `passes` passes of the model within `seconds`.

    It is at most `NUM_SEQUENCES` and at least `MIN_SEQUENCES`. The first pass is a warm-up and is
    not timed.
    """
    ablation = Ablation(subject, MIN_SEQUENCES)
    ablation.score({})
    start = time.perf_counter()
    ablation.score({})
    seconds_per_sequence = (time.perf_counter() - start) / len(ablation.batch.source_BS)
    n_affordable = int(seconds / (passes * seconds_per_sequence))
    return max(MIN_SEQUENCES, min(NUM_SEQUENCES, n_affordable))


def summarize_ablation(
    ablation: Ablation, effects: list[AblationEffect], which: str, method: Method
) -> str:
    """Summarize a ranking in a sentence.

    Heads with a negligible effect are also ablated together, to test whether they are redundant.
    """
    before = ablation.baseline
    if before.exact_match < MIN_EXACT_MATCH:
        return (
            f"The intact model has an exact match of only {format_percent(before.exact_match)}, so "
            "a drop is not informative; compare the log-probabilities."
        )
    if which == "groups":
        return _summarize_groups(effects)
    if which == "keep":
        return _summarize_keep_only(effects)
    return _summarize_single_heads(ablation, effects, method)


def _summarize_groups(effects: list[AblationEffect]) -> str:
    missed = [effect.name for effect in effects if effect.exact_match_drop < NEGLIGIBLE_DROP]
    if missed:
        return (
            f"The ablation of each of these groups lowers exact match by less than "
            f"{NEGLIGIBLE_POINTS}: {'; '.join(missed)}."
        )
    least = min(effects, key=lambda effect: effect.exact_match_drop)
    return (
        f"Every group is needed: the smallest drop is that of {least.name}, to an exact match "
        f"of {format_percent(least.ablated.exact_match)}."
    )


def _summarize_keep_only(effects: list[AblationEffect]) -> str:
    least = min(effects, key=lambda effect: effect.exact_match_drop)
    single = max(
        (e for e in effects if len(e.components) == 1),
        key=lambda e: (e.ablated.exact_match, e.ablated.log_prob),
    )
    if single.exact_match_drop < NEGLIGIBLE_DROP:
        return (
            f"{single.name} is sufficient: with this head only, exact match is "
            f"{format_percent(single.ablated.exact_match)}."
        )
    alone = (
        f"No single head is sufficient: the best exact match is "
        f"{format_percent(single.ablated.exact_match)}, with {single.name}"
    )
    return alone + (
        f"; with {least.name}, {format_percent(least.ablated.exact_match)}."
        if len(least.components) > 1
        else "."
    )


def _summarize_single_heads(
    ablation: Ablation, effects: list[AblationEffect], method: Method
) -> str:
    singles = [effect for effect in effects if effect.components[0].head is not None]
    worst = max(singles, key=lambda effect: effect.exact_match_drop)
    negligible = [
        effect.components[0] for effect in singles if effect.exact_match_drop < NEGLIGIBLE_DROP
    ]
    max_effect = (
        f"The head with the largest effect is {worst.name}: without it, exact match is "
        f"{format_percent(worst.ablated.exact_match)}."
    )
    if not negligible and len(singles) > 1:
        least = min(singles, key=lambda effect: effect.exact_match_drop)
        return (
            f"Every head is needed: the smallest drop is that of {least.name}, to an exact match "
            f"of {format_percent(least.ablated.exact_match)}."
        )
    together = describe_redundant_heads(ablation, singles, method)
    if not together:
        return max_effect
    lead = max_effect if worst.exact_match_drop >= NEGLIGIBLE_DROP else "No single head is needed."
    hint = (
        " See also the log-probability, the groups and keep only."
        if "redundant" in together or "do not show" in together
        else ""
    )
    return f"{lead} {together}{hint}"


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


@torch.no_grad()
def ablated_answer(subject: InspectedModel, request: AblatedOutputRequest) -> dict[str, Any]:
    """Return the output for the user's sequence, intact and ablated."""
    batch, method = request.example(subject), request.method
    components = {part.name: part for part in all_components(subject.transformer.config)}
    unknown = [name for name in request.components if name not in components]
    if unknown:
        raise InspectionError(
            f"there is no {unknown[0][:60]!r} in this model; its components have names such as "
            f"{next(iter(components))!r}"
        )
    chosen = {components[name] for name in request.components}
    if request.keep:
        chosen = set(all_heads(subject.transformer.config)) - chosen
    n = (
        sequences_within_budget(subject, 1, SHORT_TIME_BUDGET)
        if chosen and method == "mean"
        else MIN_SEQUENCES
    )
    values = Ablation(subject, n).replacements(chosen, method) if chosen else {}
    intact = _answer_with_replacements(subject, batch, {})
    return {
        "source": subject.token_names(batch.source_BS[0].tolist()),
        "intact": intact,
        "ablated": _answer_with_replacements(subject, batch, values) if chosen else intact,
        "vocabulary": list(subject.task.vocabulary.symbols),
        "components": list(components),
        "groups": {
            name: [part.name for part in parts]
            for name, parts in component_groups(subject.transformer.config).items()
        },
        **answer_fields(batch, intact["prediction"]),
    }


def _answer_with_replacements(
    subject: InspectedModel, batch: Batch, values: Mapping[Component, Tensor]
) -> dict[str, Any]:
    """Return the output with replaced components, and the log-probability of the target in nats."""
    with replace_outputs(subject.transformer, values):
        prediction = subject.generated_tokens(batch)
        log_BTV = subject.transformer(batch.source_BS, batch.decoder_input_BT).log_softmax(-1)
    log_probability = log_BTV.gather(-1, batch.labels_BT[..., None]).sum(dtype=torch.double)
    return {"prediction": prediction, "log_probability": json_number(float(log_probability))}


def _score_fields(score: Any) -> dict[str, Any]:
    return {
        "exact_match": json_number(score.exact_match),
        "log_probability": json_number(score.log_prob),
    }


def ablation_table(effects: Iterable[AblationEffect], n: int) -> list[dict[str, Any]]:
    """Return one row per effect: the ablation, and both measures before and after it.

    The measures are over `n` sequences.
    """
    return [
        {
            "name": effect.name,
            "method": effect.method,
            "keep_only": effect.keep_only,
            "n": n,
            "exact_match_before": effect.baseline.exact_match,
            "exact_match": effect.ablated.exact_match,
            "log_probability_before": round(effect.baseline.log_prob, DECIMALS),
            "log_probability": round(effect.ablated.log_prob, DECIMALS),
            "log_probability_drop": round(effect.log_prob_drop, DECIMALS),
        }
        for effect in effects
    ]
