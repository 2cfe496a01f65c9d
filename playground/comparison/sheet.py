"""The table as files. Works on what a table has told so far, so that one that was cancelled can be kept, too. Imports nothing heavy."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

COLUMNS = (
    "model", "what", "way", "exact_match", "exact_match_low", "exact_match_high", "token_accuracy", "token_accuracy_low",
    "token_accuracy_high", "rank_accuracy", "rank_accuracy_low", "rank_accuracy_high", "rank_chance", "n", "symbols", "ranked",
    "parameters", "examples", "seconds_an_item", "rank_seconds_an_item", "weights_bytes", "grown_bytes", "note", "error",
)  # fmt: skip
ITEM_COLUMNS = (
    "model",
    "way",
    "number",
    "question",
    "answer",
    "raw",
    "read",
    "right",
    "places",
    "rank",
    "candidates",
    "seconds",
    "prompt",
)


def standing(told: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The latest row of every model, of all that a table has told."""
    latest: dict[int, dict[str, Any]] = {}
    for row in told:
        if row.get("kind") == "model":
            latest[row["place"]] = row
    return [latest[place] for place in sorted(latest)]


def to_csv(told: Iterable[dict[str, Any]]) -> str:
    """One line a model."""
    return _lines(COLUMNS, standing(told))


def items_to_csv(told: Iterable[dict[str, Any]]) -> str:
    """One line for each item of each model."""
    rows = []
    for row in told:
        if row.get("kind") == "item":
            read = " ".join(each or "?" for each in row["read"] or [])
            places = "".join("1" if right else "0" for right in row["places"])
            rows.append(
                row
                | {
                    "right": int(row["right"]),
                    "read": read,
                    "candidates": len(row["candidates"]),
                    "places": places,
                }
            )
    return _lines(ITEM_COLUMNS, rows)


def to_json(
    told: Iterable[dict[str, Any]], result: dict[str, Any] | None = None, indent: int | None = 1
) -> str:
    """Everything: the caption and the settings where the table is done, every model, every leak, every item."""
    told = list(told)
    rest = {
        "leaks": [row for row in told if row.get("kind") == "leak"],
        "items": [row for row in told if row.get("kind") == "item"],
    }
    return json.dumps(
        (result or {"rows": standing(told)}) | rest,
        indent=indent,
        allow_nan=False,
        ensure_ascii=False,
    )


def _lines(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
