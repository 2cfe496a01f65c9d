"""What only a GPU shows.

Everywhere else the same code is tested with the capturing call replaced
(tests/unit/training/test_cuda_graphs.py).
"""

import pytest
import torch

from playground.architectures import ARCHITECTURES
from playground.checkpoints.checkpoint import resume_trainer, save_checkpoint
from playground.tasks import TASKS
from playground.training.config import RunConfig
from playground.training.cuda_graphs import CudaGraphSteps
from playground.training.presets import architecture_preset, preset_config
from playground.training.trainer import Trainer

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
    # torch has some that only a GPU brings about
    pytest.mark.filterwarnings("default::UserWarning"),
]
# A power of two as rate: plain steps have it in double precision, captured ones in single.
FIELDS = {
    "learning_rate": 2**-7,
    "d_model": 32,
    "d_ff": 64,
    "batch_size": 32,
    "max_steps": 60,
    "eval_every": 20,
    "eval_size": 100,
    "lr_schedule": "constant",
    "warmup_steps": 0,
}


def trained(trainer):
    metrics = []
    while trainer.should_continue():
        metrics += trainer.train_steps(100)
    return metrics


@pytest.mark.parametrize("changes", [{}, {"optimizer": "muon", "weight_averaging": True}], ids=str)
def test_cuda_graph_steps_equal_plain_steps(changes):
    plain = trained(Trainer(RunConfig.from_flat(FIELDS | changes), capture=False))
    trainer = Trainer(RunConfig.from_flat(FIELDS | changes))
    captured = trained(trainer)
    assert trainer.cuda_graph.capture_error == ""
    assert [m.loss for m in captured] == pytest.approx([m.loss for m in plain], rel=1e-4)
    assert [m.step for m in captured] == [m.step for m in plain]


def test_the_fast_preset_learns():
    trainer = Trainer(preset_config("fast", {"stop_at_exact_match": 0.99}))
    trained(trainer)
    assert trainer.stopped_early


def test_each_replay_has_a_new_dropout_mask():
    trainer = Trainer(RunConfig.from_flat(FIELDS | {"dropout": 0.5, "learning_rate": 1e-9}))
    batch = trainer._next_batch()
    trainer.cuda_graph.next_batch = lambda: batch
    losses = [m.loss for m in trainer.train_steps(20)]
    assert len(set(losses[4:])) == len(losses[4:])


def test_every_batch_of_a_row_is_another():
    trainer = Trainer(RunConfig.from_flat(FIELDS | {"learning_rate": 1e-9}))
    losses = [m.loss for m in trainer.train_steps(20)]
    assert len(set(losses)) == 20


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_every_family_can_be_captured(family):
    trainer = Trainer(architecture_preset(family, batch_size=16, max_steps=20, eval_every=20))
    assert len(trained(trainer)) == 20
    assert trainer.cuda_graph.capture_error == ""


@pytest.mark.parametrize("task", TASKS)
def test_every_task_can_be_captured(task):
    trainer = Trainer(
        RunConfig.from_flat(FIELDS | {"task": task, "min_length": 3, "max_steps": 20})
    )
    assert len(trained(trainer)) == 20
    assert trainer.cuda_graph.capture_error == ""


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_coarser_numbers_learn_too(precision):
    trainer = Trainer(
        RunConfig.from_flat(
            {
                "precision": precision,
                "stop_at_exact_match": 0.99,
                "max_steps": 400,
                "lr_decay_steps": 300,
            }
        )
    )
    trained(trainer)
    assert trainer.stopped_early


def test_a_step_with_device_synchronization_runs_uncaptured():
    trainer = Trainer(RunConfig.from_flat(FIELDS))
    loss = trainer.model.loss
    trainer.model.loss = lambda batch, smoothing: (
        loss(batch, smoothing) * (1.0 if bool(batch.loss_weight_B.sum() >= 0) else 0.0)
    )
    assert len(trained(trainer)) == 60
    assert trainer.cuda_graph.capture_error


def test_a_resumed_run_continues_identically(tmp_path):
    uninterrupted = trained(Trainer(RunConfig.from_flat(FIELDS)))
    first = Trainer(RunConfig.from_flat(FIELDS))
    metrics = first.train_steps(20)
    save_checkpoint(tmp_path / "saved", first, metrics, None)
    second, _ = resume_trainer(tmp_path / "saved")
    assert isinstance(second.cuda_graph, CudaGraphSteps)
    assert [m.loss for m in metrics + trained(second)] == pytest.approx(
        [m.loss for m in uninterrupted], rel=1e-3
    )


def test_a_learning_rate_changes_without_another_recording():
    trainer = Trainer(RunConfig.from_flat(FIELDS))
    trainer.train_steps(10)
    replay = trainer.cuda_graph.replay
    trainer.schedule_change("learning_rate", 1e-9)
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    assert {m.learning_rate for m in trainer.train_steps(5)} == {1e-9}
    assert trainer.cuda_graph.replay is replay
    for name, weight in trainer.model.state_dict().items():
        assert torch.allclose(weight, before[name], atol=1e-7), name
