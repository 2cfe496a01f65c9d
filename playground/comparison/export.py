"""Export of the benchmark table as CSV and JSON, without heavy imports.

It works on the rows received so far, so that the table of a cancelled job can be exported too.
"""

import json
from collections.abc import Iterable
from typing import Any

from playground.common.format import format_csv, format_percent

RESULT_COLUMNS = (
    "model",
    "description",
    "decoding",
    "exact_match",
    "exact_match_low",
    "exact_match_high",
    "token_accuracy",
    "token_accuracy_low",
    "token_accuracy_high",
    "rank_accuracy",
    "rank_accuracy_low",
    "rank_accuracy_high",
    "rank_chance",
    "n",
    "n_tokens",
    "ranked",
    "parameters",
    "n_few_shot",
    "seconds_per_example",
    "rank_seconds_per_example",
    "weights_bytes",
    "added_bytes",
    "caveat",
    "error",
)


def latest_rows(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    latest: dict[int, dict[str, Any]] = {}
    for row in events:
        if row.get("kind") == "model":
            latest[row["index"]] = row
    return [latest[index] for index in sorted(latest)]


def to_csv(events: Iterable[dict[str, Any]]) -> str:
    """Return a CSV with one line per model."""
    rows = [[row.get(name) for name in RESULT_COLUMNS] for row in latest_rows(events)]
    return format_csv([RESULT_COLUMNS, *rows])


def to_json(
    events: Iterable[dict[str, Any]], result: dict[str, Any] | None = None, indent: int | None = 1
) -> str:
    """Return all models, leaks and examples as JSON, and of a finished job the settings too."""
    events = list(events)
    rest = {
        "leaks": [row for row in events if row.get("kind") == "leak"],
        "examples": [row for row in events if row.get("kind") == "example"],
    }
    return json.dumps(
        (result or {"rows": latest_rows(events)}) | rest,
        indent=indent,
        allow_nan=False,
        ensure_ascii=False,
    )


def format_row(row: dict[str, Any]) -> str:
    """Format a row of the table for a terminal."""

    def share(name: str) -> str:
        if row[name] is None:
            return f"{'-':>19}"
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        return f"{format_percent(row[name]):>7} " + (
            f"[{low:4.0%}, {high:4.0%}]" if low is not None else " " * 12
        )

    text = f"{row['model'][:34]:34} {share('exact_match')} {share('token_accuracy')}"
    text += f" {share('rank_accuracy')}"
    text += f" {row['parameters'] or 0:>13,}" if row["parameters"] else f" {'':>13}"
    return text + (f"  {row['error']}" if row["error"] else f"  {row['decoding']}")
