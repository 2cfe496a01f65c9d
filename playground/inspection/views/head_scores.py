"""The scores of attention heads on known patterns, after and during training.

They are computed on held-out sequences, so they do not depend on the user's sequence.
"""

import time
from pathlib import Path
from typing import Any

from pydantic import Field

from playground.inspection import head_patterns as scoring
from playground.inspection.hooks import all_heads
from playground.inspection.inspected_model import InspectedModel, InspectionError

from .request import ViewRequest, json_number
from .shared_fields import head_id, json_numbers, length_range

MAX_STEPS, MIN_STEPS = 24, 6
TIME_BUDGET = 60.0  # seconds; a slow model is measured at fewer steps


class HistoryRequest(ViewRequest):
    """The stored weights of a run, by step."""

    history: dict[int, Path] = Field(default_factory=dict)


def head_scores(subject: InspectedModel, request: ViewRequest) -> dict[str, Any]:
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
            "clarity": json_number(score.clarity),
            "is_clear": score.is_clear,
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


def heads_over_training(subject: InspectedModel, request: HistoryRequest) -> dict[str, Any]:
    """Return the scores at up to `MAX_STEPS` training steps, or fewer for a slow model.

    The steps are log-spaced, because most changes happen early.
    """
    history = request.history
    if len(history) < 2:
        raise InspectionError(
            "only runs store the weights of earlier steps; this model has only its current weights"
        )
    batch = subject.held_out(scoring.NUM_SEQUENCES).batch
    scoring.score_heads(subject, batch)
    start = time.perf_counter()
    scoring.score_heads(subject, batch)
    max_affordable = int(TIME_BUDGET / (time.perf_counter() - start))
    steps = log_spaced(sorted(history), max(MIN_STEPS, min(MAX_STEPS, max_affordable)))
    scores_by_step = scoring.scores_over_training(
        subject.config, {step: history[step] for step in steps}
    )
    rows = []
    for index, head in enumerate(all_heads(subject.transformer.config)):
        scores = [scores_by_step[step][index] for step in steps]
        rows.append(
            {
                **head_id(head),
                "patterns": {
                    name: [json_number(score.patterns[name]) for score in scores]
                    for name in scoring.PATTERNS
                },
                "chance": json_numbers(scores[-1].uniform_baseline),
                "aligned": [json_number(score.alignment_fraction) for score in scores],
                "entropy": [json_number(score.entropy) for score in scores],
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
    """Select at most `max_count` of the sorted steps, with both ends, evenly in log(1 + step)."""
    if len(steps) <= max_count:
        return steps
    low, high = steps[0] + 1, steps[-1] + 1
    chosen = {0, len(steps) - 1}
    for i in range(1, max_count - 1):
        step = low * (high / low) ** (i / (max_count - 1)) - 1
        free = [index for index in range(len(steps)) if index not in chosen]
        chosen.add(min(free, key=lambda index: abs(steps[index] - step)))
    return [steps[index] for index in sorted(chosen)]
