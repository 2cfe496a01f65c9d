"""What only a GPU shows. Everywhere else the same code is tested with the capturing call replaced (tests/training/test_captured.py)."""

import pytest
import torch

from playground.families import FAMILIES
from playground.tasks import TASKS
from playground.training.captured import CapturedSteps
from playground.training.checkpoint import load_trainer, save_checkpoint
from playground.training.config import RunConfig
from playground.training.presets import family_config
from playground.training.trainer import Trainer

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
    pytest.mark.filterwarnings("default::UserWarning"),  # torch has some that only a GPU brings about
]
# A power of two as rate: plain steps have it in double precision, captured ones in single.
FIELDS = {
    "learning_rate": 2**-7,
    "d_model": 32,
    "d_ff": 64,
    "batch_size": 32,
    "steps": 60,
    "eval_every": 20,
    "eval_n": 100,
    "schedule": "constant",
    "warmup": 0,
}


def trained(trainer):
    metrics = []
    while trainer.should_continue():
        metrics += trainer.advance(100)
    return metrics


def test_captured_steps_are_the_plain_ones():
    plain = trained(Trainer(RunConfig.from_fields(FIELDS), capture=False))
    trainer = Trainer(RunConfig.from_fields(FIELDS))
    captured = trained(trainer)
    assert trainer.captured.refusal == ""
    assert [m.loss for m in captured] == pytest.approx([m.loss for m in plain], rel=1e-4)
    assert [m.step for m in captured] == [m.step for m in plain]


def test_the_fast_recipe_learns():
    trainer = Trainer(RunConfig.from_fields({"until": 0.99}))
    trained(trainer)
    assert trainer.finished


def test_dropout_draws_anew_at_each_replay():
    trainer = Trainer(RunConfig.from_fields(FIELDS | {"dropout": 0.5, "learning_rate": 1e-9}))
    batch = trainer._draw()
    trainer.captured.draw = lambda: batch
    losses = [m.loss for m in trainer.advance(20)]
    assert len(set(losses[4:])) == len(losses[4:])


def test_every_batch_of_a_row_is_another():
    trainer = Trainer(RunConfig.from_fields(FIELDS | {"learning_rate": 1e-9}))
    losses = [m.loss for m in trainer.advance(20)]
    assert len(set(losses)) == 20


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_captured(family):
    trainer = Trainer(family_config(family, batch_size=16, steps=20, eval_every=20))
    assert len(trained(trainer)) == 20
    assert trainer.captured.refusal == ""


@pytest.mark.parametrize("task", TASKS)
def test_every_task_can_be_captured(task):
    trainer = Trainer(RunConfig.from_fields(FIELDS | {"task": task, "min_length": 3, "steps": 20}))
    assert len(trained(trainer)) == 20
    assert trainer.captured.refusal == ""


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_coarser_numbers_learn_too(precision):
    trainer = Trainer(RunConfig.from_fields({"precision": precision, "until": 0.99, "steps": 400, "decay_steps": 300}))
    trained(trainer)
    assert trainer.finished


def test_a_step_that_asks_the_device_is_taken_plainly_and_the_run_goes_on():
    trainer = Trainer(RunConfig.from_fields(FIELDS))
    loss = trainer.family.loss
    trainer.family.loss = lambda batch, smoothing: loss(batch, smoothing) * (1.0 if bool(batch.weight_B.sum() >= 0) else 0.0)
    assert len(trained(trainer)) == 60
    assert trainer.captured.refusal


def test_a_resumed_run_goes_on_alike(tmp_path):
    whole = trained(Trainer(RunConfig.from_fields(FIELDS)))
    first = Trainer(RunConfig.from_fields(FIELDS))
    metrics = first.advance(20)
    save_checkpoint(tmp_path / "saved", first, metrics, None)
    second, _ = load_trainer(tmp_path / "saved")
    assert isinstance(second.captured, CapturedSteps)
    assert [m.loss for m in metrics + trained(second)] == pytest.approx([m.loss for m in whole], rel=1e-3)


def test_a_learning_rate_changes_without_another_recording():
    trainer = Trainer(RunConfig.from_fields(FIELDS))
    trainer.advance(10)
    replay = trainer.captured.replay
    trainer.change("learning_rate", 1e-9)
    before = {name: weight.clone() for name, weight in trainer.family.state_dict().items()}
    assert {m.learning_rate for m in trainer.advance(5)} == {1e-9}
    assert trainer.captured.replay is replay
    for name, weight in trainer.family.state_dict().items():
        assert torch.allclose(weight, before[name], atol=1e-7), name
