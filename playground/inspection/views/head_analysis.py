"""Views of head scores, ablation, activation patching, the logit lens and logit attribution.

Results on held-out sequences do not depend on the sequence that the user entered.

Shapes: L layers, B batch, T target, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from playground.common.stats import format_percent
from playground.inspection import head_patterns as scoring
from playground.inspection.ablation import METHODS, NUM_SEQUENCES, Ablation, AblationEffect
from playground.inspection.activation_patching import patch_heads
from playground.inspection.hooks import (
    Component,
    all_components,
    all_heads,
    component_groups,
    replace_outputs,
)
from playground.inspection.inspected_model import InspectedModel, InspectionError
from playground.inspection.logit_lens import direct_logit_attribution, logit_lens
from playground.tasks.task import Batch

from .attention import answer_fields
from .request import choice_field, int_field, json_number
from .request import source_text as text_of

ABLATION_SETS = ("single", "groups", "keep")
MAX_STEPS, MIN_STEPS = 24, 6
# seconds; a large model is measured on fewer sequences, and the result states it
TIME_BUDGET = 60.0
SHORT_TIME_BUDGET = 2.0  # seconds, for interactive requests
MIN_SEQUENCES = 32  # sequences
TOP_K = 3
NEGLIGIBLE_DROP = 0.02  # a smaller drop of exact match is negligible
# Components are redundant if their joint drop exceeds the sum of the single drops by this.
SUPERADDITIVE_DROP = 0.1
MIN_EXACT_MATCH = 0.5  # below this exact match, a drop of exact match is not informative


def head_scores(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of every head over held-out sequences, and a description of each."""
    batch = subject.held_out(scoring.NUM_SEQUENCES).batch
    rows = [
        {
            **head_id(score.head),
            "patterns": json_numbers(score.patterns),
            "chance": json_numbers(score.uniform_baseline),
            "entropy": json_number(score.entropy),
            "max_entropy": json_number(score.max_entropy),
            "aligned": json_number(score.alignment_fraction),
            "distance": json_number(score.alignment_distance),
            "best": score.best_pattern,
            "description": score.description,
        }
        for score in scoring.score_heads_on_batch(subject, batch)
    ]
    return {
        "sequences": len(batch.source_BS),
        "lengths": length_range(subject),
        "patterns": scoring.PATTERNS,
        "heads": rows,
    }


def heads_over_training(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the scores at up to `MAX_STEPS` training steps, or fewer for a slow model.

    The steps are log-spaced, because most changes happen early.

    Raises:
        InspectionError: for a model without stored weights of earlier steps.
    """
    history: Mapping[int, Path] = request.get("history") or {}
    if len(history) < 2:
        raise InspectionError(
            "only runs store the weights of earlier steps; this model has only its current weights"
        )
    batch = subject.held_out(scoring.NUM_SEQUENCES).batch
    scoring.score_heads_on_batch(subject, batch)
    start = time.perf_counter()
    scoring.score_heads_on_batch(subject, batch)
    affordable = int(TIME_BUDGET / (time.perf_counter() - start))
    steps = log_spaced(sorted(history), max(MIN_STEPS, min(MAX_STEPS, affordable)))
    scores_by_step = scoring.scores_over_training(
        subject.config, {step: history[step] for step in steps}
    )
    rows = []
    for at, head in enumerate(all_heads(subject.transformer.config)):
        over = [scores_by_step[step][at] for step in steps]
        rows.append(
            {
                **head_id(head),
                "patterns": {
                    name: [json_number(score.patterns[name]) for score in over]
                    for name in scoring.PATTERNS
                },
                "chance": json_numbers(over[-1].uniform_baseline),
                "aligned": [json_number(score.alignment_fraction) for score in over],
                "entropy": [json_number(score.entropy) for score in over],
            }
        )
    return {
        "sequences": len(batch.source_BS),
        "lengths": length_range(subject),
        "n_steps": len(history),
        "steps": steps,
        "heads": rows,
    }


def log_spaced(steps: list[int], max_count: int) -> list[int]:
    """Select at most `max_count` of the sorted steps, about evenly spaced in log(1 + step).

    The first and the last step are always included.
    """
    if len(steps) <= max_count:
        return steps
    low, high = steps[0] + 1, steps[-1] + 1
    chosen = {0, len(steps) - 1}
    for i in range(1, max_count - 1):
        step = low * (high / low) ** (i / (max_count - 1)) - 1
        free = [at for at in range(len(steps)) if at not in chosen]
        chosen.add(min(free, key=lambda at: abs(steps[at] - step)))
    return [steps[at] for at in sorted(chosen)]


def ablation_view(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of an ablation on the same held-out sequences, with a summary.

    The `set` is each single component, each group, or keeping only one head or one group of heads.
    The largest drop is first (keep only: the smallest).
    """
    method, which = (
        choice_field(request, "how", METHODS),
        choice_field(request, "set", ABLATION_SETS),
    )
    config = subject.transformer.config
    passes = (
        3
        + {
            "single": len(all_components(config)),
            "groups": len(component_groups(config)),
            "keep": len(all_heads(config)) + len(component_groups(config)),
        }[which]
    )
    n = sequences_within_budget(subject, passes, TIME_BUDGET)
    ablation = Ablation(subject, n)
    ranking = {
        "single": ablation.rank_components,
        "groups": ablation.rank_groups,
        "keep": ablation.rank_keep_only,
    }[which]
    effects = ranking(method)
    return {
        "how": method,
        "set": which,
        "sequences": len(ablation.batch.source_BS),
        "fewer": n < NUM_SEQUENCES,
        "lengths": length_range(subject),
        "before": _score_fields(ablation.baseline),
        "rows": [
            {
                "name": effect.name,
                "parts": [part.name for part in effect.components],
                **_score_fields(effect.ablated),
            }
            for effect in effects
        ],
        "finding": summarize_ablation(ablation, effects, which, method),
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
    each = (time.perf_counter() - start) / len(ablation.batch.source_BS)
    return max(MIN_SEQUENCES, min(NUM_SEQUENCES, int(seconds / (passes * each))))


def summarize_ablation(
    ablation: Ablation, effects: list[AblationEffect], which: str, method: str
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
    least = min(effects, key=lambda effect: effect.exact_match_drop)
    if which == "groups":
        missed = [effect.name for effect in effects if effect.exact_match_drop < NEGLIGIBLE_DROP]
        if missed:
            return (
                f"The ablation of each of these groups lowers exact match by less than "
                f"{format_percent(NEGLIGIBLE_DROP)}: {'; '.join(missed)}."
            )
        return (
            f"Every group is needed: the smallest drop is that of {least.name}, to an exact match "
            f"of {format_percent(least.ablated.exact_match)}."
        )
    if which == "keep":
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
    singles = [effect for effect in effects if effect.components[0].head is not None]
    worst = max(singles, key=lambda effect: effect.exact_match_drop)
    spare = [
        effect.components[0] for effect in singles if effect.exact_match_drop < NEGLIGIBLE_DROP
    ]
    max_effect = (
        f"The head with the largest effect is {worst.name}: without it, exact match is "
        f"{format_percent(worst.ablated.exact_match)}."
    )
    if not spare and len(singles) > 1:
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
        if "redundant" in together
        else ""
    )
    return f"{lead} {together}{hint}"


def describe_redundant_heads(ablation: Ablation, singles: list[AblationEffect], method: str) -> str:
    """Describe whether heads with a negligible effect are unneeded or redundant.

    `singles` are the effects of every single head. One more pass ablates all heads with a
    negligible effect together. Returns "" if there are fewer than two of them.
    """
    spare = [effect for effect in singles if effect.exact_match_drop < NEGLIGIBLE_DROP]
    if len(spare) < 2:
        return ""
    together = ablation.ablate([effect.components[0] for effect in spare], method)
    added = sum(effect.exact_match_drop for effect in spare)
    each = (
        f"{len(spare)} of {len(singles)} heads have a negligible effect one at a time, each a drop "
        f"of less than {format_percent(NEGLIGIBLE_DROP)}; without all {len(spare)} together, exact "
        f"match is {format_percent(together.ablated.exact_match)}"
    )
    if together.exact_match_drop < NEGLIGIBLE_DROP:
        return f"{each}: this task does not need them."
    if together.exact_match_drop < added + SUPERADDITIVE_DROP:
        return f"{each}: about the sum of the single drops, so each of them contributes a little."
    return (
        f"{each}, far less than the sum of the single drops predicts. These heads are redundant: "
        "other heads compensate for a missing one. A head with a negligible effect may still have "
        "a function."
    )


@torch.no_grad()
def ablated_answer(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the output for the user's sequence, intact and ablated.

    The ablation is that of the chosen components, or of all heads except the chosen ones.
    """
    batch, method = subject.encode_text(text_of(request)), choice_field(request, "how", METHODS)
    components = {part.name: part for part in all_components(subject.transformer.config)}
    names, keep = request.get("parts", []), request.get("keep") is True
    if (
        not isinstance(names, list)
        or len(names) > len(components)
        or not all(isinstance(name, str) for name in names)
    ):
        raise InspectionError(
            f"parts is a list of up to {len(components)} names, such as {next(iter(components))!r}"
        )
    unknown = [name for name in names if name not in components]
    if unknown:
        raise InspectionError(
            f"there is no {unknown[0][:60]!r} in this model; its components have names such as "
            f"{next(iter(components))!r}"
        )
    chosen = {components[name] for name in names}
    if keep:
        chosen = set(all_heads(subject.transformer.config)) - chosen
    n = (
        sequences_within_budget(subject, 1, SHORT_TIME_BUDGET)
        if chosen and method == "mean"
        else MIN_SEQUENCES
    )
    values = Ablation(subject, n).replacements(chosen, method) if chosen else {}
    in_place = _answer_with_replacements(subject, batch, {})
    return {
        "source": subject.token_names(batch.source_BS[0].tolist()),
        "whole": in_place,
        "without": _answer_with_replacements(subject, batch, values) if chosen else in_place,
        "symbols": list(subject.task.vocabulary.symbols),
        "parts": list(components),
        "groups": {
            name: [part.name for part in parts]
            for name, parts in component_groups(subject.transformer.config).items()
        },
        **answer_fields(subject, batch, in_place["written"]),
    }


def _answer_with_replacements(
    subject: InspectedModel, batch: Batch, values: Mapping[Component, Tensor]
) -> dict[str, Any]:
    """Return the output with replaced components, and the log-probability of the target in nats."""
    with replace_outputs(subject.transformer, values):
        written = subject.generated_tokens(batch)
        log_BTV = subject.transformer(batch.source_BS, batch.decoder_input_BT).log_softmax(-1)
    log_probability = log_BTV.gather(-1, batch.labels_BT[..., None]).sum(dtype=torch.double)
    return {"written": written, "log_probability": json_number(float(log_probability))}


def activation_patching(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the activation patching of one source token.

    The default replacement is the next symbol of the vocabulary.
    """
    text, symbol, vocabulary = text_of(request), request.get("symbol"), subject.task.vocabulary
    tokens = subject.encode_text(text).source_BS[0, :-1].tolist()
    place = int_field(request, "source_position", 0, len(tokens) - 1)
    if symbol is None:
        symbol = vocabulary.symbols[
            (vocabulary.symbols.index(vocabulary.token_name(tokens[place])) + 1)
            % len(vocabulary.symbols)
        ]
    if not isinstance(symbol, str):
        raise InspectionError(f"symbol is {str(symbol)[:20]}; give one of {vocabulary.describe()}")
    patching_result = patch_heads(subject, text, place, symbol)
    return {
        "source": subject.token_names(patching_result.clean_source),
        "changed": subject.token_names(patching_result.corrupted_source),
        "source_position": place,
        "symbol": vocabulary.token_name(patching_result.corrupted_source[place]),
        "position": patching_result.position,
        "token": vocabulary.token_name(patching_result.clean_token),
        "other": vocabulary.token_name(patching_result.corrupted_token),
        "before": json_number(patching_result.clean_logit_diff),
        "after": json_number(patching_result.corrupted_logit_diff),
        "heads": [
            {**head_id(head), "recovered": json_number(share)}
            for head, share in patching_result.recovered_fraction.items()
        ],
    }


def lens(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the logit lens of a teacher-forced pass; layer 0 is the embedding."""
    batch = subject.encode_text(text_of(request))
    probabilities_LTV = logit_lens(subject.transformer, batch)[:, 0].softmax(-1)
    best = probabilities_LTV.topk(min(TOP_K, probabilities_LTV.shape[-1]))
    right_LT = probabilities_LTV.gather(
        -1, batch.labels_BT[0].expand(len(probabilities_LTV), -1)[..., None]
    )[..., 0]
    layers = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return {
        "layers": [
            "embedding",
            *(f"layer {layer + 1}" for layer in range(subject.transformer.config.n_layers)),
        ],
        "decoder_input": subject.token_names(batch.decoder_input_BT[0].tolist()),
        "right": subject.token_names(batch.labels_BT[0].tolist()),
        "vocabulary": subject.token_names(list(range(probabilities_LTV.shape[-1]))),
        "candidates": [
            [
                list(zip(subject.token_names(tokens), map(json_number, values), strict=True))
                for tokens, values in zip(*layer, strict=True)
            ]
            for layer in layers
        ],
        "of_right": [[json_number(p) for p in row] for row in right_LT.tolist()],
        **answer_fields(subject, batch, subject.generated_tokens(batch)),
    }


def logit_attribution(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the direct logit attribution of `symbol` at an output position.

    The default `symbol` is the target. With `against`, it is that of the logit difference; the
    default `against` is the most likely other token, and "" is none.
    """
    batch = subject.encode_text(text_of(request))
    names, labels = (
        subject.token_names(list(range(subject.transformer.config.target_vocab_size))),
        batch.labels_BT[0].tolist(),
    )
    position = int_field(request, "position", 0, len(labels) - 1)
    with torch.no_grad():
        logits_V = subject.transformer(batch.source_BS, batch.decoder_input_BT)[0, position]
    token = token_id_field(request, "symbol", names, labels[position])
    runner_up = next(
        other for other in logits_V.topk(min(2, len(names))).indices.tolist() if other != token
    )
    against = (
        None
        if request.get("against") == ""
        else token_id_field(request, "against", names, runner_up)
    )
    if against == token:
        raise InspectionError(
            f"symbol and against are both {names[token]}; compare with another symbol"
        )
    parts = direct_logit_attribution(subject.transformer, batch, position, token, against)
    return {
        "position": position,
        "symbol": names[token],
        "against": None if against is None else names[against],
        "runner_up": names[runner_up],
        "parts": [{"name": part.name, "logit": json_number(part.logit)} for part in parts],
        "sum": json_number(sum(part.logit for part in parts)),
        "logit": json_number(
            float(logits_V[token] - (0 if against is None else logits_V[against]))
        ),
    }


def head_id(head: Component) -> dict[str, Any]:
    """Return the fields that identify a head; layers and heads count from 1, as in its name."""
    return {
        "name": head.name,
        "kind": head.kind,
        "layer": (head.layer or 0) + 1,
        "head": (head.head or 0) + 1,
    }


def _score_fields(score: Any) -> dict[str, Any]:
    return {
        "exact_match": json_number(score.exact_match),
        "log_probability": json_number(score.log_prob),
    }


def json_numbers(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: json_number(value) for name, value in values.items()}


def length_range(subject: InspectedModel) -> list[int]:
    """Return the minimum and maximum length of the held-out sequences."""
    return [subject.config.task.min_length, subject.config.task.max_length]


def token_id_field(request: dict[str, Any], name: str, names: list[str], default: int) -> int:
    """Return the id of a token that the request names; `default` is the default."""
    value = request.get(name)
    if value is None:
        return default
    if value not in names:
        raise InspectionError(f"{name} is {str(value)[:20]!r}; choose one of {' '.join(names)}")
    return names.index(value)


VIEWS: dict[str, Callable[[InspectedModel, dict[str, Any]], dict[str, Any]]] = {
    "heads": head_scores,
    "heads-over-training": heads_over_training,
    "away": ablation_view,
    "away-answer": ablated_answer,
    "patch": activation_patching,
    "lens": lens,
    "contributions": logit_attribution,
}
