"""The cost of a slow request is known before a process gets it."""

from concurrent.futures import Future

import pytest

from playground.inspection import head_patterns
from playground.inspection.views.head_analysis import MIN_SEQUENCES
from playground.runs import snapshots
from playground.runs.limits import Limits
from playground.runs.registry import Registry
from playground.runs.scheduler import RunScheduler
from playground.runs.snapshots import min_seconds
from playground.training.run_config import RunConfig

LARGE = {
    "d_model": 256,
    "n_heads": 64,
    "n_layers": 4,
    "d_ff": 1024,
    "min_length": 128,
    "max_length": 128,
    "batch_size": 2,
}


def test_costs_follow_the_sequences_of_the_views():
    assert head_patterns.NUM_SEQUENCES == snapshots.HEAD_SCORE_SEQUENCES
    assert MIN_SEQUENCES == snapshots.ABLATION_SEQUENCES


def test_larger_models_and_longer_sequences_cost_more():
    usual = RunConfig()
    for view in ("heads", "ablation"):
        assert 0 < min_seconds(usual, view) < 1 < 10 * min_seconds(RunConfig.from_flat(LARGE), view)
        assert min_seconds(
            RunConfig.from_flat({"min_length": 20, "max_length": 20}), view
        ) > min_seconds(usual, view)
    assert min_seconds(usual, "evaluate", 2000) == 2 * min_seconds(usual, "evaluate", 1000)
    assert min_seconds(RunConfig.from_flat(LARGE), "attention") == 0


@pytest.fixture
def registry(tmp_path, monkeypatch):
    monkeypatch.setattr(RunScheduler, "schedule", lambda self: None)
    registry = Registry(tmp_path)
    yield registry
    registry.shutdown()


@pytest.mark.parametrize(
    ("limit", "fields", "refused"), [(120.0, LARGE, True), (120.0, {}, False), (0.0, LARGE, False)]
)
def test_shared_server_rejects_request_estimated_above_time_limit(registry, limit, fields, refused):
    run = registry.start(RunConfig.from_flat(fields), "ada")
    run.update_live(weight_steps=(1,), latest_weights_step=1)
    registry.settings.limits = Limits(slow_view_timeout_s=limit, view_timeout_s=20.0)
    requested = []
    registry.snapshots.slow_inspector.request = lambda *arguments, **named: (
        requested.append(named["timeout_s"]) or Future()
    )
    future = registry.snapshots.request("show", run, '{"view": "ablation"}', slow=True)
    assert requested == ([] if refused else [limit])
    assert not refused or "minutes or more" in future.result(0)["error"]
