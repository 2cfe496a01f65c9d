"""The training process of a run, without a process of its own."""

import errno
import os

import filelock
import pytest
import torch
from safetensors.torch import load_file, save_file

from playground.checkpoints.checkpoint import save_checkpoint
from playground.checkpoints.metrics import read_metrics
from playground.runs import training_worker
from playground.runs.training_worker import HEARTBEAT_INTERVAL_S, TrainingWorker
from playground.runs.weight_history import WeightHistory, weight_steps
from playground.runs.worker_checkpoints import restore_state_at_or_before
from playground.runs.worker_protocol import WorkerSpec
from playground.training.trainer import Trainer
from tests.support.fake_workers import FakeTime
from tests.support.small_runs import tiny_config


class Pipe:
    """The worker's end of the pipe; `wait` receives the seconds for which it waits."""

    def __init__(self):
        self.sent, self.commands = [], []
        self.wait = lambda seconds: None

    def send(self, message):
        self.sent.append(message)

    def recv(self):
        return self.commands.pop(0)

    def poll(self, seconds):
        if not self.commands:
            self.wait(seconds)
        return bool(self.commands)

    def close(self):
        pass

    def messages(self, kind):
        return [content for sent_kind, *content in self.sent if sent_kind == kind]


@pytest.fixture
def pipe():
    return Pipe()


@pytest.fixture
def create_worker(tmp_path, pipe):
    def create(name="run", changes=(), **fields) -> TrainingWorker:
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        config = tiny_config(**({"max_steps": 60} | fields)).to_flat()
        return TrainingWorker(pipe, WorkerSpec(str(tmp_path / name), config, list(changes)))

    return create


@pytest.fixture
def clock(monkeypatch):
    clock = FakeTime()
    monkeypatch.setattr(training_worker, "time", clock)
    return clock


def test_the_history_has_every_step_and_the_weights_that_are_due(create_worker):
    worker = create_worker()
    worker.run()
    assert [line["step"] for line in read_metrics(worker.folder)] == list(range(1, 61))
    expected_steps = {
        step for step in range(61) if WeightHistory(worker.folder).should_save_weights(step)
    }
    assert expected_steps <= set(weight_steps(worker.folder))


def test_pauses_do_not_count_as_training_time(create_worker, clock):
    worker = create_worker()
    worker.counting = True
    for is_paused, steps_to_go, counted in (
        (True, 0, 10),
        (True, 1, 10),
        (False, 0, 20),
        (False, 0, 30),
    ):
        worker.paused, worker.steps_to_go = is_paused, steps_to_go
        clock.advance(10)
        worker.count_trained_seconds()  # the time before belongs to the status before
        assert worker.trained_seconds == pytest.approx(counted, abs=1)


def test_a_time_in_a_checkpoint_does_not_count_as_training_time(create_worker, tmp_path, pipe):
    trainer = Trainer(tiny_config())
    trainer.train_step()
    trainer.seconds = 1e9  # from another server, or forged
    save_checkpoint(tmp_path / "run" / "checkpoints" / "0000001", trainer, None)
    spec = WorkerSpec(str(tmp_path / "run"), tiny_config().to_flat(), trained_seconds=3.0)
    worker = TrainingWorker(pipe, spec)
    assert (worker.trainer.step_count, worker.trained_seconds) == (1, 3.0)


def test_a_run_in_very_slow_motion_shows_that_it_is_alive(create_worker, clock, pipe):
    worker = create_worker(changes=[[0, "speed", 0.01]])

    def wait(seconds):
        clock.advance(seconds)
        if clock.now > 1100:
            worker.request_exit("paused")

    pipe.wait = wait
    worker.train()
    assert worker.trainer.step_count == 1
    assert len(pipe.messages("points")) >= 100 / (2 * HEARTBEAT_INTERVAL_S)


def test_slow_motion_shows_every_step_and_full_speed_ends_it(create_worker, clock, pipe):
    worker = create_worker(changes=[[0, "speed", 10]], max_steps=40)

    def wait(seconds):
        clock.advance(seconds)
        if worker.trainer.step_count == 30 and seconds:
            pipe.commands.append(("change", "speed", 0))

    pipe.wait = wait
    started_at = clock.now
    assert worker.train() == ("done", "")
    assert clock.now - started_at == pytest.approx(3, abs=0.3)
    assert set(range(31)) <= set(weight_steps(worker.folder)) | {0}


def test_worker_thread_limit_overrides_its_settings(tmp_path, monkeypatch, pipe):
    (tmp_path / "checkpoints").mkdir()
    fields = tiny_config(num_threads=2).to_flat()
    thread_counts, set_num_threads = [], torch.set_num_threads
    monkeypatch.setattr(
        torch,
        "set_num_threads",
        lambda threads: (thread_counts.append(threads), set_num_threads(threads)),
    )
    spec = WorkerSpec(str(tmp_path), fields, changes=[[0, "num_threads", 8]], threads=1)
    trainer = TrainingWorker(pipe, spec).trainer
    trainer.train_step()
    assert (trainer.active_config.num_threads, trainer.threads) == (8, 1)
    save_checkpoint(tmp_path / "checkpoints" / "0000001", trainer, [])
    TrainingWorker(pipe, spec)
    assert set(thread_counts) == {1}


@pytest.fixture
def main(tmp_path, monkeypatch, pipe):
    """Run the entry point of the process here; return its last message."""
    # this process keeps its priority and its signals
    monkeypatch.setattr(training_worker, "prepare_process", lambda nice: None)
    monkeypatch.setattr(training_worker, "handle_stop_signals", lambda *_, **__: None)

    def main():
        training_worker.main(pipe, WorkerSpec(str(tmp_path), tiny_config().to_flat()))
        return pipe.sent[-1]

    return main


def test_a_run_that_another_process_trains_is_not_trained_twice(main, tmp_path, monkeypatch):
    monkeypatch.setattr(training_worker, "LOCK_TIMEOUT_S", 0.1)
    with filelock.FileLock(tmp_path / ".lock"):
        message = "another process is training this run; end that one first"
        assert main() == ("ended", "failed", message, None)
    assert list(read_metrics(tmp_path)) == []


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EROFS, "make its folder writable"), (errno.ENOSPC, "free disk space")],
)
def test_a_failed_write_pauses_the_run_with_a_remedy(create_worker, number, advice):
    worker = create_worker()

    def raise_disk_error():
        raise OSError(number, os.strerror(number), "metrics.jsonl")

    assert worker.write_or_pause(raise_disk_error) is False
    assert worker.paused
    assert worker.write_error.endswith(
        f"{os.strerror(number)}; the run is paused: {advice} and resume"
    )


def test_a_state_of_another_device_type_is_accepted(create_worker, tmp_path):
    """Add the random state of a GPU to a checkpoint, since this machine has no GPU."""
    first = Trainer(tiny_config())
    folder = tmp_path / "moved" / "checkpoints" / "0000003"
    save_checkpoint(folder, first, [first.train_step() for _ in range(3)])
    state = folder / "training.safetensors"
    save_file(load_file(state) | {"generator.cuda": torch.zeros(16, dtype=torch.uint8)}, state)
    worker = create_worker("restored")
    assert restore_state_at_or_before(worker.trainer, tmp_path / "moved", 3) == 3
    assert worker.trainer.step_count == 3
    for name, weight in worker.trainer.model.state_dict().items():
        assert torch.equal(weight, first.model.state_dict()[name]), name
