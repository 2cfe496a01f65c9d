"""Length generalization of recurrent models: the prepared experiment."""

from __future__ import annotations

from typing import Any

from benchmarks import lengths

LENGTHS = (1, 5, 8, 10, 11, 12, 15, 20, 30)  # lengths that the table names; training ends at 10
SEEDS = 3


def measure() -> list[dict[str, Any]]:
    """Return a row for each architecture, and a last one for the whole experiment."""
    return lengths.evaluate_lengths("recurrent", SEEDS)


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as Markdown."""
    return lengths.table(rows, "model", LENGTHS)
