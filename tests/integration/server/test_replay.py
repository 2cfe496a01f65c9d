"""The slider of a bundled checkpoint: recorded snapshots through the routes of the live view."""

import shutil

import pytest

from playground.runs.registry import Registry
from playground.runs.replay import REPLAY_FILE, load_replay
from playground.server.live_api import live_handlers
from tests.support.app_server import ROOT
from tests.support.coroutines import run_in_thread
from tests.support.inspectors import InProcessInspector

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
