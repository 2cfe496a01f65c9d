from pathlib import Path
from types import SimpleNamespace

import pytest

from playground.experiments.progress import state_name
from playground.experiments.spec import parse_experiment
from playground.experiments.state import ExperimentState

SPEC = {"name": "heads", "grid": {"n_heads": [1, 2]}, "seeds": [0]}


@pytest.mark.parametrize(
    ("status", "name"),
    [
        ("waiting", "running"),
        ("starting", "running"),
        ("training", "running"),
        ("stopping", "running"),
        ("paused", "paused"),
        ("stopped", "paused"),
        ("done", "done"),
        ("failed", "done"),
    ],
)
def test_an_experiment_runs_while_a_run_does_with_or_without_its_worker(status, name):
    experiment = parse_experiment(SPEC, "owner")
    state = ExperimentState(experiment, Path("unused"))
    state.owner = "the key of the owner"
    runs = {"0/0": SimpleNamespace(status=status), "1/0": SimpleNamespace(status="done")}
    evaluator = SimpleNamespace(unevaluated_runs=lambda state, runs: [])
    assert state_name(state, runs, evaluator) == name
