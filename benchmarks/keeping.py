"""Where measurements are kept: results/NAME.json, with day and machine. One that was cut off is marked as unfinished."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import psutil

from playground.training.manifest import current_versions

FOLDER = Path(__file__).parent / "results"


def machine() -> str:
    """What the figures were measured on."""
    versions = current_versions()
    cores, memory = os.cpu_count(), psutil.virtual_memory().total / 2**30
    system = f"{cores} shared cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"
    return f"{system}; torch {versions['torch']}, Python {versions['python']}"


def keep(name: str, rows: Any, unfinished: bool = False) -> None:
    """Write what was measured; an older file is there until the new one is whole."""
    FOLDER.mkdir(exist_ok=True)
    kept = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), **({"unfinished": True} if unfinished else {}), "rows": rows}
    new = FOLDER / f"{name}.json.new"
    new.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    new.replace(FOLDER / f"{name}.json")


def kept(name: str) -> dict[str, Any] | None:
    """What is kept under this name: date, machine, rows, and perhaps unfinished."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def cut_off(name: str) -> Any:
    """The rows of a measurement that was cut off on this machine with these versions; None where there is none to go on with."""
    found = kept(name)
    return found["rows"] if found and found.get("unfinished") and found["machine"] == machine() else None
