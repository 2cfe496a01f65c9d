"""Run docs/notebooks/sources.ipynb and write docs/sources.md from its tables.

    python -m scripts.write_sources            run the notebook in place, write the document
    python -m scripts.write_sources --check    exit with 1 if a number, a figure or a link changed

docs/notebooks/published.json holds the rows: what each source publishes, and the view of the app
that shows it. The notebook computes the numbers with the bundled checkpoint and the small
pretrained encoder of the development requirements. Results of training come from
benchmarks/results/published.json.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from playground.experiments.replications import CLAIMS
from playground.server.project_files import heading_anchor
from playground.training.presets import PRESETS

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "sources.md"
NOTEBOOK = ROOT / "docs" / "notebooks" / "sources.ipynb"
ROWS = json.loads(NOTEBOOK.with_name("published.json").read_text(encoding="utf-8"))
RESULTS = ROOT / "benchmarks" / "results" / "published.json"
TABLE_START = "| source | what | published | computed |"
TABLE_RULES = ("|---", "| ---")
TIMEOUT_S = 120  # of one cell
# The kernel inherits them. Everything that the notebook loads is on the machine.
KERNEL_ENV = {
    "HF_HUB_OFFLINE": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
HEADER = """# Sources

What five texts on the transformer publish, beside what this project computes. A link of the last
column opens the view on a local instance (`python app.py`), or the section of the executed
[notebook](notebooks/sources.ipynb). Learn shows it, too, as *Sources*.
`python -m scripts.write_sources` runs the notebook and writes this page. A test compares both.

"""
PUBLISHED_HEADER = """
## Published results, trained again

`python -m benchmarks published` trains every claim. *Compare* has the settings, their differences
from the source, and the duration. It draws the published values of the Annotated Transformer and of
grokking beside those of the runs.

| claim | published | ours | seeds | |
|---|---|---|---|---|"""


def read_notebook() -> NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def execute(notebook: NotebookNode) -> NotebookNode:
    """Return an executed copy of the notebook.

    Raises:
        CellExecutionError: if a cell fails.
    """
    executed = copy.deepcopy(notebook)
    client = NotebookClient(
        executed,
        timeout=TIMEOUT_S,
        record_timing=False,
        resources={"metadata": {"path": str(ROOT)}},
    )
    client.execute(env=os.environ | KERNEL_ENV)
    executed.metadata = notebook.metadata  # without the version of Python
    for cell in executed.cells:
        if cell.cell_type == "code":  # libraries write warnings and progress to streams
            cell.outputs = [each for each in cell.outputs if each.output_type != "stream"]
    return executed


def output_texts(cell: NotebookNode) -> list[str]:
    """Return the texts of the outputs of a cell; a figure counts as its caption."""
    return [each.data.get("text/markdown") or str(each.metadata) for each in cell.outputs]


def outputs(notebook: NotebookNode) -> dict[str, list[str]]:
    """Return the texts of the outputs of each code cell by its id."""
    return {cell.id: output_texts(cell) for cell in notebook.cells if cell.cell_type == "code"}


def computed_rows(notebook: NotebookNode) -> dict[str, tuple[str, str]]:
    """Return the computed value of each row by its subject, and the section that computes it."""
    rows, section, is_row = {}, "", False
    for cell in notebook.cells:
        is_text = cell.cell_type == "markdown"
        for line in (cell.source if is_text else "\n".join(output_texts(cell))).splitlines():
            if is_text and line.startswith("#"):
                section = line.lstrip("# ")
            is_row = is_row and line.startswith("|")
            if is_row and not line.startswith(TABLE_RULES):
                _, what, _, computed = (each.strip() for each in line.strip("|").split("|"))
                rows[what] = computed, section
            is_row = is_row or line == TABLE_START
    return rows


def page_query(row: dict[str, Any]) -> str:
    """Return the query of a link to a view; settings may begin with those of a preset."""
    params = dict(row["query"])
    if settings := params.get("settings"):
        preset = PRESETS[settings["preset"]].settings if "preset" in settings else {}
        own = {name: value for name, value in settings.items() if name != "preset"}
        params["settings"] = json.dumps({**preset, **own}, separators=(",", ":"))
    return urlencode(params, safe="/", quote_via=quote)


def format_row(row: dict[str, Any], computed: str, section: str) -> str:
    links = []
    if "place" in row:
        links.append(f"[{row['place']}](http://127.0.0.1:7860/?{page_query(row)})")
    if section:
        links.append(f"[Sources: {section}](notebooks/sources.ipynb#{heading_anchor(section)})")
    cells = (row["source"], row["what"], row["published"], computed, "; ".join(links))
    return f"| {' | '.join(cells)} |"


def published_rows() -> list[str]:
    """Return the rows of the replications, from their results file."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    return [
        f"| {CLAIMS[row['name']].title} | {CLAIMS[row['name']].statement} | {row['result']} | "
        f"{row['seeds']} | {row['verdict']} |"
        for row in rows
    ]


def document(notebook: NotebookNode) -> str:
    """Return docs/sources.md, with the list of sources and the numbers of the notebook."""
    computed = computed_rows(notebook)
    paragraphs = notebook.cells[0].source.split("\n\n")
    start = next(i for i, each in enumerate(paragraphs) if each.startswith("- **A**"))
    return "\n".join(
        [
            HEADER + "\n\n".join(paragraphs[start : start + 2]) + "\n",
            "| source | what | published | computed here | where |",
            "|---|---|---|---|---|",
            *(
                format_row(row, *computed.get(row["what"], (row.get("computed", ""), "")))
                for row in ROWS.values()
            ),
            PUBLISHED_HEADER,
            *published_rows(),
            "",
        ]
    )


def main() -> None:
    stored = read_notebook()
    executed = execute(stored)
    text = document(executed)
    if "--check" not in sys.argv:
        nbformat.write(executed, NOTEBOOK)
        DOCUMENT.write_text(text, encoding="utf-8")
    elif outputs(executed) != outputs(stored) or text != DOCUMENT.read_text(encoding="utf-8"):
        sys.exit("docs/sources.md is out of date; run python -m scripts.write_sources")


if __name__ == "__main__":
    main()
