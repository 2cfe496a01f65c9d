"""Where recurrent models break as sequences outgrow training: the Lab's prepared question, as
anybody would ask it.
"""

from __future__ import annotations

from typing import Any

from benchmarks import lengths

LENGTHS = (1, 5, 8, 10, 11, 12, 15, 20, 30)  # lengths that the table names; training ends at 10


def measure() -> list[dict[str, Any]]:
    """A row for each kind of model, and a last one for the whole."""
    return lengths.evaluate_lengths("experiment", "recurrent")


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    return lengths.table(rows, "model", LENGTHS)
