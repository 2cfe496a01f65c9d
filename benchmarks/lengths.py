"""Length generalization of the position encodings: the prepared experiment."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from playground.cli.experiments import run_experiment
from playground.experiments.presets import spec

from ._results import COMMIT_AT_START

LENGTHS = (10, 11, 12, 15, 20, 50)  # lengths that the table names; training ends at 10
SEEDS = 10


def measure() -> list[dict[str, Any]]:
    """Return a row for each scheme, and a last one for the whole experiment."""
    return evaluate_lengths("positions", SEEDS)


def evaluate_lengths(name: str, seeds: int) -> list[dict[str, Any]]:
    """Run a prepared experiment that trains and then evaluates every length, with `seeds` seeds.

    Returns a row for each variant, and a last one for the whole experiment.
    """
    # an experiment that is cut off goes on
    scratch = (
        Path(tempfile.gettempdir()) / f"playground-benchmark-{name}-{COMMIT_AT_START['commit']}"
    )
    started_at = read_seconds(scratch)
    started = time.monotonic()
    try:
        experiment = spec(name) | {"seeds": list(range(seeds))}
        results = run_experiment(experiment, scratch / "runs")["lengths"]
    finally:
        seconds = started_at + time.monotonic() - started
        scratch.mkdir(parents=True, exist_ok=True)
        (scratch / "seconds").write_text(str(seconds), encoding="utf-8")
    shutil.rmtree(scratch)
    keys = ("label", "n", "lengths", "median", "low", "high", "reach", "beyond", "untrained")
    rows = [{key: row[key] for key in keys} for row in results["rows"]]
    return [
        *rows,
        {
            "seconds": round(seconds),
            "runs": sum(row["n"] for row in rows),
            "summary": results["summary"],
        },
    ]


def read_seconds(scratch: Path) -> float:
    """Return the seconds of earlier, interrupted attempts."""
    try:
        return float((scratch / "seconds").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0.0


def table(
    rows: list[dict[str, Any]], metric: str = "positions", label: tuple[int, ...] = LENGTHS
) -> str:
    """Format the rows as Markdown."""
    *cells, summary = rows
    lines = [
        f"| {metric} | 99 % exact match up to length: median (range) | "
        f"{' | '.join(f'length {at}' for at in label)} |",
        f"|---|---|{'---|' * len(label)}",
    ]
    for row in cells:
        reach = row["reach"]
        scores = zip(row["median"], row["low"], row["high"], strict=True)
        by_length = dict(
            zip(row["lengths"], (format_scores(*each) for each in scores), strict=True)
        )
        shares = " | ".join(by_length.get(at, "") for at in label)
        lines.append(
            f"| {row['label']} | {reach['median']:g} ({reach['low']:g} to {reach['high']:g}) | "
            f"{shares} |"
        )
    lines += [
        "",
        f"{summary['runs']} runs, trained and evaluated in {summary['seconds'] / 60:.1f} minutes.",
    ]
    return "\n".join(lines)


def format_scores(median: float, low: float, high: float) -> str:
    """Format a median, with the range over the seeds where they differ."""
    return f"{median:.1%}" + (f" ({low:.1%} to {high:.1%})" if low < high else "")
