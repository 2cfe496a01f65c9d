"""A process is killed while it saves: everything that it reported as saved exists."""

import os
import threading
import time

import pytest

from playground.checkpoints.checkpoint import (
    build_model,
    load_weights,
    restore_trainer,
    resume_trainer,
)
from playground.checkpoints.metrics import read_metrics
from playground.common.atomic_write import clean_up_stale
from playground.jobs.process import WorkerProcess, context
from playground.runs.training_worker import TrainingWorker
from playground.runs.weight_history import state_path, state_steps, weight_steps, weights_path
from playground.runs.worker_checkpoints import N_AUTOMATIC_CHECKPOINTS
from playground.runs.worker_protocol import WorkerSpec
from playground.training.trainer import Trainer
from tests.support.exit_at_call import ExitAtCall
from tests.support.small_runs import repeat_counts, start_run, tiny_config


class SavingWorker:
    """A worker that saves continuously, and the saves that it has reported."""

    def __init__(self, folder, config):
        self.started_step, self.acknowledged = None, 0
        self.errors, self.end_message = [], None
        self.saved, self.exited = threading.Semaphore(0), threading.Event()
        self.child = WorkerProcess(
            "playground.runs.training_worker:main",
            "saving",
            WorkerSpec(str(folder), config.to_flat()),
            on_message=self.on_message,
            on_exit=lambda code: self.exited.set(),
        )

    def on_message(self, kind, *content):
        if kind == "started":
            self.started_step = content[0]
        elif kind == "saved":
            self.acknowledged = content[0]
            self.saved.release()
            self.child.send("pause")
        # a pause saves; the worker trains a step between two pauses
        elif kind == "status":
            self.child.send("resume" if content[0] == "paused" else "pause")
        elif kind == "trouble" and content[0]:
            self.errors.append(content[0])
        elif kind == "ended":
            self.end_message = content

    def kill_after(self, saves):
        """Kill the worker after some saves; it writes the next one meanwhile."""
        for _ in range(saves):
            assert self.saved.acquire(timeout=60)
        self.child.process.kill()
        assert self.exited.wait(60)


@repeat_counts(6, 1000)
def test_a_killed_worker_loses_no_checkpoint_that_it_acknowledged(tmp_path, count):
    config, folder, acknowledged = tiny_config(), tmp_path / "run", 0
    checkpoints = folder / "checkpoints"
    for index in range(count):
        worker = SavingWorker(folder, config)
        worker.kill_after(1 + index % 4)
        assert worker.end_message is None
        assert worker.errors == []  # no fallback to an earlier checkpoint
        assert worker.started_step >= acknowledged, f"kill {index}"
        acknowledged = max(acknowledged, worker.acknowledged)
        clean_up_stale(checkpoints)
        assert list(checkpoints.glob(".*")) == []
        steps = sorted(resume_trainer(path)[0].step_count for path in checkpoints.iterdir())
        assert steps[-1] >= acknowledged
        assert len(steps) <= N_AUTOMATIC_CHECKPOINTS + 1  # killed before it deleted the oldest one
        lines = [line["step"] for line in read_metrics(folder)]
        assert lines == list(range(1, len(lines) + 1))
        assert len(lines) >= steps[-1]
    family, trainer = build_model(config), Trainer(config)
    for step in weight_steps(folder):
        load_weights(family, weights_path(folder, step))
    for step in state_steps(folder):
        restore_trainer(trainer, weights_path(folder, step), state_path(folder, step), step, "cpu")


def exit_while_saving(folder, call_number):
    """Save three times in a worker that ends at this call of a rename or a removal."""
    worker = TrainingWorker(context().Pipe()[1], WorkerSpec(str(folder), tiny_config().to_flat()))
    for _ in range(N_AUTOMATIC_CHECKPOINTS):
        worker.trainer.train_step()
        worker.save()
    names = ("rename", "replace", "unlink", "rmdir")
    for name, function in zip(
        names, map(ExitAtCall(call_number).wrap, (getattr(os, n) for n in names)), strict=True
    ):
        setattr(os, name, function)
    worker.trainer.train_step()
    worker.save()
    os._exit(0)


def test_worker_killed_at_any_rename_or_removal_leaves_whole_checkpoints(tmp_path):
    codes = []
    for call_number in range(30):
        folder = tmp_path / str(call_number)
        process = context().Process(target=exit_while_saving, args=(folder, call_number))
        process.start()
        process.join(60)
        steps = {
            resume_trainer(path)[0].step_count for path in (folder / "checkpoints").glob("[0-9]*")
        }
        assert N_AUTOMATIC_CHECKPOINTS in steps
        codes.append(process.exitcode)
        if process.exitcode == 0:
            break
    assert codes[-1] == 0
    assert set(codes[:-1]) == {9}


# Possible places of unfinished writes: the root, the folder of runs, a run with its folders, the
# datasets with their owners, and the fine-tuned models.
LEFTOVERS = (
    *(".x.0123abcd.tmp/config.json", "runs/.x.0123abcd.tmp/packed.zip"),
    *("{}/checkpoints/.0000005.0123abcd.tmp/config.json", "{}/.run.json.0123abcd.tmp"),
    *("{}/.metrics.jsonl.0123abcd.tmp", "{}/history/.5.safetensors.0123abcd.tmp"),
    *("rows/.x.0123abcd.tmp/pairs.safetensors", "compared/.x.0123abcd.tmp/config.json"),
    *("rows/.owners/ada/.x.0123abcd.tmp", "rows/.owners/removed/.x.0123abcd.tmp"),
)


@pytest.mark.smoke
def test_a_starting_server_deletes_leftovers_of_a_killed_one(registries, tmp_path):
    registry = registries(slots=0)
    run = start_run(registry)
    for name in ("checkpoints", "history"):
        (run.folder / name).mkdir()
    stored = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for pattern in LEFTOVERS:
        leftover = tmp_path / pattern.format(run.folder.relative_to(tmp_path))
        leftover.parent.mkdir(parents=True, exist_ok=True)
        leftover.write_bytes(b"incomplete")
        for path in (leftover, leftover.parent):
            if path.name.endswith(".tmp"):
                os.utime(path, (time.time() - 86_400,) * 2)
    restored = registries()
    assert [each.id for each in restored.list_for_owner("ada")] == [run.id]
    assert {path for path in tmp_path.rglob("*.tmp*") if path.is_file()} == set()
    assert {*stored} <= {path for path in tmp_path.rglob("*") if path.is_file()}
