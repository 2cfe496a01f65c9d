"""Texts of numbers and tokens, with the examples that the page's formatter is tested with."""

import json
from pathlib import Path

import pytest

from playground.common.format import (
    format_bytes,
    format_count,
    format_csv,
    format_duration,
    format_percent,
)
from playground.tasks.vocabulary import format_token

VECTORS = json.loads(
    (Path(__file__).resolve().parents[2] / "data/format_vectors.json").read_text(encoding="utf-8")
)
FORMATTERS = {
    "percent": format_percent,
    "bytes": format_bytes,
    "duration": format_duration,
    "count": lambda arguments: format_count(*arguments),
    "token": format_token,
    "csv": lambda cell: format_csv([[cell]]).removesuffix("\n"),
}


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [(kind, value, text) for kind in FORMATTERS for value, text in VECTORS[kind]],
)
def test_text_of_a_value_equals_the_vector(kind, value, text):
    assert FORMATTERS[kind](value) == text
