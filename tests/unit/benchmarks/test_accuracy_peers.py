"""The comparison with reference models: its runs, early ends and interruptions."""

import pytest

from benchmarks import _results, accuracy_vs_references
from benchmarks.accuracy_vs_references import (
    REFERENCES,
    SWEEP_SEED,
    Comparison,
    Setting,
    train_until,
)
from benchmarks.reference_models import BART, BEST, OURS

FIELDS = {"task": "copy", "n_symbols": 4, "min_length": 4, "max_length": 4, "batch_size": 16}
COPY = Setting("copy of four", FIELDS)
COMPARISON = Comparison("tried", (COPY,), seconds=60, seeds=2, rates=(2e-3, 4e-3, 1e-3), budget=100)
# with the long cosine; with ours' a peer is quicker by ten steps
STEPS_AT = {2e-3: 60, 4e-3: 40, 1e-3: 90}


def continues(config, beaten_at=None):
    """Return a run with as many steps as its learning rate; a losing one ends early."""
    rate, decay = config.training.learning_rate, config.training.lr_decay_steps
    steps = STEPS_AT.get(rate, 20) - (10 if decay != 80 else 0)
    beaten = beaten_at is not None and steps > beaten_at
    run = {"seconds": 0.1 * steps, "scoring": 1.0}
    if beaten:
        return run | {"end_reason": "beaten", "steps": beaten_at, "score": None}
    return run | {"end_reason": "goal", "steps": steps, "score": 1.0}


@pytest.fixture
def requested(monkeypatch, tmp_path):
    """Record the settings of every run, and store results in a test folder."""
    runs = []

    def fake(name, config, seconds, beaten_at=None):
        training = config.training
        if training.max_steps > 3:
            settings = training.seed, training.learning_rate, training.lr_decay_steps
            runs.append((name, *settings, beaten_at))
        return continues(config, beaten_at)

    monkeypatch.setattr(accuracy_vs_references, "train_until", fake)
    monkeypatch.setattr(_results, "RESULTS_DIR", tmp_path)
    return runs


def test_a_sweep_ends_losing_rates_and_the_best_gets_every_seed(requested):
    rows = COMPARISON.measure()
    sweep = [run[2:] for run in requested if run[0] == BART and run[1] == SWEEP_SEED]
    with_adam = [(2e-3, 80, None), (4e-3, 80, 60), (1e-3, 80, 40), (4e-3, 160, 40)]
    assert sweep == [*with_adam, (3e-3, 800, None), (1.5e-3, 800, 10), (6e-3, 800, 10)]
    assert [run[:4] for run in requested if run[1] == 1] == [
        (OURS, 1, 3e-3, 800),
        *(
            (each.model, 1, *((4e-3, 160) if each.preset == "adam" else (3e-3, 800)))
            for each in REFERENCES
        ),
    ]
    line = next(line for line in COMPARISON.table(rows).splitlines() if f"| {BART} | 0.004" in line)
    assert "0.004, 160 steps | 2 of 2 | 30 (30) | 3.00 (3.00) | 4.00 |" in line
    assert "| 3.00 (3.00 to 3.00) |" in line  # ours takes ten steps, this takes thirty


def test_a_run_has_the_reason_of_its_end():
    config = COPY.reference_configs(0, 4e-3, 40, budget=40)
    done = train_until(BEST, config, seconds=60)
    assert done["end_reason"] in ("goal", "budget")
    assert done["scoring"] > 0
    beaten = train_until(BEST, config, seconds=60, beaten_at=5)
    assert (beaten["end_reason"], beaten["steps"], beaten["score"]) == ("beaten", 5, None)
    late = train_until(BEST, config, seconds=0)
    assert (late["end_reason"], late["steps"]) == ("time", 1)
