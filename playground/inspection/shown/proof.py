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

from playground.inspection import heads as scoring
from playground.inspection.ablation import SEQUENCES, WAYS, Ablation, Effect
from playground.inspection.components import Component, components, groups, heads, replaced
from playground.inspection.lens import contributions, logit_lens
from playground.inspection.patching import patch_heads
from playground.inspection.subject import NotInspectable, Subject
from playground.statistics import percent
from playground.tasks.task import Batch

from .looking import said
from .request import one_of, plain, whole
from .request import text as text_of

SETS = ("single", "groups", "keep")
MOST_STEPS, FEWEST_STEPS = 24, 6
PATIENCE = 60.0  # seconds; a large model is measured on fewer sequences, and the result says so
SHORT_PATIENCE = 2.0  # seconds, for interactive requests
FEWEST = 32  # sequences
CANDIDATES = 3
SPARE = 0.02  # a smaller drop of exact match is negligible
# Components are redundant if their joint drop exceeds the sum of the single drops by this.
CLEARLY_MORE = 0.1
LEARNED = 0.5  # below this exact match, a drop of exact match is not informative


def head_scores(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of every head over held-out sequences, and a description of each."""
    batch = subject.held_out(scoring.SEQUENCES).batch
    rows = [
        {
            **_which(score.head),
            "patterns": _short_ones(score.patterns),
            "chance": _short_ones(score.chance),
            "entropy": _short(score.entropy),
            "most_entropy": _short(score.most_entropy),
            "aligned": _short(score.aligned),
            "distance": _short(score.distance),
            "best": score.best,
            "says": score.description,
        }
        for score in scoring.score_heads_on(subject, batch)
    ]
    return {
        "sequences": len(batch.source_BS),
        "lengths": _lengths(subject),
        "patterns": scoring.PATTERNS,
        "heads": rows,
    }


def heads_over_training(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the scores at up to `MOST_STEPS` training steps, or fewer for a slow model.

    The steps are log-spaced, because most changes happen early.

    Raises:
        NotInspectable: for a model without stored weights of earlier steps.
    """
    history: Mapping[int, Path] = request.get("history") or {}
    if len(history) < 2:
        raise NotInspectable(
            "only runs store the weights of earlier steps; this model has only its current weights"
        )
    batch = subject.held_out(scoring.SEQUENCES).batch
    scoring.score_heads_on(subject, batch)
    start = time.perf_counter()
    scoring.score_heads_on(subject, batch)
    affordable = int(PATIENCE / (time.perf_counter() - start))
    steps = log_spaced(sorted(history), max(FEWEST_STEPS, min(MOST_STEPS, affordable)))
    found = scoring.scores_over_training(subject.config, {step: history[step] for step in steps})
    rows = []
    for at, head in enumerate(heads(subject.family.config)):
        over = [found[step][at] for step in steps]
        rows.append(
            {
                **_which(head),
                "patterns": {
                    name: [_short(score.patterns[name]) for score in over]
                    for name in scoring.PATTERNS
                },
                "chance": _short_ones(over[-1].chance),
                "aligned": [_short(score.aligned) for score in over],
                "entropy": [_short(score.entropy) for score in over],
            }
        )
    return {
        "sequences": len(batch.source_BS),
        "lengths": _lengths(subject),
        "kept": len(history),
        "steps": steps,
        "heads": rows,
    }


def log_spaced(steps: list[int], most: int) -> list[int]:
    """Select at most `most` of the sorted steps, about evenly spaced in log(1 + step).

    The first and the last step are always included.
    """
    if len(steps) <= most:
        return steps
    low, high = steps[0] + 1, steps[-1] + 1
    chosen = {0, len(steps) - 1}
    for i in range(1, most - 1):
        wanted = low * (high / low) ** (i / (most - 1)) - 1
        free = [at for at in range(len(steps)) if at not in chosen]
        chosen.add(min(free, key=lambda at: abs(steps[at] - wanted)))
    return [steps[at] for at in sorted(chosen)]


def away(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of an ablation on the same held-out sequences, with a summary.

    The `set` is each single component, each group, or keeping only one head or one group of heads.
    The largest drop is first (keep only: the smallest).
    """
    how, which = one_of(request, "how", WAYS), one_of(request, "set", SETS)
    config = subject.family.config
    passes = (
        3
        + {
            "single": len(components(config)),
            "groups": len(groups(config)),
            "keep": len(heads(config)) + len(groups(config)),
        }[which]
    )
    n = affordable_sequences(subject, passes, PATIENCE)
    ablation = Ablation(subject, n)
    ranking = {
        "single": ablation.ranking,
        "groups": ablation.group_ranking,
        "keep": ablation.keep_only_ranking,
    }[which]
    effects = ranking(how)
    return {
        "how": how,
        "set": which,
        "sequences": len(ablation.batch.source_BS),
        "fewer": n < SEQUENCES,
        "lengths": _lengths(subject),
        "before": _score(ablation.before),
        "rows": [
            {
                "name": effect.name,
                "parts": [part.name for part in effect.parts],
                **_score(effect.after),
            }
            for effect in effects
        ],
        "finding": finding(ablation, effects, which, how),
    }


def affordable_sequences(subject: Subject, passes: int, seconds: float) -> int:
    """Return how many sequences allow `passes` passes of the model within `seconds`.

    It is at most `SEQUENCES` and at least `FEWEST`. The first pass is a warm-up and is not timed.
    """
    ablation = Ablation(subject, FEWEST)
    ablation.score({})
    start = time.perf_counter()
    ablation.score({})
    each = (time.perf_counter() - start) / len(ablation.batch.source_BS)
    return max(FEWEST, min(SEQUENCES, int(seconds / (passes * each))))


def finding(ablation: Ablation, effects: list[Effect], which: str, how: str) -> str:
    """Summarize a ranking in a sentence.

    Heads with a negligible effect are also ablated together, to test whether they are redundant.
    """
    before = ablation.before
    if before.exact_match < LEARNED:
        return (
            f"The intact model has an exact match of only {percent(before.exact_match)}, so a drop "
            "says little; compare the log-probabilities."
        )
    least = min(effects, key=lambda effect: effect.exact_match_lost)
    if which == "groups":
        missed = [effect.name for effect in effects if effect.exact_match_lost < SPARE]
        if missed:
            return (
                f"The ablation of each of these groups lowers exact match by less than "
                f"{percent(SPARE)}: {'; '.join(missed)}."
            )
        return (
            f"Every group is needed: the smallest drop is that of {least.name}, to an exact match "
            f"of {percent(least.after.exact_match)}."
        )
    if which == "keep":
        single = max(
            (e for e in effects if len(e.parts) == 1),
            key=lambda e: (e.after.exact_match, e.after.log_probability),
        )
        if single.exact_match_lost < SPARE:
            return (
                f"{single.name} is sufficient: with this head only, exact match is "
                f"{percent(single.after.exact_match)}."
            )
        alone = (
            f"No single head is sufficient: the best exact match is "
            f"{percent(single.after.exact_match)}, with {single.name}"
        )
        return alone + (
            f"; with {least.name}, {percent(least.after.exact_match)}."
            if len(least.parts) > 1
            else "."
        )
    singles = [effect for effect in effects if effect.parts[0].head is not None]
    worst = max(singles, key=lambda effect: effect.exact_match_lost)
    spare = [effect.parts[0] for effect in singles if effect.exact_match_lost < SPARE]
    most = (
        f"The head with the largest effect is {worst.name}: without it, exact match is "
        f"{percent(worst.after.exact_match)}."
    )
    if not spare and len(singles) > 1:
        least = min(singles, key=lambda effect: effect.exact_match_lost)
        return (
            f"Every head is needed: the smallest drop is that of {least.name}, to an exact match "
            f"of {percent(least.after.exact_match)}."
        )
    together = describe_spare_heads(ablation, singles, how)
    if not together:
        return most
    lead = most if worst.exact_match_lost >= SPARE else "No single head is needed."
    hint = (
        " See also the log-probability, the groups and keep only."
        if "redundant" in together
        else ""
    )
    return f"{lead} {together}{hint}"


def describe_spare_heads(ablation: Ablation, singles: list[Effect], how: str) -> str:
    """Describe whether heads with a negligible effect are unneeded or redundant.

    `singles` are the effects of every single head. One more pass ablates all heads with a
    negligible effect together. Returns "" if there are fewer than two of them.
    """
    spare = [effect for effect in singles if effect.exact_match_lost < SPARE]
    if len(spare) < 2:
        return ""
    together = ablation.without([effect.parts[0] for effect in spare], how)
    added = sum(effect.exact_match_lost for effect in spare)
    each = (
        f"{len(spare)} of {len(singles)} heads have a negligible effect one at a time, each a drop "
        f"of less than {percent(SPARE)}; without all {len(spare)} together, exact match is "
        f"{percent(together.after.exact_match)}"
    )
    if together.exact_match_lost < SPARE:
        return f"{each}: this task does not need them."
    if together.exact_match_lost < added + CLEARLY_MORE:
        return f"{each}: about the sum of the single drops, so each of them contributes a little."
    return (
        f"{each}, far less than the sum of the single drops predicts. These heads are redundant: "
        "other heads compensate for a missing one. A head with a negligible effect may still have "
        "a function."
    )


@torch.no_grad()
def away_answer(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the output for the user's sequence, intact and ablated.

    The ablation is that of the chosen components, or of all heads except the chosen ones.
    """
    batch, how = subject.read(text_of(request)), one_of(request, "how", WAYS)
    known = {part.name: part for part in components(subject.family.config)}
    names, keep = request.get("parts", []), request.get("keep") is True
    if (
        not isinstance(names, list)
        or len(names) > len(known)
        or not all(isinstance(name, str) for name in names)
    ):
        raise NotInspectable(
            f"parts is a list of up to {len(known)} names, such as {next(iter(known))!r}"
        )
    unknown = [name for name in names if name not in known]
    if unknown:
        raise NotInspectable(
            f"there is no {unknown[0][:60]!r} in this model; its components have names such as "
            f"{next(iter(known))!r}"
        )
    chosen = {known[name] for name in names}
    if keep:
        chosen = set(heads(subject.family.config)) - chosen
    n = affordable_sequences(subject, 1, SHORT_PATIENCE) if chosen and how == "mean" else FEWEST
    values = Ablation(subject, n).values(chosen, how) if chosen else {}
    in_place = _answered(subject, batch, {})
    return {
        "source": subject.names(batch.source_BS[0].tolist()),
        "whole": in_place,
        "without": _answered(subject, batch, values) if chosen else in_place,
        "symbols": list(subject.task.vocabulary.symbols),
        "parts": list(known),
        "groups": {
            name: [part.name for part in parts]
            for name, parts in groups(subject.family.config).items()
        },
        **said(subject, batch, in_place["written"]),
    }


def _answered(subject: Subject, batch: Batch, values: Mapping[Component, Tensor]) -> dict[str, Any]:
    """Return the output with replaced components, and the log-probability of the target in nats."""
    with replaced(subject.family, values):
        written = subject.written(batch)
        log_BTV = subject.family(batch.source_BS, batch.decoder_input_BT).log_softmax(-1)
    log_probability = log_BTV.gather(-1, batch.labels_BT[..., None]).sum(dtype=torch.double)
    return {"written": written, "log_probability": _short(float(log_probability))}


def patch(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the activation patching of one source token.

    The default replacement is the next symbol of the vocabulary.
    """
    text, symbol, vocabulary = text_of(request), request.get("symbol"), subject.task.vocabulary
    tokens = subject.read(text).source_BS[0, :-1].tolist()
    place = whole(request, "place", 0, len(tokens) - 1)
    if symbol is None:
        symbol = vocabulary.symbols[
            (vocabulary.symbols.index(vocabulary.name(tokens[place])) + 1) % len(vocabulary.symbols)
        ]
    if not isinstance(symbol, str):
        raise NotInspectable(f"symbol is {str(symbol)[:20]}; give one of {vocabulary.describe()}")
    found = patch_heads(subject, text, place, symbol)
    return {
        "source": subject.names(found.source),
        "changed": subject.names(found.changed),
        "place": place,
        "symbol": vocabulary.name(found.changed[place]),
        "position": found.position,
        "token": vocabulary.name(found.token),
        "other": vocabulary.name(found.other),
        "before": _short(found.before),
        "after": _short(found.after),
        "heads": [
            {**_which(head), "recovered": _short(share)} for head, share in found.recovered.items()
        ],
    }


def lens(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the logit lens of a teacher-forced pass; layer 0 is the embedding."""
    batch = subject.read(text_of(request))
    probabilities_LTV = logit_lens(subject.family, batch)[:, 0].softmax(-1)
    best = probabilities_LTV.topk(min(CANDIDATES, probabilities_LTV.shape[-1]))
    right_LT = probabilities_LTV.gather(
        -1, batch.labels_BT[0].expand(len(probabilities_LTV), -1)[..., None]
    )[..., 0]
    layers = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return {
        "layers": [
            "embedding",
            *(f"layer {layer + 1}" for layer in range(subject.family.config.n_layers)),
        ],
        "given": subject.names(batch.decoder_input_BT[0].tolist()),
        "right": subject.names(batch.labels_BT[0].tolist()),
        "vocabulary": subject.names(list(range(probabilities_LTV.shape[-1]))),
        "candidates": [
            [
                list(zip(subject.names(tokens), map(_short, values), strict=True))
                for tokens, values in zip(*layer, strict=True)
            ]
            for layer in layers
        ],
        "of_right": [[_short(p) for p in row] for row in right_LT.tolist()],
        **said(subject, batch, subject.written(batch)),
    }


def contribution(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the direct logit attribution of `symbol` at an output position.

    The default `symbol` is the target. With `against`, it is that of the logit difference; the
    default `against` is the most likely other token, and "" is none.
    """
    batch = subject.read(text_of(request))
    names, labels = (
        subject.names(list(range(subject.family.config.target_vocabulary))),
        batch.labels_BT[0].tolist(),
    )
    position = whole(request, "position", 0, len(labels) - 1)
    with torch.no_grad():
        logits_V = subject.family(batch.source_BS, batch.decoder_input_BT)[0, position]
    token = _token(request, "symbol", names, labels[position])
    runner_up = next(
        other for other in logits_V.topk(min(2, len(names))).indices.tolist() if other != token
    )
    against = None if request.get("against") == "" else _token(request, "against", names, runner_up)
    if against == token:
        raise NotInspectable(
            f"symbol and against are both {names[token]}; compare with another symbol"
        )
    parts = contributions(subject.family, batch, position, token, against)
    return {
        "position": position,
        "symbol": names[token],
        "against": None if against is None else names[against],
        "runner_up": names[runner_up],
        "parts": [{"name": part.name, "logit": _short(part.logit)} for part in parts],
        "sum": _short(sum(part.logit for part in parts)),
        "logit": _short(float(logits_V[token] - (0 if against is None else logits_V[against]))),
    }


def _which(head: Component) -> dict[str, Any]:
    """Return the fields that identify a head; layers and heads count from 1, as in its name."""
    return {
        "name": head.name,
        "kind": head.kind,
        "layer": (head.layer or 0) + 1,
        "head": (head.head or 0) + 1,
    }


def _score(score: Any) -> dict[str, Any]:
    return {
        "exact_match": _short(score.exact_match),
        "log_probability": _short(score.log_probability),
    }


def _short(value: float | None) -> float | None:
    """Round to six digits, which halves the size of the response."""
    return None if value is None else plain(value)


def _short_ones(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: _short(value) for name, value in values.items()}


def _lengths(subject: Subject) -> list[int]:
    """Return the minimum and maximum length of the held-out sequences."""
    return [subject.config.task.min_length, subject.config.task.max_length]


def _token(request: dict[str, Any], name: str, names: list[str], usual: int) -> int:
    """Return the id of a token that the request names; `usual` is the default."""
    value = request.get(name)
    if value is None:
        return usual
    if value not in names:
        raise NotInspectable(f"{name} is {str(value)[:20]!r}; choose one of {' '.join(names)}")
    return names.index(value)


VIEWS: dict[str, Callable[[Subject, dict[str, Any]], dict[str, Any]]] = {
    "heads": head_scores,
    "heads-over-training": heads_over_training,
    "away": away,
    "away-answer": away_answer,
    "patch": patch,
    "lens": lens,
    "contributions": contribution,
}
