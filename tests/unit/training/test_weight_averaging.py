import json
import math

import pytest
import torch
from safetensors.torch import load_file

from playground.checkpoints.checkpoint import (
    load_model,
    resume_trainer,
    save_checkpoint,
    weights_by_name,
)
from playground.checkpoints.manifest import CheckpointError
from playground.evaluation import evaluate
from playground.training.trainer import Trainer, TrainingDivergedError
from playground.training.weight_averaging import averaging_rate
from tests.support.trainer_fingerprint import fingerprint


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
    assert [averaging_rate(step) for step in (1, 6)] == [1, 0.5]


def test_training_is_the_same_and_scores_are_those_of_the_average(averaged):
    trainer, plain = Trainer(averaged), Trainer(averaged.replace(weight_averaging=False))
    assert [each.loss for each in trainer] == [each.loss for each in plain]
    assert plain.eval_model is plain.model
    scores = trainer.evaluate(64)
    held_out = trainer._held_out[64]
    assert scores == evaluate(trainer.eval_model, held_out)
    assert scores != evaluate(trainer.model, held_out)


def test_saved_model_is_the_average_and_training_continues_without_it(averaged, tmp_path):
    trainer = Trainer(averaged)
    for _ in range(5):
        trainer.train_step()
    save_checkpoint(tmp_path / "cut", trainer, [])
    _, loaded = load_model(tmp_path / "cut")
    resumed, _ = resume_trainer(tmp_path / "cut")
    raw = copy_weights(trainer.model)
    for name, weight in copy_weights(trainer.eval_model).items():
        assert torch.equal(dict(loaded.named_parameters())[name], weight)
        assert torch.equal(resumed.model.get_parameter(name), raw[name])
    assert not torch.equal(raw["output_proj.weight"], loaded.output_proj.weight)
    list(trainer)
    list(resumed)
    assert fingerprint(resumed) == fingerprint(trainer)


def test_checkpoint_without_the_raw_weights_is_rejected(averaged, tmp_path):
    trainer = Trainer(averaged)
    trainer.train_step()
    save_checkpoint(tmp_path / "cut", trainer, [])
    state = load_file(tmp_path / "cut" / "training.safetensors")
    assert "weight.output_proj.weight" in state
    plain = Trainer(averaged.replace(weight_averaging=False))
    plain.train_step()
    save_checkpoint(tmp_path / "plain", plain, [])
    for folder, value in (("cut", False), ("plain", True)):
        with pytest.raises(CheckpointError, match=f"weight_averaging {not value}, not {value}"):
            resume_trainer(tmp_path / folder, weight_averaging=value)


def test_diverged_step_leaves_the_average_unchanged(averaged):
    trainer = Trainer(averaged)
    trainer.train_step()
    before = copy_weights(trainer.eval_model)
    with torch.no_grad():
        trainer.model.output_proj.bias[0] = torch.inf
    with pytest.raises(TrainingDivergedError):
        trainer.train_step()
    assert all(
        torch.equal(weight, before[name])
        for name, weight in copy_weights(trainer.eval_model).items()
    )


def test_earlier_checkpoint_resumes_with_its_optimizer_and_no_average(small_run, tmp_path):
    trainer = Trainer(small_run.replace(max_steps=6))
    for _ in range(3):
        trainer.train_step()
    save_checkpoint(tmp_path / "old", trainer, [])
    config = json.loads((tmp_path / "old" / "config.json").read_text())
    for name in ("weight_averaging", "muon_lr_ratio"):
        del config["training"][name]
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    resumed, _ = resume_trainer(tmp_path / "old")
    assert (resumed.config.training.optimizer, resumed.average) == ("adam", None)
    list(trainer)
    list(resumed)
    assert fingerprint(resumed) == fingerprint(trainer)
