"""A process is killed while it saves: everything that it reported as saved exists."""

import os
import random
import subprocess
import sys
import threading
import time

import pytest

from playground.checkpoints.checkpoint import (
    build_model,
    load_weights,
    restore_trainer,
    resume_trainer,
)
from playground.common.atomic_write import clean_up_stale
from playground.jobs.process import WorkerProcess, context
from playground.runs.state import Run
from playground.runs.training_worker import TrainingWorker
from playground.runs.weight_history import (
    read_lines,
    state_path,
    state_steps,
    weight_steps,
    weights_path,
)
from playground.runs.worker_checkpoints import N_AUTOMATIC_CHECKPOINTS
from playground.runs.worker_protocol import WorkerSpec
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT, wait_for
from tests.support.exit_at_call import ExitAtCall
from tests.support.small_runs import repeat_counts, start_run, tiny_config, wait_for_status


class SavingWorker:
    """A worker that saves continuously, and the saves that it has reported."""

    def __init__(self, folder, config):
        self.started_step = None
        self.acknowledged = 0
        self.errors, self.end_message = [], None
        self.exited = threading.Event()
        spec = WorkerSpec(str(folder), config.to_flat())
        self.child = WorkerProcess(
            "playground.runs.training_worker:main",
            "saving",
            spec,
            on_message=self.on_message,
            on_exit=lambda code: self.exited.set(),
        )

    def on_message(self, kind, *content):
        if kind == "started":
            self.started_step = content[0]
        elif kind == "saved":
            self.acknowledged = content[0]
            self.child.send("pause")
        # a pause saves; the worker trains a step between two pauses
        elif kind == "status":
            self.child.send("resume" if content[0] == "paused" else "pause")
        elif kind == "trouble" and content[0]:
            self.errors.append(content[0])
        elif kind == "ended":
            self.end_message = content

    def kill_after(self, seconds):
        wait_for(lambda: self.acknowledged or self.exited.is_set(), 60, "the first checkpoint")
        time.sleep(seconds)
        self.child.process.kill()
        assert self.exited.wait(60)


@repeat_counts(15, 1000)
def test_worker_killed_while_saving_loses_no_checkpoint(tmp_path, count):
    rng, config, folder = random.Random(count), tiny_config(), tmp_path / "run"
    checkpoints = folder / "checkpoints"
    acknowledged, n_interrupted = 0, 0
    for index in range(20 * count):
        worker = SavingWorker(folder, config)
        worker.kill_after(rng.uniform(0, 0.08))
        assert worker.end_message is None, worker.end_message
        assert worker.errors == []  # no fallback to an earlier checkpoint
        assert worker.started_step >= acknowledged, (
            f"kill {index}: step {acknowledged} was saved, "
            f"but the next worker started at {worker.started_step}"
        )
        acknowledged = max(acknowledged, worker.acknowledged)
        remaining = [path.name for path in checkpoints.glob(".*")]
        n_interrupted += bool(remaining)
        if index % 10 == 9 or remaining:
            clean_up_stale(checkpoints)
            assert list(checkpoints.glob(".*")) == []
        steps = sorted(
            resume_trainer(path)[0].step_count
            for path in checkpoints.iterdir()
            if not path.name.startswith(".")
        )
        assert steps[-1] >= acknowledged
        assert len(steps) <= N_AUTOMATIC_CHECKPOINTS + 1  # killed before it deleted the oldest one
        lines = [line["step"] for line in read_lines(folder)]
        assert lines == list(range(1, len(lines) + 1))
        assert lines[-1] >= steps[-1]
        if index + 1 >= count and n_interrupted > count // 50:
            break
    # otherwise no kill interrupted a save
    assert n_interrupted > count // 50
    family, trainer = build_model(config), Trainer(config)
    for step in weight_steps(folder):
        load_weights(family, weights_path(folder, step))
    for step in state_steps(folder):
        restore_trainer(trainer, weights_path(folder, step), state_path(folder, step), step, "cpu")


def exit_while_saving(folder, call_number):
    """Save three times in a worker that ends at this call of a removal."""
    worker = TrainingWorker(context().Pipe()[1], WorkerSpec(str(folder), tiny_config().to_flat()))
    for _ in range(N_AUTOMATIC_CHECKPOINTS):
        worker.trainer.train_step()
        worker.save()
    os.unlink, os.rmdir = map(ExitAtCall(call_number).wrap, (os.unlink, os.rmdir))
    worker.trainer.train_step()
    worker.save()
    os._exit(0)


def test_worker_killed_while_pruning_leaves_no_partial_checkpoint(tmp_path):
    codes = []
    for call_number in range(20):
        process = context().Process(
            target=exit_while_saving, args=(tmp_path / str(call_number), call_number)
        )
        process.start()
        process.join(60)
        for path in (tmp_path / str(call_number) / "checkpoints").glob("[0-9]*"):
            resume_trainer(path)
        codes.append(process.exitcode)
        if process.exitcode == 0:
            break
    assert codes[-1] == 0
    assert set(codes[:-1]) == {9}


# Possible places of unfinished writes: the root, the folder of runs, a run, and its folders.
LEFTOVERS = (
    ".x.0123abcd.tmp/config.json",
    "runs/.x.0123abcd.tmp/packed.zip",
    "{}/checkpoints/.0000005.0123abcd.tmp/config.json",
    "{}/.run.json.0123abcd.tmp",
    "{}/.metrics.jsonl.0123abcd.tmp",
    "{}/history/.5.safetensors.0123abcd.tmp",
)


@pytest.mark.parametrize("pattern", LEFTOVERS)
def test_a_starting_server_deletes_leftovers_of_a_killed_one(registries, tmp_path, pattern):
    registry = registries()
    run = start_run(registry, max_steps=5)
    wait_for_status(run, "done")
    registry.shutdown()
    wait_for(lambda: not run.has_worker, 60, "the end of the worker, which writes run.json")
    stored = sorted(
        path for path in tmp_path.rglob("*") if path.is_file() and "run.json" not in path.name
    )
    leftover = tmp_path / pattern.format(run.folder.relative_to(tmp_path))
    leftover.parent.mkdir(exist_ok=True)
    leftover.write_bytes(b"incomplete")
    for path in (
        (leftover, leftover.parent) if leftover.parent.name.endswith(".tmp") else (leftover,)
    ):
        os.utime(path, (time.time() - 86_400,) * 2)
    restored = registries()
    assert [stored_run.id for stored_run in restored.list_for_owner("ada")] == [run.id]
    assert not leftover.exists()
    assert (
        sorted(
            path for path in tmp_path.rglob("*") if path.is_file() and "run.json" not in path.name
        )
        == stored
    )


RENAMES = """
import sys
from pathlib import Path
from playground.runs.registry import Registry
registry = Registry(Path(sys.argv[1]))
(run,) = registry.list_for_owner("ada")
for number in range(int(run.name) + 1, 10**9):
    registry.update_metadata(run, name=str(number))
    print(number, flush=True)
"""


@pytest.mark.smoke
@repeat_counts(10, 200)
def test_server_killed_while_writing_loses_no_run_record(registries, tmp_path, count):
    registry = registries()
    run = start_run(registry, max_steps=2)
    wait_for_status(run, "done")
    registry.update_metadata(run, name="0")
    registry.shutdown()
    rng, names = random.Random(count), 0
    for _ in range(count):
        command = [sys.executable, "-c", RENAMES, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            names = int(server.stdout.readline())
            time.sleep(rng.uniform(0, 0.05))
            server.kill()
            names = max([names, *map(int, server.stdout.read().split("\n")[:-1])])
        # the last name may not have been reported
        assert int(Run.read(run.folder).name) in (names, names + 1)
        assert Run.read(run.folder).status == "done"
