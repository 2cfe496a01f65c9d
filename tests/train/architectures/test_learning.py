"""Every architecture learns reversal with its defaults: 99 % exact match on held-out sequences."""

import pytest

from playground.architectures import ARCHITECTURES
from playground.training.presets import architecture_preset
from playground.training.trainer import Trainer

# everything through one vector, and no gates
PLAIN = {"cell": "rnn", "attention": "none", "n_layers": 2, "learning_rate": 3e-3}
CASES = {
    **{name: (name, {}) for name in ARCHITECTURES},
    "lstm-dot": ("recurrent", {"cell": "lstm", "attention": "dot"}),
    "rnn-none": ("recurrent", PLAIN),
}


@pytest.mark.parametrize("digits", [4, pytest.param(6, marks=pytest.mark.soak)])
@pytest.mark.parametrize("case", CASES)
def test_reversal_is_learned_to_99_percent(case, digits):
    family, changes = CASES[case]
    once = {
        "min_length": digits,
        "max_length": digits,
        "stop_at_exact_match": 0.99,
        "eval_every": 10,
        "eval_size": 128,
        "device": "cpu",
    }
    trainer = Trainer(architecture_preset(family, **once | changes))
    for _ in trainer:
        pass
    assert trainer.stopped_early, f"not within {trainer.step_count} steps"
