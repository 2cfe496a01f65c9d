"""What is known of a task, for the line under its field: what is done, on an example, and how hard it was measured to be."""

from __future__ import annotations

import html
import json
from functools import lru_cache
from statistics import median
from typing import Any

from playground import ASSETS_DIR
from playground.tasks import TASKS

MEASURED = ASSETS_DIR / "benchmarks" / "results" / "tasks.json"  # python -m benchmarks tasks


def task_in_html(task: Any) -> str:
    """The lines under the task's field; nothing for rows, which have a panel of their own."""
    about = TASKS.get(task) if isinstance(task, str) else None
    if about is None:
        return ""
    question, answer = (html.escape(each) for each in about.example)
    least = f"<p>Sequences have {about.shortest} symbols or more.</p>" if about.shortest > 1 else ""
    line = measured().get(task, "")
    hard = (
        f'<p title="Measured by python -m benchmarks tasks">{html.escape(line)}</p>' if line else ""
    )
    return f'<p>{html.escape(about.sentence)}</p><p class="example">{question} → {answer}</p>{least}{hard}'


@lru_cache(maxsize=1)
def measured() -> dict[str, str]:
    """How hard each task was measured to be, as a sentence; nothing where the measurements are not there."""
    try:
        rows = json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]
    except (OSError, ValueError, KeyError):
        return {}
    return {row["task"]: in_words(row) for row in rows}


def in_words(row: dict[str, Any]) -> str:
    """A row of the benchmark as a sentence."""
    seeds, steps = row["seeds"], row["steps"]
    low, high = row.get("lengths", [1, 10])
    where = f"fast preset over {row['budget']} steps, lengths {low} to {high}, {seeds} seed{'s' * (seeds != 1)}"
    if len(steps) == seeds:
        return f"Measured: 99 % exact match after {median(steps):g} steps ({where})."
    lowest = int(1000 * min(row["scores"])) / 10
    if steps:
        return f"Measured: {len(steps)} of {seeds} runs reach 99 % exact match, the worst ends at {lowest:g} % ({where})."
    return f"Measured: {lowest:g} % exact match, no run reaches 99 % ({where})."
