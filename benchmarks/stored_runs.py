"""An experiment with 10,000 stored runs: the time of each action, and the memory of the process.

The results are synthetic: 1,000 combinations of two settings with ten seeds, each with a curve of
20 evaluations. Every action runs in a new process, which also does what a user must do before it.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from playground.cli.experiment_runs import OWNER, open_experiments
from playground.experiments.analysis import to_csv
from playground.experiments.spec import StoredExperiment, parse_experiment
from playground.experiments.summary import RunMetrics, RunSummary, append_lines
from playground.runs.record import owner_id

N_VARIANTS, N_SEEDS, REPEATS = 1000, 10, 5
SPEC: dict[str, Any] = {
    "name": "stored",
    "base": {"max_steps": 1000, "eval_every": 50},
    "grid": {
        "learning_rate": {"low": 1e-4, "high": 1e-2, "scale": "log"},
        "dropout": {"low": 0.0, "high": 0.5},
    },
    "samples": N_VARIANTS,
    "seeds": list(range(N_SEEDS)),
}


def write_experiment(folder: Path) -> None:
    """Store the results of all runs in a storage folder."""
    experiment, generator = parse_experiment(SPEC, owner_id(OWNER)), random.Random(0)
    runs, lines = {}, []
    for number, (key, *_) in enumerate(experiment.planned_runs()):
        curves = [[[step, generator.random()] for step in range(50, 1001, 50)] for _ in range(2)]
        metrics = RunMetrics(
            done=True,
            exact_match=curves[0][-1][1],
            n=2000,
            exact_at_budget=curves[0][-1][1],
            steps=1000,
            seconds=9.5,
            curve=curves[0],
            loss=curves[1],
        )
        runs[key] = f"run-{number:018}"
        lines.append(RunSummary(run=runs[key], step=1000, metrics=metrics, counts=[]).line())
    stored = StoredExperiment.model_construct(
        **dict(experiment), runs=runs, summarized=tuple(runs.values()), cancelled=False
    )
    target = folder / "experiments" / f"{experiment.id}.json"
    target.parent.mkdir()
    target.write_text(stored.model_dump_json(indent=1), encoding="utf-8")
    append_lines(target.with_suffix(".jsonl"), lines)


def resident_mb() -> float:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def measure_here(folder: Path) -> dict[str, float]:
    """Open the experiments of a folder; return seconds by action, and the memory in MB."""
    from playground.figures.experiment import experiment_figure
    from playground.figures.style import render

    times, started = {}, time.perf_counter()

    def lap(action: str) -> None:
        nonlocal started
        times[action] = time.perf_counter() - started
        started = time.perf_counter()

    with open_experiments(folder) as service:
        lap("open the storage")
        experiments = service.list_for_owner(OWNER)
        for each in experiments:
            service.summary(each, OWNER)
        lap("list")
        for each in experiments:
            report = service.details(each, OWNER)
            lap("open the results")
            variants = report["results"]["variants"]
            good = [each for each in variants if each["exact_match"]["median"] > 0.5]
            lap("filter")
            to_csv(report["results"]["fields"], good, "")
            lap("export as a table")
            del report, variants, good
            memory = resident_mb()
            started = time.perf_counter()
            render(experiment_figure(service.details(each, OWNER)), "png")
            lap("plot")
            return times | {"memory": memory}
        return {"memory": resident_mb()}


def measure() -> list[dict[str, Any]]:
    """Return the median of each action over new processes, and the memory beyond an empty one."""
    with tempfile.TemporaryDirectory() as scratch:
        empty, full = Path(scratch, "empty"), Path(scratch, "full")
        for folder in (empty, full):
            folder.mkdir()
        write_experiment(full)
        rounds = [[_measure_in_process(folder) for folder in (empty, full)] for _ in range(REPEATS)]
    rows = [
        {"action": action, "seconds": median(full[action] for _, full in rounds)}
        for action in rounds[0][1]
        if action != "memory"
    ]
    extra = median(full["memory"] - empty["memory"] for empty, full in rounds)
    return [*rows, {"action": "memory", "mb": extra}]


def _measure_in_process(folder: Path) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.stored_runs", str(folder)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def table(rows: list[dict[str, Any]]) -> str:
    """Format the figures as Markdown."""
    *actions, memory = rows
    lines = [f"| {row['action']} | {row['seconds']:.2f} |" for row in actions]
    return "\n".join(
        [
            "| action | seconds |",
            "|---|---|",
            *lines,
            "",
            f"Memory with the results open, beyond a process without stored runs: "
            f"{memory['mb']:.0f} MB.",
        ]
    )


if __name__ == "__main__":
    print(json.dumps(measure_here(Path(sys.argv[1]))))
