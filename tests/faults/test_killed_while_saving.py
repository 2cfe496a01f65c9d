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


class Saving:
    """A worker that saves continuously, and the saves that it has reported."""

    def __init__(self, folder, config):
        self.began = None
        self.acknowledged = 0
        self.trouble, self.ended = [], None
        self.removed = threading.Event()
        order = WorkerSpec(str(folder), config.to_flat())
        self.child = WorkerProcess(
            "playground.runs.training_worker:main",
            "saving",
            order,
            on_message=self.take,
            on_exit=lambda code: self.removed.set(),
        )

    def take(self, kind, *content):
        if kind == "started":
            self.began = content[0]
        elif kind == "saved":
            self.acknowledged = content[0]
            self.child.send("pause")
        # a pause saves, and only goes on to the next step between two of them
        elif kind == "status":
            self.child.send("resume" if content[0] == "paused" else "pause")
        elif kind == "trouble" and content[0]:
            self.trouble.append(content[0])
        elif kind == "ended":
            self.ended = content

    def kill_after(self, seconds):
        wait_for(lambda: self.acknowledged or self.removed.is_set(), 60, "the first checkpoint")
        time.sleep(seconds)
        self.child.process.kill()
        assert self.removed.wait(60)


@repeat_counts(15, 1000)
def test_worker_killed_while_saving_loses_no_checkpoint(tmp_path, count):
    chance, config, folder = random.Random(count), tiny_config(), tmp_path / "run"
    checkpoints = folder / "checkpoints"
    acknowledged, cut = 0, 0
    for turn in range(20 * count):
        worker = Saving(folder, config)
        worker.kill_after(chance.uniform(0, 0.08))
        assert worker.ended is None, worker.ended
        assert worker.trouble == []  # it never had to fall back
        assert worker.began >= acknowledged, (
            f"kill {turn}: step {acknowledged} was saved, the next worker began at {worker.began}"
        )
        acknowledged = max(acknowledged, worker.acknowledged)
        left = [path.name for path in checkpoints.glob(".*")]
        cut += bool(left)
        if turn % 10 == 9 or left:
            clean_up_stale(checkpoints)
            assert list(checkpoints.glob(".*")) == []
        steps = sorted(
            resume_trainer(path)[0].step_count
            for path in checkpoints.iterdir()
            if not path.name.startswith(".")
        )
        assert steps[-1] >= acknowledged
        assert len(steps) <= N_AUTOMATIC_CHECKPOINTS + 1  # killed before it let the oldest one go
        lines = [line["step"] for line in read_lines(folder)]
        assert lines == list(range(1, len(lines) + 1))
        assert lines[-1] >= steps[-1]
        if turn + 1 >= count and cut > count // 50:
            break
    # otherwise the kills came at the wrong moments and this test shows nothing
    assert cut > count // 50
    family, trainer = build_model(config), Trainer(config)
    for step in weight_steps(folder):
        load_weights(family, weights_path(folder, step))
    for step in state_steps(folder):
        restore_trainer(trainer, weights_path(folder, step), state_path(folder, step), step, "cpu")


def die_while_saving(folder, point):
    """Save three times in a worker that ends at this call of a removal."""
    worker = TrainingWorker(context().Pipe()[1], WorkerSpec(str(folder), tiny_config().to_flat()))
    for _ in range(N_AUTOMATIC_CHECKPOINTS):
        worker.trainer.train_step()
        worker.save()
    os.unlink, os.rmdir = map(ExitAtCall(point).wrap, (os.unlink, os.rmdir))
    worker.trainer.train_step()
    worker.save()
    os._exit(0)


def test_worker_killed_while_pruning_leaves_no_partial_checkpoint(tmp_path):
    codes = []
    for point in range(20):
        process = context().Process(target=die_while_saving, args=(tmp_path / str(point), point))
        process.start()
        process.join(60)
        for path in (tmp_path / str(point) / "checkpoints").glob("[0-9]*"):
            resume_trainer(path)
        codes.append(process.exitcode)
        if process.exitcode == 0:
            break
    assert codes[-1] == 0
    assert set(codes[:-1]) == {9}


# Where unfinished writes of a killed process may lie: in the root, beside the runs, in a run, in
# its folders.
LITTER = (
    ".x.0123abcd.tmp/config.json",
    "runs/.x.0123abcd.tmp/packed.zip",
    "{}/checkpoints/.0000005.0123abcd.tmp/config.json",
    "{}/.run.json.0123abcd.tmp",
    "{}/.metrics.jsonl.0123abcd.tmp",
    "{}/history/.5.safetensors.0123abcd.tmp",
)


@pytest.mark.parametrize("where", LITTER)
def test_a_starting_server_deletes_leftovers_of_a_killed_one(registries, tmp_path, where):
    registry = registries()
    run = start_run(registry, max_steps=5)
    wait_for_status(run, "done")
    registry.shutdown()
    wait_for(lambda: not run.has_worker, 60, "the worker's end, which is noted in run.json")
    stored = sorted(
        path for path in tmp_path.rglob("*") if path.is_file() and "run.json" not in path.name
    )
    litter = tmp_path / where.format(run.folder.relative_to(tmp_path))
    litter.parent.mkdir(exist_ok=True)
    litter.write_bytes(b"half of it")
    for path in (litter, litter.parent) if litter.parent.name.endswith(".tmp") else (litter,):
        os.utime(path, (time.time() - 86_400,) * 2)
    again = registries()
    assert [each.id for each in again.list_for_owner("ada")] == [run.id]
    assert not litter.exists()
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
    chance, written = random.Random(count), 0
    for _ in range(count):
        command = [sys.executable, "-c", RENAMES, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            written = int(server.stdout.readline())
            time.sleep(chance.uniform(0, 0.05))
            server.kill()
            written = max([written, *map(int, server.stdout.read().split("\n")[:-1])])
        # the last one may not have been reported
        assert int(Run.read(run.folder).name) in (written, written + 1)
        assert Run.read(run.folder).status == "done"
