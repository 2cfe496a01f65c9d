"""Every component learns to reverse four of six symbols."""

import pytest

from playground.training.trainer import Trainer
from tests.support.small_configs import small_config

FOUR = {"min_length": 4, "n_symbols": 6}
WIDE = FOUR | {"d_model": 64, "n_heads": 4, "d_ff": 128, "batch_size": 64}


def exact_match(steps, **fields):
    """Return the exact match on held-out sequences after these steps."""
    config = small_config("transformer", max_steps=steps, lr_decay_steps=steps, **fields)
    trainer = Trainer(config)
    for _ in trainer:
        pass
    return trainer.evaluate(200).exact_match


@pytest.mark.parametrize(
    "part",
    [
        {"position_type": "learned-from-end"},
        {"norm_type": "rms"},
        {"activation": "swiglu"},
        {"n_kv_heads": 1},
        {"bias": False},
        {"n_heads": 3, "d_k": 8, "d_v": 24},
        {"optimizer": "sgd", "learning_rate": 0.3},
    ],
    ids=lambda part: "-".join(map(str, part.values())),
)
def test_a_part_learns_to_reverse(part):
    assert exact_match(60, **FOUR | part) >= 0.9


@pytest.mark.parametrize("position_type", ["sinusoidal", "rope", "alibi", "t5", "randomized"])
def test_a_position_type_learns_to_reverse(position_type):
    assert exact_match(120, **WIDE, position_type=position_type) >= 0.6


def test_without_positions_reversal_cannot_be_learned():
    """The encoder then reads a set (Lee et al. 2019, section 3)."""
    assert exact_match(120, **WIDE, position_type="none") <= 0.3
