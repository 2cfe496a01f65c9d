"""A small model of every architecture, at several training steps."""

import copy

import pytest

from playground.training.trainer import Trainer
from tests.support.small_configs import MAX_STEPS, small_config


@pytest.fixture(scope="session")
def trained_models():
    """The small model of each architecture at several steps, {steps: model}. Do
    not train these.
    """
    stored = {}

    def ages(name):
        if name not in stored:
            trainer = Trainer(small_config(name))
            stored[name] = {0: copy.deepcopy(trainer.model).eval()}
            for metrics in trainer:
                if metrics.step in (30, 60, MAX_STEPS):
                    stored[name][metrics.step] = copy.deepcopy(trainer.model).eval()
        return stored[name]

    return ages
