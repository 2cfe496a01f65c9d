"""A real disk of two megabytes that fills up during different writes."""

import os
import re

import pytest

from playground.errors import UserError
from playground.runs.state import Run
from tests.support.app_server import wait_for
from tests.support.small_runs import (
    assert_complete_series,
    mounted,
    newest_checkpoint_step,
    resumable_steps,
    start_run,
    wait_for_end,
    wait_for_status,
)

SIZE, PAGE = 2_000_000, 4096
STEPS = 60
FULL = "No space left on device"


class Disk:
    """A tmpfs, and a filler file that uses up its free space."""

    def __init__(self, folder):
        self.folder, self.filler = folder, folder / "filler"

    def free(self):
        return os.statvfs(self.folder).f_bavail * PAGE

    def leave(self, free):
        """Fill the disk until only `free` bytes are free."""
        self.clear()
        with open(self.filler, "wb") as file:
            used = 0
            while (excess := self.free() - free) > 0:
                used += excess
                os.posix_fallocate(file.fileno(), 0, used)

    def clear(self):
        self.filler.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path):
    options = f"size={SIZE},mode=1777"
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", options, "tmpfs") as folder:
        yield Disk(folder)


@pytest.fixture
def registry(disk, registries):
    registry = registries(disk.folder)
    yield registry
    disk.clear()  # so that the shutdown can save the runs


@pytest.fixture
def paused_run(registry):
    """A run that is paused at step 5, with a checkpoint."""
    run = start_run(registry, max_steps=STEPS)
    registry.control(run, "pause")
    wait_for_status(run, "paused")
    while run.step < 5:
        train_one_step(registry, run)
    before = run.live.checkpoint_version
    registry.control(run, "save")
    wait_for(lambda: run.live.checkpoint_version > before, 60, "the checkpoint")
    assert run.message == ""
    return run


def train_one_step(registry, run):
    """Train one step, and wait until everything is written."""
    step, weight_steps = run.step, run.live.weight_steps
    registry.control(run, "step")
    wait_for(
        lambda: run.message or (run.step == step + 1 and run.live.weight_steps != weight_steps),
        60,
        "a single step, or an error",
    )
    assert run.message == ""


def check_run_pauses_with_disk_message(run):
    wait_for(lambda: FULL in run.message, 60, "a message about the disk")
    assert re.search(r"could not (write|save|be saved)", run.message)
    wait_for_status(run, "paused")
    assert run.has_worker  # the worker keeps the unsaved data in memory
    assert run.step < STEPS  # the run did not continue
    assert resumable_steps(run)[0] >= 5


def check_run_finishes_with_all_metrics(registry, disk, run):
    disk.clear()
    registry.control(run, "resume")
    wait_for_status(run, "done", seconds=60)
    assert run.message == ""
    assert_complete_series(registry, run, STEPS)
    assert resumable_steps(run)[0] == STEPS
    wait_for_end(run)


def try_to_start(registry):
    """Start a run on a disk that may be full; return the run, if any, and the message."""
    try:
        run = start_run(registry, max_steps=STEPS)
    except UserError as error:
        return None, str(error)
    wait_for(
        lambda: run.status in ("done", "failed") or FULL in run.message,
        60,
        "the end of the disk, or of the run",
    )
    return run, run.message


@pytest.mark.smoke
@pytest.mark.parametrize("free", [0, 2 * PAGE])
def test_full_disk_at_start_is_reported_and_run_starts_once_freed(registry, disk, free):
    disk.leave(free)
    run, message = try_to_start(registry)
    assert FULL in message
    if run is None:  # its folder could not be created
        disk.clear()
        assert registry.list_for_owner("ada") == list(registry.storage.runs.glob("[!.]*")) == []
        run, message = try_to_start(registry)
    wait_for_status(run, "paused", "failed", "done")
    check_run_finishes_with_all_metrics(registry, disk, run)


@pytest.mark.parametrize("action", ["resume", "stop"])
def test_a_disk_that_is_full_pauses_the_run_until_it_can_save(registry, disk, paused_run, action):
    train_one_step(registry, paused_run)
    disk.leave(0)
    registry.control(paused_run, action)
    check_run_pauses_with_disk_message(paused_run)
    step = paused_run.step
    assert not (paused_run.folder / "history" / f"{step + 1}.safetensors").exists()
    name = paused_run.name
    with pytest.raises(UserError, match=f"could not be stored: {FULL}; free disk space and try"):
        registry.update_metadata(paused_run, name="Renamed on a full disk")
    assert paused_run.name == Run.read(paused_run.folder).name == name
    check_run_finishes_with_all_metrics(registry, disk, paused_run)


def test_a_disk_that_fills_while_a_checkpoint_is_written_pauses_the_run(registry, disk, paused_run):
    train_one_step(registry, paused_run)
    disk.leave(3 * PAGE)
    registry.control(paused_run, "save")
    check_run_pauses_with_disk_message(paused_run)
    assert newest_checkpoint_step(paused_run) == 5
    names = sorted(path.name for path in (paused_run.folder / "checkpoints").iterdir())
    assert names == ["0000000", "0000005-kept"]
    check_run_finishes_with_all_metrics(registry, disk, paused_run)


def test_a_run_that_cannot_save_keeps_no_slot_from_a_waiting_one(registry, disk):
    registry.settings.slots = 1
    run, waiting = start_run(registry), start_run(registry, "bob")
    registry.change_setting(run, "speed", 40)  # its history must not fill the disk
    wait_for(lambda: resumable_steps(run) and run.step > resumable_steps(run)[0], 60)
    disk.leave(0)
    wait_for_end(run)
    saved = resumable_steps(run)[0]
    assert (run.status, run.step) == ("paused", saved)
    assert FULL in run.message
    assert run.message.endswith(f"; Resume continues at step {saved}")
    disk.clear()
    registry.delete(waiting)
    registry.control(run, "resume")
    wait_for(lambda: run.status == "training" and run.step > saved, 60, "steps")
