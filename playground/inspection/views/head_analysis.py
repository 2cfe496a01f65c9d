"""Views of held-out sequences: patterns of the heads, and components ranked by ablation.

They do not depend on the user's sequence. The page measures ablations of the models that it runs by
itself (ui/static/inspect/local_views.js).
"""

import time
from typing import Any

from playground.inspection import head_patterns as scoring
from playground.inspection.ablation import (
    NEGLIGIBLE_DROP,
    NUM_SEQUENCES,
    Ablation,
    AblationEffect,
    Method,
    Ranked,
    ablated_components,
)
from playground.inspection.inspected_model import InspectedModel

from .fields import ViewRequest, head_id, json_number, length_range

# seconds; a large model is measured on fewer sequences, and the result states it
TIME_BUDGET = 60.0
MIN_SEQUENCES = 32  # sequences


class RankingRequest(ViewRequest):
    """The ablations that are ranked."""

    method: Method = "mean"
    set: Ranked = "single"


def head_scores(subject: InspectedModel, request: ViewRequest) -> dict[str, Any]:
    """Return the scores of every head over held-out sequences, and a description of each."""
    batch = subject.held_out(scoring.NUM_SEQUENCES).batch
    rows = [
        {
            **head_id(score.head),
            "patterns": {name: json_number(x) for name, x in score.patterns.items()},
            "chance": {name: json_number(x) for name, x in score.uniform_baseline.items()},
            "entropy": json_number(score.entropy),
            "aligned": json_number(score.alignment_fraction),
            "distance": json_number(score.alignment_distance),
            "best": score.best_pattern,
            "clarity": json_number(score.clarity),
            "description": score.description,
        }
        for score in scoring.score_heads(subject, batch)
    ]
    return {
        "sequences": len(batch.source_BS),
        "lengths": length_range(subject),
        "patterns": scoring.PATTERNS,
        "heads": rows,
    }


def ablation_view(subject: InspectedModel, request: RankingRequest) -> dict[str, Any]:
    """Return the scores of ablations on the same held-out sequences.

    The largest drop is first (keep only: the smallest). Of single components, all heads with a
    negligible drop are also ablated together.
    """
    method, which = request.method, request.set
    passes = 3 + len(ablated_components(subject.transformer.config, which))
    n = sequences_within_budget(subject, passes, TIME_BUDGET)
    ablation = Ablation(subject, n)
    effects = ablation.rank(which, method)
    if which == "single":
        effects += _ablate_spared_heads(ablation, effects, method)
        effects.sort(key=lambda each: -each.log_prob_drop)
    return {
        "method": method,
        "set": which,
        "sequences": len(ablation.batch.source_BS),
        "is_reduced": n < NUM_SEQUENCES,
        "lengths": length_range(subject),
        "baseline": _score_fields(ablation.baseline),
        "rows": [{"name": effect.name, **_score_fields(effect.ablated)} for effect in effects],
    }


def _ablate_spared_heads(
    ablation: Ablation, effects: list[AblationEffect], method: Method
) -> list[AblationEffect]:
    """Ablate all heads with a negligible drop together, if there are at least two."""
    heads = [
        effect.components[0]
        for effect in effects
        if effect.components[0].head is not None and effect.exact_match_drop < NEGLIGIBLE_DROP
    ]
    name = f"all {len(heads)} heads that cost less than {100 * NEGLIGIBLE_DROP:g} points each"
    return [ablation.ablate(heads, method, name)] if len(heads) > 1 else []


def sequences_within_budget(subject: InspectedModel, passes: int, seconds: float) -> int:
    """Return how many sequences allow `passes` passes of the model within `seconds`.

    It is from `MIN_SEQUENCES` to `NUM_SEQUENCES`. The first pass is a warm-up and is not timed.
    """
    ablation = Ablation(subject, MIN_SEQUENCES)
    ablation.score()
    start = time.perf_counter()
    ablation.score()
    seconds_per_sequence = (time.perf_counter() - start) / len(ablation.batch.source_BS)
    n_affordable = int(seconds / (passes * seconds_per_sequence))
    return max(MIN_SEQUENCES, min(NUM_SEQUENCES, n_affordable))


def _score_fields(score: Any) -> dict[str, Any]:
    return {
        "exact_match": json_number(score.exact_match),
        "log_probability": json_number(score.log_prob),
    }
