"""What heads are for, and the proof: scores of every head, what is lost without a part, which head carries a symbol, and what
each layer and each part says. What is measured on held-out sequences takes no notice of the visitor's own.

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
PATIENCE = 60.0  # seconds that a large model may take; what would take longer is measured on less, and says so
SHORT_PATIENCE = 2.0  # likewise, where somebody waits for an answer
FEWEST = 32  # sequences
CANDIDATES = 3
SPARE = 0.02  # of exact match: a part whose loss costs less than this can be missed
CLEARLY_MORE = 0.1  # of exact match: parts that cost so much more together than one by one stand in for each other
LEARNED = 0.5  # exact match, below which a model has little to lose


def head_scores(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Every head's scores over held-out sequences, and in words what it looks like most."""
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
    """The same scores at up to MOST_STEPS steps of the run (fewer of a model that takes long), close together early on, where
    most of it happens.

    Raises:
        NotInspectable: for a model of which no earlier weights are kept.
    """
    history: Mapping[int, Path] = request.get("history") or {}
    if len(history) < 2:
        raise NotInspectable(
            "only runs keep the weights of earlier steps; this model has just the ones it has now"
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
    """At most so many of the steps (in order), the first and the last among them, about evenly spaced in log(1 + step)."""
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
    """What the model scores without each single part, without each group, or with one head or group of heads kept, on the same
    held-out sequences; the largest loss first (kept: the smallest), and a sentence on what that means."""
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
    """SEQUENCES, or fewer (FEWEST at least) where so many passes of the model over them would take longer than that.

    The first pass is not timed: it prepares what later passes find ready.
    """
    ablation = Ablation(subject, FEWEST)
    ablation.score({})
    start = time.perf_counter()
    ablation.score({})
    each = (time.perf_counter() - start) / len(ablation.batch.source_BS)
    return max(FEWEST, min(SEQUENCES, int(seconds / (passes * each))))


def finding(ablation: Ablation, effects: list[Effect], which: str, how: str) -> str:
    """In words, what a ranking shows. Whether heads that can be missed one at a time stand in for each other or do nothing is
    measured: they are all taken away together."""
    before = ablation.before
    if before.exact_match < LEARNED:
        return f"The whole model gets only {percent(before.exact_match)} right, so exact match has little to lose; go by the log-probability."
    least = min(effects, key=lambda effect: effect.exact_match_lost)
    if which == "groups":
        missed = [effect.name for effect in effects if effect.exact_match_lost < SPARE]
        if missed:
            return f"These groups can be missed as a whole, at less than {percent(SPARE)} of exact match: {'; '.join(missed)}."
        return f"No group can be missed: without {least.name}, which is missed least, {percent(least.after.exact_match)} stay right."
    if which == "keep":
        single = max(
            (e for e in effects if len(e.parts) == 1),
            key=lambda e: (e.after.exact_match, e.after.log_probability),
        )
        if single.exact_match_lost < SPARE:
            return f"{single.name} suffices: with it alone among the heads, {percent(single.after.exact_match)} stay right."
        alone = f"No head suffices alone: {percent(single.after.exact_match)} stay right at best, with {single.name}"
        return alone + (
            f"; with {least.name}, {percent(least.after.exact_match)}."
            if len(least.parts) > 1
            else "."
        )
    singles = [effect for effect in effects if effect.parts[0].head is not None]
    worst = max(singles, key=lambda effect: effect.exact_match_lost)
    spare = [effect.parts[0] for effect in singles if effect.exact_match_lost < SPARE]
    most = f"The head that is missed most is {worst.name}: without it, {percent(worst.after.exact_match)} stay right."
    if not spare and len(singles) > 1:
        least = min(singles, key=lambda effect: effect.exact_match_lost)
        return f"Every head is needed: without {least.name}, which is missed least, {percent(least.after.exact_match)} stay right."
    together = describe_spare_heads(ablation, singles, how)
    if not together:
        return most
    lead = most if worst.exact_match_lost >= SPARE else "No single head is needed."
    hint = " Log-probability, groups and keep only tell more." if "redundant" in together else ""
    return f"{lead} {together}{hint}"


def describe_spare_heads(ablation: Ablation, singles: list[Effect], how: str) -> str:
    """Whether heads that can be missed one at a time do nothing, a little, or stand in for each other.

    `singles` are the effects of every single head. This is measured by one more pass without all of
    the spare heads together; "" where fewer than two can be missed.
    """
    spare = [effect for effect in singles if effect.exact_match_lost < SPARE]
    if len(spare) < 2:
        return ""
    together = ablation.without([effect.parts[0] for effect in spare], how)
    added = sum(effect.exact_match_lost for effect in spare)
    each = (
        f"{len(spare)} of {len(singles)} heads can be missed one at a time, each at less than {percent(SPARE)} of exact match; "
        f"without all {len(spare)} together, {percent(together.after.exact_match)} stay right"
    )
    if together.exact_match_lost < SPARE:
        return f"{each}: what they do, this task does not need."
    if together.exact_match_lost < added + CLEARLY_MORE:
        return f"{each}: about what the single losses add up to, so each of them does a little."
    return (
        f"{each}, far fewer than the single losses add up to. These heads are redundant: where one is gone, others stand in for it. "
        "So that a head can be missed does not mean that it does nothing."
    )


@torch.no_grad()
def away_answer(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """The visitor's own sequence, answered with every part in place and without those chosen (or with no heads but those)."""
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
            f"there is no {unknown[0][:60]!r} in this model; its parts are named as in {next(iter(known))!r}"
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
    """What the model writes with values in the place of parts, and the log-probability of the whole right answer in nats."""
    with replaced(subject.family, values):
        written = subject.written(batch)
        log_BTV = subject.family(batch.source_BS, batch.decoder_input_BT).log_softmax(-1)
    log_probability = log_BTV.gather(-1, batch.labels_BT[..., None]).sum(dtype=torch.double)
    return {"written": written, "log_probability": _short(float(log_probability))}


def patch(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """One source symbol replaced, and what each head brings back of the right answer. Without a symbol, the next one of the
    vocabulary is taken."""
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
    """What each decoder layer would answer at each position, the right answer so far given. Layer 0 is the embedding."""
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
    """What every part adds to the logit of `symbol` (usually the right one) at an output position, less what it adds to that of
    `against` (usually the likeliest other one; "" for none)."""
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
    """A head as a page names it; layers and heads count from 1, as in its name."""
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
    """Six digits are more than anybody reads, and half as long to send."""
    return None if value is None else plain(value)


def _short_ones(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: _short(value) for name, value in values.items()}


def _lengths(subject: Subject) -> list[int]:
    """The shortest and the longest of the held-out sequences."""
    return [subject.config.task.min_length, subject.config.task.max_length]


def _token(request: dict[str, Any], name: str, names: list[str], usual: int) -> int:
    """The number of a token that is given by its name."""
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
