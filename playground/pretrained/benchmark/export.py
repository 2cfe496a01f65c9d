"""The benchmark table as JSON and as text, without heavy imports.

It works on the rows received so far, so that the table of a cancelled job can be exported too.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypedDict

from playground.common.format import format_percent


class ModelRow(TypedDict):
    """The metrics of a model so far; None for those without a count."""

    kind: Literal["model"]
    index: int
    model: str
    description: str
    decoding: str
    exact_match: float | None
    exact_match_low: float | None
    exact_match_high: float | None
    token_accuracy: float | None
    token_accuracy_low: float | None
    token_accuracy_high: float | None
    only_this: int | None
    only_checkpoint: int | None
    p_value: float | None
    n: int
    n_tokens: int
    parameters: int | None
    n_few_shot: int | None
    seconds_per_example: float | None
    caveat: str
    error: str
    error_code: str
    finished: bool


def latest_rows(events: Iterable[Any]) -> list[ModelRow]:
    latest: dict[int, ModelRow] = {}
    for row in events:
        if row.get("kind") == "model":
            latest[row["index"]] = row
    return [latest[index] for index in sorted(latest)]


def to_json(events: Sequence[dict[str, Any]], result: dict[str, Any] | None = None) -> str:
    """Return all models and examples as JSON, and of a finished job the settings too."""
    return json.dumps(
        (result or {"rows": latest_rows(events)})
        | {"examples": [row for row in events if row.get("kind") == "example"]},
        allow_nan=False,
        ensure_ascii=False,
    )


def format_row(row: ModelRow) -> str:
    """Format a row of the table for a terminal."""
    exact = (row["exact_match"], row["exact_match_low"], row["exact_match_high"])
    tokens = (row["token_accuracy"], row["token_accuracy_low"], row["token_accuracy_high"])
    text = f"{row['model'][:34]:34} {' '.join(_share(*each) for each in (exact, tokens))}"
    text += f" {row['parameters'] or 0:>13,}" if row["parameters"] else f" {'':>13}"
    return text + (f"  {row['error']}" if row["error"] else f"  {row['decoding']}")


def format_comparison(row: ModelRow) -> str:
    """Describe how the exact matches of a model differ from those of the checkpoint, in pairs."""
    return (
        f"{row['model'][:34]}: {row['only_this']} sequences that only it has right, "
        f"{row['only_checkpoint']} that only the checkpoint has right; McNemar p = "
        f"{row['p_value']:.2g}"
        if row["p_value"] is not None
        else ""
    )


def _share(share: float | None, low: float | None, high: float | None) -> str:
    if share is None:
        return f"{'-':>19}"
    interval = f"[{low:4.0%}, {high:4.0%}]" if None not in (low, high) else " " * 12
    return f"{format_percent(share):>7} {interval}"
