"""Slow requests are priced before a process gets them."""

from concurrent.futures import Future

import pytest

from playground.inspection import heads
from playground.inspection.shown import proof
from playground.runs import pricing
from playground.runs.limits import Limits
from playground.runs.pricing import least_seconds
from playground.runs.registry import Registry
from playground.training.config import RunConfig

LARGE = {"d_model": 256, "n_heads": 64, "n_layers": 4, "d_ff": 1024, "min_length": 128, "max_length": 128, "batch_size": 2}


def test_prices_follow_what_the_views_measure_on():
    assert heads.SEQUENCES == pricing.HEADS_SEQUENCES
    assert (proof.FEWEST, proof.FEWEST_STEPS) == (pricing.AWAY_SEQUENCES, pricing.TRAINING_STEPS)


def test_larger_models_and_longer_sequences_cost_more():
    usual = RunConfig()
    for view in ("heads", "heads-over-training", "away"):
        assert 0 < least_seconds(usual, view) < 1 < 10 * least_seconds(RunConfig.from_fields(LARGE), view)
        assert least_seconds(RunConfig.from_fields({"min_length": 20, "max_length": 20}), view) > least_seconds(usual, view)
    assert least_seconds(usual, "evaluate", 2000) == 2 * least_seconds(usual, "evaluate", 1000)
    assert least_seconds(RunConfig.from_fields(LARGE), "attention") == 0


@pytest.fixture
def registry(tmp_path, monkeypatch):
    monkeypatch.setattr(Registry, "_dispatch", lambda self: None)
    registry = Registry(tmp_path)
    yield registry
    registry.shutdown()


@pytest.mark.parametrize(("limit", "fields", "refused"), [(120.0, LARGE, True), (120.0, {}, False), (0.0, LARGE, False)])
def test_shared_server_rejects_request_estimated_above_time_limit(registry, limit, fields, refused):
    run = registry.start(RunConfig.from_fields(fields), "ada")
    run.recorded, run.newest = [1], 1
    registry.limits = Limits(proof_seconds=limit, look_seconds=20.0)
    asked = []
    registry.prover.ask = lambda *arguments, **named: asked.append(named["time_limit"]) or Future()
    future = registry.show(run, '{"view": "away"}', slow=True)
    assert asked == ([] if refused else [limit])
    assert not refused or "minutes or more" in future.result(0)["error"]
