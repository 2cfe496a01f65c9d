"""Inspection and predictions respond while every slot trains on every core."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from playground.server.inspect_api import InspectHandlers
from playground.server.live_api import predict
from tests.support.app_server import wait_for
from tests.support.small_runs import start_run, wait_for_status

SLOTS = 4
TIMEOUT_S = 15  # seconds that the page waits for a response (live_api.py)
LARGE = {
    "d_model": 64,
    "n_heads": 4,
    "n_layers": 2,
    "d_ff": 128,
    "batch_size": 128,
    "max_length": 10,
    "num_threads": 1,
}


async def inspect_and_predict(registry, run):
    """Inspect a run and predict with it at once, while it trains."""
    fields = {"owner": "ada", "subject": f"run:{run.id}", "text": "3 1 4"}
    return await asyncio.gather(
        InspectHandlers(registry).load_view(fields | {"view": "attention"}),
        predict(registry, fields),
    )


@pytest.mark.smoke
@pytest.mark.timeout(200)
def test_inspection_and_prediction_work_while_all_slots_train(registries):
    registry = registries(slots=SLOTS)
    runs = [start_run(registry, "ada", **LARGE) for _ in range(SLOTS + 1)]
    for run in runs[:SLOTS]:
        wait_for(
            lambda run=run: run.status == "training" and run.step > 2, 120, "steps of every run"
        )
    assert registry.scheduler.position(runs[SLOTS]) == 1
    before = [run.step for run in runs[:SLOTS]]
    with ThreadPoolExecutor(1) as thread:
        for run in runs[:SLOTS]:
            inspected, prediction = thread.submit(
                asyncio.run, inspect_and_predict(registry, run)
            ).result(2 * TIMEOUT_S)
            assert inspected.get("columns") == ["3", "1", "4", "EOS"], inspected
            assert "prediction" in prediction, prediction
    assert [run.status for run in runs[:SLOTS]] == ["training"] * SLOTS
    wait_for(
        lambda: all(run.step > step for run, step in zip(runs, before, strict=False)),
        120,
        "further steps of every run",
    )
    for run in runs[::-1]:
        registry.control(run, "stop")
    wait_for_status(runs[0], "stopped")
