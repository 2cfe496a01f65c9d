"""Record the example experiment: `python -m scripts.record_example_experiment [FOLDER]`.

The script trains the runs of the experiment and writes their results, as the page shows them.
Finished runs in the folder are not repeated.
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

from playground.cli.experiment_runs import run_experiment
from playground.experiments.presets import EXAMPLE_FILE, EXAMPLE_ID

SPEC: dict[str, Any] = {
    "name": "learning rates",
    "question": "How much does the learning rate matter?",
    "base": {
        "task": "reverse",
        "min_length": 1,
        "max_length": 10,
        "max_steps": 600,
        "lr_decay_steps": 600,
        "eval_every": 20,
    },
    "grid": {"learning_rate": [0.0005, 0.006]},
    "seeds": [0, 1, 2, 3],
}
EXPORTED_FIELDS = ("name", "question", "kind", "state", "message", "runs", "statuses", "results")
SIGNIFICANT_DIGITS = 4  # of the points of a curve
DESCRIPTION = (
    "Example, measured on {date} with {cores} cores ({machine}) and PyTorch {torch}. It cannot be "
    "changed, and the app does not include its runs."
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


def to_example(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report of an experiment without the ids of its runs."""
    example = {name: report[name] for name in EXPORTED_FIELDS}
    example |= {"id": EXAMPLE_ID, "example": describe_machine(), "queue_position": None}
    example |= {"estimate": report["estimate"], "version": EXAMPLE_ID}
    example["planned_runs"] = [run | {"run": None} for run in report["planned_runs"]]
    for variant in example["results"]["variants"]:
        round_curves(variant)
        for run in variant["seeds"]:
            run.pop("run", None)
    return example


def main(folder: Path) -> None:
    report = run_experiment(SPEC, folder)
    EXAMPLE_FILE.write_text(json.dumps(to_example(report), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
