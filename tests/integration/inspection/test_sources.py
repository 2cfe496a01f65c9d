"""docs/sources.md has the numbers that the app computes."""

from urllib.parse import unquote

import pytest

from playground.ui.form_values import parse_settings
from scripts import write_sources


@pytest.mark.parametrize("row", write_sources.ROWS, ids=lambda row: row.subject[:40])
def test_number_in_the_document_is_the_computed_one(row):
    lines = write_sources.DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert write_sources.format_row(row) in lines


@pytest.mark.smoke
def test_replications_in_the_document_are_those_of_the_results_file():
    text = write_sources.DOCUMENT.read_text(encoding="utf-8")
    rows = write_sources.published_rows()
    assert rows
    assert text.endswith("\n".join(rows) + "\n")


@pytest.mark.parametrize(
    "query", [row.query for row in write_sources.ROWS if row.query.startswith("settings=")]
)
def test_settings_of_a_link_are_accepted_by_the_form(query):
    assert parse_settings(unquote(query.removeprefix("settings=")))
