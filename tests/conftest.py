"""Fixtures of the lower layers: small settings, and one model at several training steps."""

import copy

import pytest
import torch
from hypothesis import settings

from playground.jobs import process as worker_process
from playground.jobs.admission import CLIENT_ADDRESS
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer

settings.register_profile("quick", max_examples=50, deadline=None, derandomize=True, database=None)
settings.load_profile("quick")
# as a Trainer does: two threads on a busy machine take thirty times as long
torch.set_num_threads(1)

# Modules that figures and transformers import, so that a forked process starts two seconds sooner.
# Modules that read the environment at import, such as huggingface_hub, must not be in the list.
worker_process.PRELOAD += [
    "pandas",
    "scipy.stats",
    "sklearn.metrics",
    "matplotlib.backends.backend_agg",
]

pytest_plugins = ["tests.support.layers", "tests.support.fixtures"]


@pytest.fixture(scope="session")
def small_run():
    """A run of one layer and one head: reversal of 1 to 5 digits.

    60 steps take about a second and learn half of it.
    """
    return RunConfig.from_flat(
        {
            "max_length": 5,
            "d_model": 32,
            "n_heads": 1,
            "n_layers": 1,
            "d_ff": 64,
            "max_steps": 60,
            "batch_size": 32,
            "lr_schedule": "constant",
            "eval_every": 1000,
            "eval_size": 64,
            "device": "cpu",
        }
    )


@pytest.fixture(scope="session")
def ages(small_run):
    """The small model after different numbers of steps: {steps: architecture}.

    Do not train these.
    """
    last = 240
    trainer = Trainer(small_run.replace(max_steps=last, lr_schedule="cosine", lr_decay_steps=last))
    families = {0: copy.deepcopy(trainer.model).eval()}
    for metrics in trainer:
        if metrics.step in (15, 30, 45, 60, last):
            families[metrics.step] = copy.deepcopy(trainer.model).eval()
    return families


@pytest.fixture
def client_address():
    """Set the address of the client of the following requests; "" means no client."""
    before = CLIENT_ADDRESS.set("")
    yield CLIENT_ADDRESS
    CLIENT_ADDRESS.reset(before)
