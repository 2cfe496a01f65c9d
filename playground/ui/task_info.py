"""Describe a task below its field: the rule, an example, and its measured difficulty."""

import json
from functools import lru_cache
from statistics import median
from typing import Any

from playground import ASSETS_DIR
from playground.tasks import TASKS

# Written by `python -m benchmarks tasks`
DIFFICULTY_RESULTS = ASSETS_DIR / "benchmarks" / "results" / "tasks.json"


def describe_task(name: str) -> dict[str, str]:
    """Return the description of a built-in task; what does not apply to it is empty."""
    task = TASKS[name]
    difficulty, conditions = measured_difficulty().get(name, ("", ""))
    has_minimum = task.min_length > 1
    return {
        "description": task.description,
        "example": " → ".join(task.example),
        "lengths": f"Sequences have {task.min_length} tokens or more." * has_minimum,
        "difficulty": difficulty,
        "conditions": conditions,
    }


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
    runs = f"{seeds} seed{'s' * (seeds != 1)}"
    low, high = row.get("lengths", [1, 10])
    conditions = (
        f"Measured by python -m benchmarks tasks: 99 % exact match, fast preset, {row['budget']} "
        f"steps, lengths {low} to {high}, {runs}"
    )
    if len(steps) == seeds:
        return f"Solved in about {median(steps):g} steps with Fast ({runs}).", conditions
    min_score = int(1000 * min(row["scores"])) / 10
    if steps:
        return (
            f"Solved with Fast in {len(steps)} of {seeds} runs; the worst reaches {min_score:g} % "
            "exact match.",
            conditions,
        )
    return f"Not solved with Fast: {min_score:g} % exact match ({runs}).", conditions
