"""Store how long each test file takes: python -m tests.support.durations REPORT.xml

REPORT.xml comes from `pytest -m "not soak" --junitxml=REPORT.xml`. Writes tests/durations.json, by
which the plugin `layers` orders the files, and the tables of docs/testing.md.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from tests.support.layers import DURATIONS, LAYERS, TESTS

DOCS_PAGE = TESTS.parent / "docs" / "testing.md"
BEGIN, END = "<!-- durations: begin -->", "<!-- durations: end -->"
# what a contributor changed in the package, and the paths below tests that hold its properties
CHANGES = {
    "models, training, tasks": "unit/models unit/training unit/tasks unit/architectures",
    "inspection, figures, reports": "unit/inspection unit/figures unit/reports",
    "checkpoints": "unit/checkpoints",
    "runs, jobs": "unit/runs unit/jobs integration/runs",
    "experiments, lessons": "unit/experiments unit/lessons integration/experiments "
    "integration/lessons",
    "pretrained models": "unit/pretrained integration/pretrained",
    "datasets, server": "unit/datasets unit/server integration/server",
    "hub": "unit/hub integration/hub integration/test_hub_commands.py",
    "commands": "integration/test_command_line.py integration/test_app.py",
    "hostile input, processes, disks": "faults",
}


def read_report(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Return the seconds and the number of tests by file, fixtures included."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        name = case.attrib["classname"].removeprefix("tests.").replace(".", "/") + ".py"
        seconds[name] += float(case.attrib["time"])
        tests[name] += 1
    return seconds, tests


def tables(seconds: Counter[str], tests: Counter[str]) -> str:
    """Return the tables by kind of change and by layer, as Markdown."""
    lines = ["| after a change of | run `pytest` with `tests/`… | seconds |", "|---|---|---|"]
    for change, paths in CHANGES.items():
        total = sum(
            value for name, value in seconds.items() if name.startswith(tuple(paths.split()))
        )
        lines.append(
            f"| {change} | {', '.join(f'`{path}`' for path in paths.split())} | {total:,.0f} |"
        )
    lines += ["", "| layer | files | tests | seconds |", "|---|---|---|---|"]
    for layer in LAYERS:
        files = [name for name in seconds if name.split("/")[0] == layer]
        lines.append(
            f"| {layer} | {len(files)} | {sum(tests[name] for name in files):,} | "
            f"{sum(seconds[name] for name in files):,.0f} |"
        )
    return "\n".join(lines)


def main(report: Path) -> None:
    seconds, tests = read_report(report)
    long = {name: round(value, 1) for name, value in sorted(seconds.items()) if value >= 1}
    DURATIONS.write_text(json.dumps(long, indent=1) + "\n")
    before, rest = DOCS_PAGE.read_text().split(BEGIN)
    DOCS_PAGE.write_text(
        before + BEGIN + "\n" + tables(seconds, tests) + "\n" + END + rest.split(END)[1]
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
