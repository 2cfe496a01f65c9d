"""The training process of a run, without a process of its own."""

import filelock
import pytest
import torch
from safetensors.torch import load_file, save_file

from playground.checkpoints.checkpoint import save_checkpoint
from playground.jobs.process import context
from playground.runs import training_worker
from playground.runs.training_worker import TrainingWorker
from playground.runs.weight_history import WeightHistory, read_lines, weight_steps
from playground.runs.worker_checkpoints import restore_state_at_or_before
from playground.runs.worker_protocol import WorkerSpec
from playground.training.config import RunConfig
from playground.training.trainer import Trainer

SMALL = {
    "d_model": 8,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 16,
    "batch_size": 8,
    "max_length": 4,
    "eval_every": 50,
    "eval_size": 20,
    "max_steps": 300,
}


@pytest.fixture
def create_worker(tmp_path):
    parent_ends = []  # a worker exits when this end of its pipe is closed

    def create(name: str) -> TrainingWorker:
        parent_end, pipe = context().Pipe()
        parent_ends.append(parent_end)
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        return TrainingWorker(
            pipe, WorkerSpec(str(tmp_path / name), RunConfig.from_flat(SMALL).to_flat())
        )

    yield create
    for parent_end in parent_ends:
        parent_end.close()


@pytest.mark.smoke
def test_the_history_has_every_step_and_the_weights_that_are_due(create_worker):
    worker = create_worker("run")
    worker.run()
    assert [line["step"] for line in read_lines(worker.folder)] == list(range(1, 301))
    expected_steps = {
        step for step in range(301) if WeightHistory(worker.folder).should_save_weights(step)
    }
    assert expected_steps <= set(weight_steps(worker.folder))


def test_worker_thread_limit_overrides_its_settings(tmp_path, monkeypatch):
    owner, pipe = context().Pipe()
    (tmp_path / "checkpoints").mkdir()
    fields = RunConfig.from_flat(SMALL | {"num_threads": 2}).to_flat()
    thread_counts, set_num_threads = [], torch.set_num_threads
    monkeypatch.setattr(
        torch,
        "set_num_threads",
        lambda threads: (thread_counts.append(threads), set_num_threads(threads)),
    )
    worker = TrainingWorker(
        pipe, WorkerSpec(str(tmp_path), fields, changes=[[0, "num_threads", 8]], threads=1)
    )
    worker.trainer.train_step()
    assert (
        worker.trainer.active_config.num_threads,
        worker.trainer.threads,
        torch.get_num_threads(),
    ) == (8, 1, 1)
    save_checkpoint(tmp_path / "checkpoints" / "0000001", worker.trainer, [])
    TrainingWorker(
        pipe, WorkerSpec(str(tmp_path), fields, changes=[[0, "num_threads", 8]], threads=1)
    )
    assert set(thread_counts) == {1}
    owner.close()


def test_a_run_that_another_process_trains_is_not_trained_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(training_worker, "LOCK_TIMEOUT_S", 0.1)
    # this process keeps its priority and its signals
    monkeypatch.setattr(training_worker, "prepare_process", lambda nice: None)
    monkeypatch.setattr(training_worker.signal, "signal", lambda number, handler: None)
    receiver, sender = context().Pipe()
    spec = WorkerSpec(str(tmp_path), RunConfig.from_flat(SMALL).to_flat())
    with filelock.FileLock(tmp_path / ".lock"):
        training_worker.main(sender, spec)
    message = "another process is training this run; end that one first"
    assert receiver.recv() == ("ended", "failed", message, None)
    assert list(read_lines(tmp_path)) == []


def test_a_state_of_another_device_type_is_accepted(create_worker, tmp_path):
    """Add the random state of a GPU to a checkpoint, since this machine has no GPU."""
    first = Trainer(RunConfig.from_flat(SMALL))
    folder = tmp_path / "moved" / "checkpoints" / "0000003"
    save_checkpoint(folder, first, [first.train_step() for _ in range(3)])
    state = folder / "training.safetensors"
    save_file(load_file(state) | {"generator.cuda": torch.zeros(16, dtype=torch.uint8)}, state)
    worker = create_worker("restored")
    assert restore_state_at_or_before(worker.trainer, tmp_path / "moved", 3) == 3
    assert worker.trainer.step_count == 3
    for name, weight in worker.trainer.model.state_dict().items():
        assert torch.equal(weight, first.model.state_dict()[name]), name
