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
N_LONGEST_FILES = 15


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
    """Return the tables by layer and of the longest files, as Markdown."""
    lines = ["| layer | files | tests | seconds of one process |", "|---|---|---|---|"]
    for layer in LAYERS:
        files = [name for name in seconds if name.split("/")[0] == layer]
        lines.append(
            f"| {layer} | {len(files)} | {sum(tests[name] for name in files):,} | "
            f"{sum(seconds[name] for name in files):,.0f} |"
        )
    lines += ["", "| file | tests | seconds |", "|---|---|---|"]
    lines += [
        f"| {name} | {tests[name]} | {value:,.0f} |"
        for name, value in seconds.most_common(N_LONGEST_FILES)
    ]
    return "\n".join(lines)


def main(report: Path) -> None:
    seconds, tests = read_report(report)
    DURATIONS.write_text(
        json.dumps(
            {name: round(value, 1) for name, value in sorted(seconds.items()) if value >= 1},
            indent=1,
        )
        + "\n"
    )
    before, rest = DOCS_PAGE.read_text().split(BEGIN)
    DOCS_PAGE.write_text(
        before + BEGIN + "\n" + tables(seconds, tests) + "\n" + END + rest.split(END)[1]
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
