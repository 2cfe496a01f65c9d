"""Tiny models in place of pretrained ones, and a trained checkpoint."""

import pytest

from playground.checkpoints.checkpoint import save_checkpoint
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.tiny_models import cached_models


@pytest.fixture(scope="session")
def tiny_models(request):
    """A folder with tiny-gpt2/, tiny-bert/ and tiny-t5/, in the cache of pytest."""
    return cached_models(request.config.cache.mkdir("tiny-models"))


@pytest.fixture(scope="session")
def tiny_gpt2(tiny_models):
    return str(tiny_models / "tiny-gpt2")


@pytest.fixture(scope="session")
def tiny_bert(tiny_models):
    return str(tiny_models / "tiny-bert")


@pytest.fixture(scope="session")
def tiny_t5(tiny_models):
    return str(tiny_models / "tiny-t5")


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A checkpoint that reverses three digits, with almost no errors."""
    config = RunConfig.from_flat(
        {
            "min_length": 3,
            "max_length": 3,
            "d_model": 32,
            "n_heads": 1,
            "n_layers": 1,
            "d_ff": 64,
            "max_steps": 150,
            "batch_size": 64,
            "eval_size": 64,
            "device": "cpu",
        }
    )
    trainer = Trainer(config)
    metrics = list(trainer)
    folder = tmp_path_factory.mktemp("digits") / "digits"
    save_checkpoint(folder, trainer, metrics, trainer.evaluate(64))
    return folder
