"""A real disk of two megabytes that fills up during different writes."""

import os
import time

import pytest

from playground.checkpoints.checkpoint import resume_trainer
from playground.errors import UserError
from tests.support.app_server import wait_for
from tests.support.small_runs import (
    IN_CI,
    assert_complete_series,
    newest_checkpoint_step,
    resumable_steps,
    run_as_root,
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

    def leave(self, free, pause=0.3):
        """Fill the disk until only `free` bytes are free."""
        self.clear()
        with open(self.filler, "wb") as file:
            used = 0
            # replacing a file frees the space of the old one
            for pause_s in (0, pause):
                time.sleep(pause_s)
                used = max(PAGE, used + self.free() - free)
                os.posix_fallocate(file.fileno(), 0, used)

    def clear(self):
        self.filler.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if not run_as_root(
        "mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=1777", "tmpfs", str(folder)
    ):
        assert not IN_CI, "no disk can be mounted, and CI must not skip this test"
        pytest.skip("mounting a disk requires root, or sudo without a password")
    yield Disk(folder)
    assert run_as_root("umount", "-l", str(folder))


@pytest.fixture
def registry(disk, registries):
    registry = registries(disk.folder)
    yield registry
    disk.clear()  # so that the shutdown can save the runs


def start_and_pause_at(registry, step):
    """Return a run that is paused at `step` with a checkpoint."""
    run = start_run(registry, max_steps=STEPS)
    registry.control(run, "pause")
    wait_for_status(run, "paused")
    while run.step < step:
        train_one_step(registry, run)
    before = run.live.checkpoint_version
    registry.control(run, "save")
    wait_for(lambda: run.live.checkpoint_version > before, 60, "the checkpoint")
    assert run.message == ""
    return run


def train_one_step(registry, run):
    """Train one step; return whether everything was written."""
    step, weight_steps = run.step, run.live.weight_steps
    registry.control(run, "step")
    wait_for(
        lambda: run.message or (run.step == step + 1 and run.live.weight_steps != weight_steps),
        60,
        "a single step, or an error",
    )
    return not run.message


def check_run_pauses_with_disk_message(run, before):
    wait_for(
        lambda: FULL in run.message,
        60,
        f"a message about the disk (status {run.status}, message {run.message!r})",
    )
    assert run.folder.name in run.message
    wait_for_status(run, "paused")
    assert run.has_worker  # the worker keeps the unsaved data in memory
    assert run.step < STEPS  # the run did not continue
    assert resumable_steps(run)[0] >= before


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
        assert registry.list_for_owner("ada") == []
        run, message = try_to_start(registry)
    wait_for_status(run, "paused", "failed", "done")
    check_run_finishes_with_all_metrics(registry, disk, run)


def test_a_disk_that_fills_while_the_history_is_written_pauses_the_run(registry, disk):
    run = start_and_pause_at(registry, 5)
    disk.leave(0)
    registry.control(run, "resume")
    check_run_pauses_with_disk_message(run, 5)
    assert not (run.folder / "history" / f"{run.step + 1}.safetensors").exists()
    check_run_finishes_with_all_metrics(registry, disk, run)


def test_a_disk_that_fills_while_metrics_are_written_pauses_the_run(registry, disk):
    run = start_and_pause_at(registry, 5)
    size = {
        suffix: (run.folder / "history" / f"{step}{suffix}").stat().st_size
        for step, suffix in ((5, ".safetensors"),)
    }
    weights = -(-size[".safetensors"] // PAGE) * PAGE
    while True:  # the metrics need a new page of the disk about every thirty steps
        state = 0 if (run.step + 1) % 8 else 40 * PAGE
        disk.leave(weights + state, pause=0.1)
        if state:
            assert train_one_step(registry, run), run.message
        elif not train_one_step(registry, run):
            break
        assert run.step < 55, "the metrics needed no new page of the disk"
    check_run_pauses_with_disk_message(run, 5)
    # only the metrics were not written
    assert (run.folder / "history" / f"{run.step}.safetensors").exists()
    check_run_finishes_with_all_metrics(registry, disk, run)


def test_a_disk_that_fills_while_a_checkpoint_is_written_pauses_the_run(registry, disk):
    run = start_and_pause_at(registry, 5)
    assert train_one_step(registry, run)
    disk.leave(3 * PAGE)
    registry.control(run, "save")
    check_run_pauses_with_disk_message(run, 5)
    assert newest_checkpoint_step(run) == 5
    assert sorted(path.name for path in (run.folder / "checkpoints").iterdir()) == [
        "0000000",
        "0000005-kept",
    ]
    check_run_finishes_with_all_metrics(registry, disk, run)


def test_record_write_on_full_disk_is_reported_and_retried(registry, disk):
    run = start_and_pause_at(registry, 5)
    disk.leave(0)
    registry.update_metadata(run, name="Renamed on a full disk")
    check_run_pauses_with_disk_message(run, 5)
    assert type(run).read(run.folder).name != "Renamed on a full disk"
    check_run_finishes_with_all_metrics(registry, disk, run)
    assert type(run).read(run.folder).name == "Renamed on a full disk"


def test_run_stopped_on_full_disk_waits_until_it_can_save(registry, disk):
    run = start_and_pause_at(registry, 5)
    assert train_one_step(registry, run)
    disk.leave(0)
    registry.control(run, "stop")
    check_run_pauses_with_disk_message(run, 5)
    check_run_finishes_with_all_metrics(registry, disk, run)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("free", range(0, SIZE, 16 * 1024))
def test_a_full_disk_loses_no_saved_data(registry, disk, free):
    disk.leave(free)
    run, message = try_to_start(registry)
    if run is None:
        assert FULL in message
        return
    if run.status != "done":
        assert FULL in run.message
        wait_for_status(run, "paused", "failed")
        assert run.status == "paused" or not run.step  # a run fails only before its first step
        for path in (run.folder / "checkpoints").glob("[0-9]*"):
            resume_trainer(path)
        check_run_finishes_with_all_metrics(registry, disk, run)
    assert_complete_series(registry, run, STEPS)
