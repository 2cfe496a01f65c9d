"""What only a GPU shows. Everywhere else the same code is tested on a CPU."""

import pytest
import torch

from playground.architectures import ARCHITECTURES
from playground.checkpoints.checkpoint import resume_trainer, save_checkpoint
from playground.training.presets import architecture_preset, preset_config
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
    # torch has some that only a GPU brings about
    pytest.mark.filterwarnings("default::UserWarning"),
]
SMALL = {"d_model": 32, "d_ff": 64, "batch_size": 32, "max_steps": 40, "eval_every": 20}


def test_the_fast_preset_learns():
    trainer = Trainer(preset_config("fast", {"stop_at_exact_match": 0.99}))
    list(trainer)
    assert trainer.device.type == "cuda"
    assert trainer.stopped_early


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_every_architecture_trains(family):
    config = architecture_preset(family, batch_size=16, max_steps=20, eval_every=20)
    assert [metrics.step for metrics in Trainer(config)] == list(range(1, 21))


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_coarser_numbers_learn_too(precision):
    values = {"stop_at_exact_match": 0.99, "max_steps": 400, "lr_decay_steps": 300}
    trainer = Trainer(RunConfig.from_flat(values | {"precision": precision}))
    list(trainer)
    assert trainer.stopped_early


@pytest.mark.parametrize(
    "values", [{}, {"optimizer": "muon", "weight_averaging": True, "dropout": 0.1}], ids=str
)
def test_a_resumed_run_continues_identically(tmp_path, values):
    uninterrupted = list(Trainer(RunConfig.from_flat(SMALL | values)))
    first = Trainer(RunConfig.from_flat(SMALL | values))
    metrics = [first.train_step() for _ in range(20)]
    save_checkpoint(tmp_path / "saved", first, metrics, None)
    second, _ = resume_trainer(tmp_path / "saved")
    losses = [each.loss for each in [*metrics, *second]]
    assert losses == pytest.approx([each.loss for each in uninterrupted], rel=1e-3)
