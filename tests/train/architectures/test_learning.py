"""Every architecture learns reversal, measured by exact match on held-out sequences."""

import pytest

from playground.architectures import ARCHITECTURES
from playground.training.presets import architecture_preset, preset_config
from playground.training.trainer import Trainer

ONCE = {
    "min_length": 4,
    "max_length": 4,
    "stop_at_exact_match": 0.99,
    "eval_every": 10,
    "eval_size": 128,
    "device": "cpu",
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_reversal_is_learned_to_99_percent(name):
    trainer = Trainer(architecture_preset(name, **ONCE))
    for _ in trainer:
        pass
    assert trainer.stopped_early, f"not within {trainer.step_count} steps"


@pytest.mark.parametrize("seed", range(10))
def test_reversal_of_ten_tokens_takes_at_most_40_steps_with_each_seed(seed):
    goal = {"min_length": 10, "stop_at_exact_match": 0.999, "device": "cpu"}
    trainer = Trainer(preset_config("fast", goal | {"seed": seed}))
    for _ in trainer:
        pass
    assert trainer.stopped_early
    assert trainer.step_count <= 40
