"""Small runs, and what must hold of every run whatever has happened to it."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from playground.runs.history import kept_steps, read_lines
from playground.runs.registry import Registry
from playground.runs.run import Run
from playground.training.checkpoint import load_trainer
from playground.training.config import RunConfig
from playground.training.manifest import CheckpointError
from tests.support.app_server import wait_for

IN_CI = os.environ.get("CI") == "true"
ENDLESS = 1_000_000
TINY = {"d_model": 8, "n_heads": 1, "n_layers": 1, "d_ff": 8, "batch_size": 8, "max_length": 5, "eval_n": 32, "eval_every": 50,
        "schedule": "constant", "warmup": 0, "learning_rate": 1e-3, "device": "cpu"}  # fmt: skip


def counts(usual: int, long: int) -> pytest.MarkDecorator:
    """Runs a test so many times, or with so many tries, in every run, and with more under `-m soak`."""
    marks = [pytest.mark.soak, pytest.mark.timeout(3 * 3600)]
    return pytest.mark.parametrize("count", [usual, pytest.param(long, marks=marks)])


def as_root(*command: str) -> bool:
    """Carry out what takes root, or sudo without a password; whether it went well."""
    ways = [[], ["sudo", "-n"]] if shutil.which("sudo") else [[]]
    return any(subprocess.run([*way, *command], capture_output=True).returncode == 0 for way in ways)


def tiny(**fields: object) -> RunConfig:
    return RunConfig.from_fields(TINY | {"steps": ENDLESS} | fields)


def start(registry: Registry, owner: str = "ada", **fields: object) -> Run:
    return registry.start(tiny(**fields), owner)


def wait_for_status(run: Run, *statuses: str, seconds: float = 120) -> None:
    try:
        wait_for(lambda: run.status in statuses, seconds)
    except TimeoutError:
        raise TimeoutError(f"status {run.status!r} ({run.message}) instead of one of {statuses} after {seconds} s") from None


def wait_for_end(run: Run) -> None:
    """Wait until its process has gone."""
    wait_for(lambda: not run.live, 120, "the end of the worker")


def going(registry: Registry, *owners: str, **fields: object) -> list[Run]:
    """A run of each owner that trains and has a checkpoint."""
    runs = [start(registry, owner, **fields) for owner in owners]
    for run in runs:
        wait_for(lambda run=run: run.step > 0, 120, "the first points")
        held(registry, run)
        registry.control(run, "resume")
        wait_for_status(run, "training")
    return runs


def held(registry: Registry, run: Run) -> None:
    """Pause a run, and wait until it has saved."""
    before = run.saved
    registry.control(run, "pause")
    wait_for_status(run, "paused")
    wait_for(lambda: run.saved > before, 60, "the checkpoint of a paused run")


def newest_step(run: Run) -> int:
    found = run.checkpoints()
    return found[0][1].step if found else 0


def readable(run: Run) -> list[int]:
    """The steps of the checkpoints from which training can go on, newest first."""
    steps = []
    for path in (run.folder / "checkpoints").glob("[0-9]*"):
        try:
            steps.append(load_trainer(path)[0].step_count)
        except CheckpointError:
            continue
    return sorted(steps, reverse=True)


def shown_steps(registry: Registry, run: Run) -> list[int]:
    """The steps that a page sees that has just been opened (short runs only: longer curves are decimated)."""
    return registry.poll(run, 0, -1, 0)["points"]["steps"]


def check_every_point_is_there_once(registry: Registry, run: Run, steps: int) -> None:
    """In a page, on disk, and in a page of the next server."""
    everyone = list(range(1, steps + 1))
    assert shown_steps(registry, run) == everyone
    assert [line["step"] for line in read_lines(run.folder)] == everyone
    assert [step for step in kept_steps(run.folder) if step > steps] == []
    again = Run.read(run.folder)
    assert again.load().last == steps
    assert len(again.load()) == steps
