"""Small runs, and the invariants of every run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from playground.checkpoints.checkpoint import resume_trainer
from playground.checkpoints.manifest import CheckpointError
from playground.checkpoints.metrics import read_metrics
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.runs.weight_history import weight_steps
from playground.training.run_config import RunConfig
from tests.support.app_server import wait_for

IN_CI = os.environ.get("CI") == "true"
ENDLESS = 1_000_000
TINY_SETTINGS = {
    **{"d_model": 8, "n_heads": 1, "n_layers": 1, "d_ff": 8, "batch_size": 8, "max_length": 5},
    **{"eval_size": 32, "eval_every": 50, "lr_schedule": "constant", "warmup_steps": 0},
    **{"learning_rate": 1e-3, "device": "cpu"},
}
SMALL_SETTINGS = TINY_SETTINGS | {"d_model": 16, "n_heads": 2, "d_ff": 16}


def repeat_counts(default: int, long: int) -> pytest.MarkDecorator:
    """Parametrize a test with a small count, and with a larger one under `-m soak`."""
    marks = [pytest.mark.soak, pytest.mark.timeout(3 * 3600)]
    return pytest.mark.parametrize("count", [default, pytest.param(long, marks=marks)])


def run_as_root(*command: str) -> bool:
    """Run a command as root, or with sudo; return whether it succeeded."""
    prefixes = [[], ["sudo", "-n"]] if shutil.which("sudo") else [[]]
    return any(
        subprocess.run([*prefix, *command], capture_output=True).returncode == 0
        for prefix in prefixes
    )


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[Path]:
    """Mount `folder`, and unmount it afterwards; skip the test where that is not possible."""
    folder.mkdir(parents=True)
    if not run_as_root("mount", *arguments, str(folder)):
        assert not IN_CI, "nothing can be mounted here, and this gate must not be skipped in CI"
        pytest.skip("mounting takes root, or sudo without a password")
    try:
        yield folder
    finally:
        assert run_as_root("umount", "-l", str(folder))


def tiny_config(**fields: object) -> RunConfig:
    return RunConfig.from_flat(TINY_SETTINGS | {"max_steps": ENDLESS} | fields)


def start_run(registry: Registry, owner: str = "ada", **fields: object) -> Run:
    return registry.start(tiny_config(**fields), owner)


def wait_for_status(run: Run, *statuses: str, seconds: float = 120) -> None:
    try:
        wait_for(lambda: run.status in statuses, seconds)
    except TimeoutError:
        raise TimeoutError(
            f"status {run.status!r} ({run.message}) instead of one of {statuses} after {seconds} s"
        ) from None


def wait_for_end(run: Run) -> None:
    """Wait until its process has ended."""
    wait_for(lambda: not run.has_worker, 120, "the end of the worker")


def pause_and_wait(registry: Registry, run: Run) -> None:
    """Pause a run, and wait until it has saved."""
    before = run.live.checkpoint_version
    registry.control(run, "pause")
    wait_for_status(run, "paused")
    wait_for(lambda: run.live.checkpoint_version > before, 60, "the checkpoint of a paused run")


def newest_checkpoint_step(run: Run) -> int:
    checkpoints = run.checkpoints()
    return checkpoints[0][1].step if checkpoints else 0


def resumable_steps(run: Run) -> list[int]:
    """Return the steps of the resumable checkpoints, newest first."""
    steps = []
    for path in (run.folder / "checkpoints").glob("[0-9]*"):
        try:
            steps.append(resume_trainer(path)[0].step_count)
        except CheckpointError:
            continue
    return sorted(steps, reverse=True)


def polled_steps(registry: Registry, run: Run) -> list[int]:
    """Return the steps that a new page receives; for short runs, which are not decimated."""
    return registry.poll(run, 0, -1, 0)["points"]["steps"]


def assert_complete_series(registry: Registry, run: Run, steps: int) -> None:
    """Check the series of a page, on disk, and of a page after a restart."""
    expected = list(range(1, steps + 1))
    assert polled_steps(registry, run) == expected
    assert [line["step"] for line in read_metrics(run.folder)] == expected
    assert [step for step in weight_steps(run.folder) if step > steps] == []
    reloaded = Run.read(run.folder)
    assert reloaded.load_points().last == steps
    assert len(reloaded.load_points()) == steps
