"""Every family at several ages, small."""

import copy

import pytest

from playground.training.trainer import Trainer
from tests.support.small_configs import MAX_STEPS, small_config


@pytest.fixture(scope="session")
def grown():
    """The small member of each family at several ages, {steps: family}, trained when it is
    first asked for. Do not train these.
    """
    kept = {}

    def ages(name):
        if name not in kept:
            trainer = Trainer(small_config(name))
            kept[name] = {0: copy.deepcopy(trainer.model).eval()}
            for metrics in trainer:
                if metrics.step in (30, 60, MAX_STEPS):
                    kept[name][metrics.step] = copy.deepcopy(trainer.model).eval()
        return kept[name]

    return ages
