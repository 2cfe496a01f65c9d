"""The scores of attention heads on known patterns.

They are computed on held-out sequences, so they do not depend on the user's sequence.
"""

from typing import Any

from playground.inspection import head_patterns as scoring
from playground.inspection.inspected_model import InspectedModel

from .request import ViewRequest, json_number
from .shared_fields import head_id, json_numbers, length_range


def head_scores(subject: InspectedModel, request: ViewRequest) -> dict[str, Any]:
    """Return the scores of every head over held-out sequences, and a description of each."""
    batch = subject.held_out(scoring.NUM_SEQUENCES).batch
    rows = [
        {
            **head_id(score.head),
            "patterns": json_numbers(score.patterns),
            "chance": json_numbers(score.uniform_baseline),
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
