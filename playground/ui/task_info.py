"""Describe a task below its field: the rule, an example, and its measured difficulty."""

import html
import json
from functools import lru_cache
from statistics import median
from typing import Any

from playground import ASSETS_DIR
from playground.tasks import TASKS

# Written by `python -m benchmarks tasks`
DIFFICULTY_RESULTS = ASSETS_DIR / "benchmarks" / "results" / "tasks.json"


def task_description_html(task: Any) -> str:
    """Return the description of a task as HTML; empty for user data."""
    spec = TASKS.get(task) if isinstance(task, str) else None
    if spec is None:
        return ""
    source, target = (html.escape(text) for text in spec.example)
    min_length_html = (
        f"<p>Sequences have {spec.min_length} tokens or more.</p>" if spec.min_length > 1 else ""
    )
    difficulty, conditions = measured_difficulty().get(task, ("", ""))
    difficulty_html = (
        f'<p title="{html.escape(conditions)}">{html.escape(difficulty)}</p>' if difficulty else ""
    )
    return (
        f'<p>{html.escape(spec.description)}</p><p class="example">{source} → '
        f"{target}</p>{min_length_html}{difficulty_html}"
    )


@lru_cache(maxsize=1)
def measured_difficulty() -> dict[str, tuple[str, str]]:
    """Return the measured difficulty of each task with its conditions; {} without measurements."""
    try:
        rows = json.loads(DIFFICULTY_RESULTS.read_text(encoding="utf-8"))["rows"]
    except (OSError, ValueError, KeyError):
        return {}
    return {row["task"]: format_difficulty(row) for row in rows}


def format_difficulty(row: dict[str, Any]) -> tuple[str, str]:
    """Return the difficulty and the conditions of its measurement as text."""
    seeds, steps = row["seeds"], row["steps"]
    low, high = row.get("lengths", [1, 10])
    conditions = (
        f"Measured by python -m benchmarks tasks: 99 % exact match, fast preset, {row['budget']} "
        f"steps, lengths {low} to {high}, {seeds} seed{'s' * (seeds != 1)}"
    )
    if len(steps) == seeds:
        return f"Solved in about {median(steps):g} steps with Fast.", conditions
    min_score = int(1000 * min(row["scores"])) / 10
    if steps:
        return (
            f"Solved with Fast in {len(steps)} of {seeds} runs; the worst reaches {min_score:g} % "
            "exact match.",
            conditions,
        )
    return f"Not solved with Fast: {min_score:g} % exact match.", conditions
