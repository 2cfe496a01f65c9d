"""Compare the page before and after its optimization.

The old figures come from the history of this repository.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from statistics import median
from typing import Any

from ._results import RESULTS_DIR, load_results

# The name of the figure, its subset, how it follows from the rows, and the earlier commit.
FIGURES: tuple[tuple[str, str, Callable[[Any], float], str], ...] = (
    (
        "a poll, milliseconds until its answer (median)",
        "watching",
        lambda rows: rows["poll_ms"]["median"],
        "06170d9",
    ),
    (
        "a poll, the same (95th percentile)",
        "watching",
        lambda rows: rows["poll_ms"]["p95"],
        "06170d9",
    ),
    (
        "speed of training beside 16 watchers, to training alone (median of pairs)",
        "watching",
        lambda rows: median(each["watched"] / each["alone"] for each in rows["rounds"]),
        "06170d9",
    ),
    (
        "click on Train to the first point on screen, seconds",
        "page",
        lambda rows: median(rows["first_point_seconds"]),
        "06170d9",
    ),
    (
        "click on Train to the end of the default run on screen, seconds",
        "page",
        lambda rows: median(rows["done_seconds"]),
        "06170d9",
    ),
    (
        "`python app.py` to a page that answers, seconds",
        "startup",
        lambda rows: median(rows["page_seconds"]),
        "2beba3d",
    ),
)


def measure() -> dict[str, Any]:
    """Return both figures of each line, with their dates."""
    lines = []
    for name, subset, figure, commit in FIGURES:
        earlier = subprocess.run(
            ["git", "show", f"{commit}:benchmarks/results/{subset}.json"],
            cwd=RESULTS_DIR,
            check=True,
            capture_output=True,
            text=True,
        )
        before, now = json.loads(earlier.stdout), load_results(subset)
        if now is not None:
            line = {
                when: {"date": results["date"], "figure": round(figure(results["rows"]), 3)}
                for when, results in (("before", before), ("now", now))
            }
            lines.append({"figure_name": name, "subset": subset, "commit": commit, **line})
    return {"lines": lines}


def table(rows: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    lines = ["| figure | before (commit) | now | measured by |", "|---|---|---|---|"]
    for line in rows["lines"]:
        before, now = (
            f"{line['before']['figure']:g} ({line['commit']})",
            f"{line['now']['figure']:g}",
        )
        lines += [f"| {line['figure_name']} | {before} | {now} | {line['subset']} |"]
    return "\n".join(lines)
