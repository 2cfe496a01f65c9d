import math

import pytest
import torch

from playground.checkpoints.checkpoint import weights_by_name
from playground.evaluation import evaluate
from playground.training.step import TrainingDivergedError
from playground.training.trainer import Trainer


@pytest.fixture
def averaged(small_run):
    return small_run.replace(weight_averaging=True, max_steps=12)


def copy_weights(model):
    return {name: weight.detach().clone() for name, weight in weights_by_name(model).items()}


def test_shares_of_the_steps_in_the_average_grow_polynomially(averaged):
    trainer = Trainer(averaged)
    history = []
    for _ in range(10):
        trainer.train_step()
        history.append(trainer.model.output_proj.weight.detach().double().clone())
    shares = [math.comb(step + 3, 4) for step in range(1, 11)]
    expected = sum(share * weight for share, weight in zip(shares, history, strict=True))
    torch.testing.assert_close(
        trainer.eval_model.output_proj.weight.double(), expected / sum(shares), atol=1e-6, rtol=1e-5
    )


def test_training_is_the_same_and_scores_are_those_of_the_average(averaged):
    trainer, plain = Trainer(averaged), Trainer(averaged.replace(weight_averaging=False))
    assert [each.loss for each in trainer] == [each.loss for each in plain]
    assert plain.eval_model is plain.model
    scores = trainer.evaluate(64)
    held_out = trainer._held_out[64]
    assert scores == evaluate(trainer.eval_model, held_out)
    assert scores != evaluate(trainer.model, held_out)


def test_diverged_step_leaves_the_average_unchanged(averaged):
    trainer = Trainer(averaged)
    trainer.train_step()
    before = copy_weights(trainer.eval_model)
    with torch.no_grad():
        trainer.model.output_proj.bias[0] = torch.inf
    with pytest.raises(TrainingDivergedError):
        trainer.train_step()
    after = copy_weights(trainer.eval_model)
    assert all(torch.equal(weight, before[name]) for name, weight in after.items())
