"""Record the stored results of prepared experiments: `python -m scripts.record_experiments NAME…`.

The script trains the runs of the experiments, and writes their results as the page displays them.
An experiment that was cut off goes on.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from playground.cli.experiments import run_experiment
from playground.experiments.presets import STORED_FILE, STORED_PREFIX, load_stored, spec

EXPORTED_FIELDS = (
    "name",
    "question",
    "kind",
    "state",
    "message",
    "runs",
    "statuses",
    "results",
    "lengths",
)
SIGNIFICANT_DIGITS = 4  # of the points of a curve
DESCRIPTION = (
    "Measured on {date} with {cores} cores ({machine}) and PyTorch {torch}. The app does not "
    "include its runs."
)


def round_curves(variant: dict[str, Any]) -> None:
    for curve in (variant["curve"], variant["loss"]):
        for name in ("median", "low", "high"):
            curve[name] = [float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in curve[name]]


def describe_machine() -> str:
    return DESCRIPTION.format(
        date=datetime.date.today().isoformat(),
        cores=os.cpu_count(),
        machine=platform.machine(),
        torch=torch.__version__,
    )


def to_stored(name: str, report: dict[str, Any]) -> dict[str, Any]:
    """Return the report of an experiment without the ids of its runs."""
    stored = {field: report[field] for field in EXPORTED_FIELDS if field in report}
    stored |= {"id": STORED_PREFIX + name, "origin": describe_machine(), "queue_position": None}
    stored |= {"estimate": report["estimate"], "version": STORED_PREFIX + name}
    stored["planned_runs"] = [run | {"run": None} for run in report["planned_runs"]]
    for variant in stored["results"]["variants"]:
        round_curves(variant)
        for run in variant["seeds"]:
            run.pop("run", None)
    return stored


def main(names: list[str]) -> None:
    for name in names:
        folder = Path(tempfile.gettempdir()) / "playground-stored-experiments"
        stored = load_stored() | {name: to_stored(name, run_experiment(spec(name), folder))}
        STORED_FILE.write_text(json.dumps(stored, separators=(",", ":")) + "\n")
        load_stored.cache_clear()


if __name__ == "__main__":
    main(sys.argv[1:])
