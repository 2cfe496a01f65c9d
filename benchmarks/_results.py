"""Store measurements in results/NAME.json, with date, machine and commit.

The file of an interrupted measurement is marked as unfinished.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from playground.checkpoints.manifest import current_versions

RESULTS_DIR = Path(__file__).parent / "results"


def machine() -> str:
    """Describe the machine of the measurement."""
    versions = current_versions()
    cores, memory = os.cpu_count(), psutil.virtual_memory().total / 2**30
    system = f"{cores} shared cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"
    return f"{system}; torch {versions['torch']}, Python {versions['python']}"


def commit() -> dict[str, Any]:
    """Return the short hash of the commit, and whether the working tree is clean.

    Changed results do not count, because measuring writes them. Without git both are None.
    """
    changed = (
        "git status --porcelain -- . :(exclude)benchmarks/results :(exclude)benchmarks/RESULTS.md"
    )
    try:
        revision, status = (
            _run(command.split()) for command in ("git rev-parse --short=7 HEAD", changed)
        )
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "clean": None}
    return {"commit": revision.strip(), "clean": not status.strip()}


def _run(command: list[str]) -> str:
    return subprocess.run(
        command,
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    ).stdout


# The loaded code is that of the start, also if another commit is checked out meanwhile.
COMMIT_AT_START = commit()


def save_results(name: str, rows: Any, unfinished: bool = False) -> None:
    """Store the rows of a measurement with date, machine and commit."""
    write(name, measured_now() | ({"unfinished": True} if unfinished else {}) | {"rows": rows})


def measured_now() -> dict[str, Any]:
    """Return the date, the machine and the commit of this process."""
    return {"date": time.strftime("%Y-%m-%d"), "machine": machine(), **COMMIT_AT_START}


def write(name: str, content: dict[str, Any]) -> None:
    """Replace a results file atomically."""
    RESULTS_DIR.mkdir(exist_ok=True)
    new = RESULTS_DIR / f"{name}.json.new"
    new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    new.replace(RESULTS_DIR / f"{name}.json")


def replace_row(name: str, key: str, row: dict[str, Any]) -> None:
    """Replace one row of a table; the row records its own date, machine and commit.

    Raises:
        ValueError: if the table does not have this row.
    """
    content = load_results(name)
    if content is None:
        raise ValueError(f"{name} was never measured; measure the whole table first")
    if not any(each[key] == row[key] for each in content["rows"]):
        raise ValueError(f"{name} has no row {row[key]}; measure the whole table first")
    row = row | {"measured": measured_now()}
    content["rows"] = [row if each[key] == row[key] else each for each in content["rows"]]
    write(name, content)


def format_commit(revision: dict[str, Any]) -> str:
    """Return "at commit abc1234", and whether there were uncommitted changes."""
    if not revision.get("commit"):
        return "at a commit that was not recorded"
    return f"at commit {revision['commit']}" + (
        "" if revision["clean"] else " with uncommitted changes"
    )


def load_results(name: str) -> dict[str, Any] | None:
    """Return the stored content of a subset, or None.

    The content has date, machine, commit, rows and, if it is incomplete, `unfinished`.
    """
    path = RESULTS_DIR / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def load_unfinished(name: str) -> Any:
    """Return the rows of an interrupted measurement, or None.

    Machine, versions and commit must be the same.
    """
    content = load_results(name)
    same = (
        content
        and content.get("unfinished")
        and content["machine"] == machine()
        and content.get("commit") == COMMIT_AT_START["commit"]
    )
    return content["rows"] if content and same else None


class Progress:
    """The rows of a table, stored after every seed.

    An interrupted measurement continues from these rows.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[dict[str, Any]] = load_unfinished(name) or []

    def row(self, **key: Any) -> dict[str, Any]:
        """Return the row with these values; append a new one if there is none."""
        for row in self.rows:
            if all(row.get(name) == value for name, value in key.items()):
                return row
        self.rows.append(dict(key))
        return self.rows[-1]

    def write(self) -> None:
        save_results(self.name, self.rows, unfinished=True)


def run_once(
    progress: Progress, row: dict[str, Any], measure: Callable[[], dict[str, Any]]
) -> None:
    """Measure a row once; a completed row is left unchanged."""
    if not row.get("done"):
        row |= measure() | {"done": True}
        progress.write()
