"""The two ways to start a worker: from a fork server, as on Linux, or as a new interpreter.

Each has a process of its own: `python -m benchmarks.start_methods METHOD`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from playground.common.platform import START_METHODS, cpu_seconds
from playground.jobs.process import warm_up
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.training.run_config import RunConfig

RUNS = 10
TITLES = {"forkserver": "fork server", "spawn": "new interpreters"}


def wait_until_warm() -> None:
    """Wait until the fork server or the spare process has imported its modules."""
    before, now = -1.0, 0.0
    while now > before:
        before = now
        time.sleep(1)
        now = sum(cpu_seconds(child.pid) for child in psutil.Process().children())


def memory_mb(*processes: psutil.Process) -> int:
    """Return the memory that only these processes have."""
    return round(sum(process.memory_full_info().uss for process in processes) / 2**20)


def train(registry: Registry, seed: int) -> tuple[float, int, str]:
    """Train a run; return the seconds to its first point, its memory there and its weights."""
    started = time.perf_counter()
    run = registry.start(RunConfig.from_flat({"max_steps": 30, "seed": seed}), "benchmark")
    while not run.live.points:
        time.sleep(0.002)
    seconds = time.perf_counter() - started
    assert run.worker
    memory = memory_mb(psutil.Process(run.worker.process.pid))
    run.worker.exited.wait()
    print(f"seed {seed}: first point after {seconds:.2f} s", file=sys.stderr, flush=True)
    return seconds, memory, weights_of(run)


def weights_of(run: Run) -> str:
    """Return the hash of the weights at the end of a run."""
    last = max((run.folder / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    return hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest()


def measure_here() -> dict[str, Any]:
    """Train the runs with the start method of this process."""
    warm_up().join()
    with tempfile.TemporaryDirectory() as root:
        registry = Registry(Path(root), slots=1)
        cold, *_ = train(registry, RUNS)
        wait_until_warm()
        idle = memory_mb(*psutil.Process().children())
        runs = []
        for seed in range(RUNS):
            wait_until_warm()
            runs.append(train(registry, seed))
        registry.shutdown()
    return {
        "cold_seconds": round(cold, 2),
        "warm_seconds": [round(seconds, 2) for seconds, _, _ in runs],
        "idle_mb": idle,
        "run_mb": max(memory for _, memory, _ in runs),
        "weights": [weights for _, _, weights in runs],
    }


def measure() -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for method in START_METHODS:
        output = subprocess.run(
            [sys.executable, "-m", "benchmarks.start_methods"],
            env=os.environ | {"PLAYGROUND_START_METHOD": method},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        rows[method] = json.loads(output)
    weights = [row.pop("weights") for row in rows.values()]
    rows["equal"] = sum(len(set(each)) == 1 for each in zip(*weights, strict=True))
    return rows


def table(rows: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    methods = [rows[method] for method in TITLES]
    warm = [each["warm_seconds"] for each in methods]
    lines = {
        "": TITLES.values(),
        "---": ["---"] * len(methods),
        f"start of a run to its first point, warm, seconds: median (maximum) of {RUNS}": [
            f"{median(each):.2f} ({max(each):.2f})" for each in warm
        ],
        "the same, first start right after warm-up": [
            f"{each['cold_seconds']:.2f}" for each in methods
        ],
        "memory while no run trains, MB": [each["idle_mb"] for each in methods],
        "memory of a run, MB": [each["run_mb"] for each in methods],
    }
    return "\n".join(
        [
            *(f"| {what} | {' | '.join(map(str, values))} |" for what, values in lines.items()),
            "",
            f"The weights of {rows['equal']} of {RUNS} runs are the same bit for bit.",
        ]
    )


if __name__ == "__main__":
    print(json.dumps(measure_here()))
