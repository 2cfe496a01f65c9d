"""The routes of the Inspect tab, with real inspection processes."""

import asyncio
import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from playground.checkpoints.checkpoint import load_model, save_checkpoint
from playground.jobs.admission import CLIENT_ADDRESS
from playground.runs.inspector_process import Inspector
from playground.runs.registry import Registry
from playground.runs.replay import REPLAY_FILE, load_replay
from playground.server import live_api
from playground.server.live_api import SLOW_VIEWS, live_handlers
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT
from tests.support.coroutines import run_in_thread
from tests.support.inspectors import InProcessInspector, respond


@pytest.fixture(scope="module")
def registry():
    registry = Registry(ROOT / "checkpoints")
    registry.snapshots.inspector.request("warm", {}).result(120)  # the fork server imports torch
    yield registry
    registry.shutdown()


def load_view(registry, **fields):
    request = {"subject": "checkpoint:reverse", "text": "3 1 4"} | fields
    return run_in_thread(live_api.load_view(registry, request))


@pytest.mark.smoke
def test_a_checkpoint_is_inspected(registry):
    response = load_view(registry, view="attention")
    assert response["prediction"] == response["target"] == ["4", "1", "3", "EOS"]
    assert response["columns"] == ["3", "1", "4", "EOS"]
    assert response["step"] == 200


def test_a_slow_view_does_not_block_fast_ones(registry):
    with ThreadPoolExecutor(1) as thread:
        slow = thread.submit(
            asyncio.run,
            live_api.load_view(
                registry, {"subject": "checkpoint:reverse", "text": "3 1 4", "view": SLOW_VIEWS[0]}
            ),
        )
        columns = load_view(registry, view="attention", text="9 8 7")["columns"]
        assert columns == ["9", "8", "7", "EOS"]
        slow.result()
    assert registry.snapshots.slow_inspector is not registry.snapshots.inspector


def send_concurrently(handler, requests):
    """Send (name, address, fields) concurrently; return the names in order of the responses."""

    async def send_all():
        order = []

        async def send_one(name, address, fields):
            CLIENT_ADDRESS.set(address)
            response = await handler(fields)
            assert "error" not in response, response
            order.append(name)

        await asyncio.gather(*(send_one(*request) for request in requests))
        return order

    return run_in_thread(send_all())


@pytest.mark.parametrize("name", ["runs/predict", "inspect/view"])
def test_one_clients_backlog_delays_another_client_by_one_request(registry, name):
    handler = live_handlers(registry)[name]
    fields = {"subject": "checkpoint:reverse", "view": "attention"}
    load_view(registry, view="attention")  # start the process
    backlog = [("ada", "10.0.0.1", fields | {"text": f"3 1 {digit}"}) for digit in range(8)]
    order = send_concurrently(handler, [*backlog, ("bob", "10.0.0.2", fields | {"text": "9 8 7"})])
    assert order.index("bob") <= 2, order  # one request in the process, and one response on its way


@pytest.mark.parametrize(
    ("view", "size"), [("lens", 1e30), ("attention", 3.4e38), ("embeddings", 3.4e38)]
)
def test_overflowing_weights_give_error_or_finite_numbers(tmp_path, view, size):
    manifest, family = load_model(ROOT / "checkpoints" / "reverse")
    with torch.no_grad():
        for weight in family.parameters():
            weight.fill_(size)
    trainer = Trainer(manifest.config.replace(device="cpu", num_threads=1))
    trainer.eval_model.load_state_dict(family.state_dict())
    save_checkpoint(tmp_path / "huge", trainer, None)
    text = json.dumps({"view": view, "text": "3 1 4"})
    response = respond(Inspector().dispatch, "show", {"checkpoint": str(tmp_path / "huge")}, text)
    json.dumps(response, allow_nan=False)
    assert "not finite" in response.get("error", "") or view != "embeddings"


# The slider of a bundled checkpoint: recorded snapshots through the routes of the live view


REVERSE = {"subject": "checkpoint:reverse-one-head"}


@pytest.fixture(scope="module")
def send_request(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    shutil.copytree(ROOT / "checkpoints/reverse-one-head", root / "reverse-one-head")
    shutil.copytree(ROOT / "checkpoints/reverse-one-head", root / "plain")
    (root / "plain" / REPLAY_FILE).unlink()
    registry = Registry(root)
    registry.snapshots.inspector = InProcessInspector()
    routes = live_handlers(registry)
    yield lambda name, payload: run_in_thread(routes[name](payload, None))
    registry.shutdown()


@pytest.mark.smoke
def test_bundled_checkpoint_has_snapshots_of_its_training(send_request):
    replay = load_replay(ROOT / "checkpoints/reverse-one-head")
    assert send_request("runs/poll", REVERSE)["weight_steps"] == list(replay)
    for step, nearest in ((0, 0), (21, 20), (10_000, 200)):
        response = send_request("runs/snapshot", REVERSE | {"step": step})
        assert response == {"snapshot": replay[nearest]}


def test_a_prediction_at_an_earlier_step_uses_the_last_weights(send_request):
    for step in (None, 5):
        response = send_request("runs/predict", REVERSE | {"text": "3 1 4", "step": step})
        assert (response["prediction"], response["step"]) == (["4", "1", "3"], 200)


def test_a_checkpoint_without_a_replay_has_no_history(send_request):
    fields = {"subject": "checkpoint:plain"}
    assert send_request("runs/poll", fields)["weight_steps"] == []
    assert "no history" in send_request("runs/snapshot", fields | {"step": 3})["error"]
    assert "not yours" in send_request("runs/snapshot", {"subject": "run:x", "step": 3})["error"]
