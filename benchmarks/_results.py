"""Where measurements are kept: results/NAME.json, with day, machine and commit. One that was cut off is marked as unfinished."""

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

from playground.training.manifest import current_versions

RESULTS_DIR = Path(__file__).parent / "results"


def machine() -> str:
    """What the figures were measured on."""
    versions = current_versions()
    cores, memory = os.cpu_count(), psutil.virtual_memory().total / 2**30
    system = f"{cores} shared cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"
    return f"{system}; torch {versions['torch']}, Python {versions['python']}"


def commit() -> dict[str, Any]:
    """Return the short hash of the checked-out commit, and whether the working tree was clean.

    Results themselves do not count as changes: measuring writes them. Without git both are None.
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


COMMIT_AT_START = (
    commit()
)  # the code that measures is what was loaded then, whatever is checked out later


def save_results(name: str, rows: Any, unfinished: bool = False) -> None:
    """Write what was measured; an older file is there until the new one is whole."""
    write(name, measured_now() | ({"unfinished": True} if unfinished else {}) | {"rows": rows})


def measured_now() -> dict[str, Any]:
    """When, on what and at which commit this process measures."""
    return {"date": time.strftime("%Y-%m-%d"), "machine": machine(), **COMMIT_AT_START}


def write(name: str, content: dict[str, Any]) -> None:
    """Write a whole results file; an older one is there until the new one is complete."""
    RESULTS_DIR.mkdir(exist_ok=True)
    new = RESULTS_DIR / f"{name}.json.new"
    new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    new.replace(RESULTS_DIR / f"{name}.json")


def replace_row(name: str, key: str, row: dict[str, Any]) -> None:
    """Replace one row of a finished table; the row says when and at which commit it was measured."""
    content = load_results(name)
    if content is None:
        raise ValueError(f"{name} was never measured; measure all of it first")
    row = row | {"measured": measured_now()}
    content["rows"] = [row if each[key] == row[key] else each for each in content["rows"]]
    write(name, content)


def format_commit(revision: dict[str, Any]) -> str:
    """Where figures come from: "at commit abc1234", with a remark where the tree had other changes."""
    if not revision.get("commit"):
        return "at a commit that was not recorded"
    return f"at commit {revision['commit']}" + (
        "" if revision["clean"] else " with uncommitted changes"
    )


def load_results(name: str) -> dict[str, Any] | None:
    """What is kept under this name: date, machine, rows, and perhaps unfinished."""
    path = RESULTS_DIR / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def load_unfinished(name: str) -> Any:
    """The rows of a measurement that was cut off on this machine with these versions and this commit; None where there is none to go
    on with."""
    content = load_results(name)
    same = (
        content
        and content.get("unfinished")
        and content["machine"] == machine()
        and content.get("commit") == COMMIT_AT_START["commit"]
    )
    return content["rows"] if content and same else None


class Progress:
    """The rows of a table so far, written after every seed, so that a measurement that is cut off goes on where it was."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[dict[str, Any]] = load_unfinished(name) or []

    def row(self, **key: Any) -> dict[str, Any]:
        """Return the row of these values, a new one where it has not begun."""
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
    """Fill a row that is one measurement, unless it is filled already."""
    if not row.get("done"):
        row |= measure() | {"done": True}
        progress.write()
