"""An experiment with 10,000 stored runs: time, size of the answer, and memory of the server.

The results are synthetic: 1,000 combinations of two settings with ten seeds, each with a curve of
20 evaluations. The actions are those of the page and of a command, one after the other.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from inspect import unwrap
from pathlib import Path
from typing import Any

from playground.cli.experiments import OWNER, open_experiments
from playground.experiments.spec import StoredExperiment, parse_experiment
from playground.experiments.summary import RunMetrics, RunSummary, append_lines
from playground.runs.record import owner_id

N_VARIANTS, N_SEEDS = 1000, 10
SIZE = ": size of the answer"
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
    """Use the experiments of a folder as the page and a command do.

    Returns the CPU seconds and the kilobytes of each action, and the memory in MB. Other programs
    hardly change them.
    """
    from playground.figures.experiment import MAX_LINES, experiment_figure
    from playground.figures.style import render
    from playground.server.experiments_api import ExperimentHandlers
    from playground.server.schemas.experiments import PollExperiments

    times, started = {}, time.process_time()

    def lap(action: str, answer: str | bytes = b"") -> None:
        nonlocal started
        times[action] = time.process_time() - started
        if answer:
            times[action + SIZE] = len(answer) / 1000
        started = time.process_time()

    with open_experiments(folder) as service:
        lap("open the storage")
        experiments = service.store.list_for_owner(OWNER)
        for each in experiments:
            service.summary(each, OWNER)
        lap("list")
        page = ExperimentHandlers(service.registry, service)

        def poll(**more: Any) -> dict[str, Any]:
            request = PollExperiments.model_construct(owner=OWNER, open=each.id, **more)
            answer: dict[str, Any] = unwrap(ExperimentHandlers.poll)(page, request)["open"]
            return answer

        for each in experiments:
            opened = poll()
            lap("open the page", json.dumps(opened))
            version, drawn = opened["version"], opened["results"]["results"]["drawn"]
            lap("poll", json.dumps(poll(version=version, drawn=drawn)))
            drawn = [*drawn, each.variants[0].full_label]
            lap("plot another line", json.dumps(poll(version=version, drawn=drawn)))
            lap("export as CSV", service.to_csv(each, OWNER))
            del opened
            memory = resident_mb()
            started = time.process_time()
            n_bytes = sum(map(len, service.to_json(each, OWNER)))
            lap("export as JSON", bytes(n_bytes))
            figure = experiment_figure(service.details(each, OWNER, MAX_LINES))
            lap("draw the figure", render(figure, "png"))
            return times | {"memory": memory}
        return {"memory": resident_mb()}


def measure() -> list[dict[str, Any]]:
    """Return the figures of each action, and the memory beyond a process without runs."""
    with tempfile.TemporaryDirectory() as scratch:
        empty, full = Path(scratch, "empty"), Path(scratch, "full")
        for folder in (empty, full):
            folder.mkdir()
        write_experiment(full)
        without, figures = (_measure_in_process(folder) for folder in (empty, full))
    rows = [
        {"action": action, "seconds": seconds, "kilobytes": figures.get(action + SIZE)}
        for action, seconds in figures.items()
        if action != "memory" and not action.endswith(SIZE)
    ]
    extra = figures["memory"] - without["memory"]
    return [*rows, {"action": "memory", "mb": extra}]


def _measure_in_process(folder: Path) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.stored_runs", str(folder)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def table(rows: list[dict[str, Any]]) -> str:
    """Format the figures as Markdown."""
    *actions, memory = rows
    lines = [
        f"| {row['action']} | {row['seconds']:.2f} | "
        + (f"{row['kilobytes']:,.0f}" if row["kilobytes"] else "")
        + " |"
        for row in actions
    ]
    return "\n".join(
        [
            "| action | CPU seconds | kilobytes of the answer, uncompressed |",
            "|---|---|---|",
            *lines,
            "",
            f"Memory with the results open, beyond a process without stored runs: "
            f"{memory['mb']:.0f} MB.",
        ]
    )


if __name__ == "__main__":
    print(json.dumps(measure_here(Path(sys.argv[1]))))
