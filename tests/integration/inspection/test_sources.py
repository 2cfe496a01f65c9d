"""docs/sources.md and the notebook have the numbers that the code computes."""

import re
import resource
from urllib.parse import unquote

import pytest

from playground.lessons.lessons import LESSONS
from playground.ui.form_values import parse_settings
from scripts import write_sources

NOTEBOOK = write_sources.read_notebook()
QUERIES = {write_sources.page_query(row) for row in write_sources.ROWS.values() if "query" in row}


def cpu_seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.fixture(scope="module")
def executed():
    before = cpu_seconds_of_children()
    notebook = write_sources.execute(NOTEBOOK)
    assert cpu_seconds_of_children() - before < 60
    return notebook


def figures(notebook):
    return [
        output.data["image/png"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.data
    ]


def test_committed_outputs_are_those_of_the_code(executed):
    assert write_sources.outputs(NOTEBOOK) == write_sources.outputs(executed)
    assert len(figures(NOTEBOOK)) == len(figures(executed)) >= 6


def test_document_has_the_numbers_of_the_notebook(executed):
    text = write_sources.DOCUMENT.read_text(encoding="utf-8")
    assert text == write_sources.document(executed)
    rows = write_sources.ROWS.values()
    computed = write_sources.computed_rows(executed)
    assert set(computed) <= {row["what"] for row in rows}
    assert all(row["what"] in computed or row["computed"] for row in rows)


def test_notebook_is_small():
    cells = [cell.source for cell in NOTEBOOK.cells if cell.cell_type == "code"]
    assert len(re.findall(r"\S.*", "\n".join(cells))) <= 400
    assert write_sources.NOTEBOOK.stat().st_size < 700_000


def test_lessons_link_sections_of_the_notebook():
    headings = re.findall(r"^#+ (.+)", "\n".join(cell.source for cell in NOTEBOOK.cells), re.M)
    linked = {lesson.sources for lesson in LESSONS.values()} - {""}
    assert linked
    assert linked <= set(headings)


@pytest.mark.smoke
def test_replications_in_the_document_are_those_of_the_results_file():
    text = write_sources.DOCUMENT.read_text(encoding="utf-8")
    rows = write_sources.published_rows()
    assert rows
    assert text.endswith("\n".join(rows) + "\n")


@pytest.mark.parametrize(
    "query", sorted(query for query in QUERIES if query.startswith("settings="))
)
def test_settings_of_a_link_are_accepted_by_the_form(query):
    assert parse_settings(unquote(query.removeprefix("settings=")))
