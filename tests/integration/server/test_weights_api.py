"""The weights for the engine of the page: exactly the stored file, for who may use the model."""

import hashlib
import shutil

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.runs.weight_history import weight_steps, weights_path
from playground.server.rate_limit import LoadLimits
from playground.server.weights_api import BYTES_PER_MS, WEIGHTS_PATH, weights_route

OWNER = new_owner_key()


class CountedLoad(LoadLimits):
    def __init__(self):
        super().__init__(0.0, 0.0)
        self.added = []

    def add(self, address, owner, load):
        self.added.append((owner, load))


@pytest.fixture(scope="module")
def shared(tmp_path_factory, trained_checkpoint):
    """A run of OWNER, the load of its requests, and a function that requests weights."""
    registry = Registry(tmp_path_factory.mktemp("weights"))
    sent = shutil.copytree(trained_checkpoint, registry.root / ".sent")
    run, load = registry.import_checkpoint(sent, OWNER, "my run"), CountedLoad()
    client = TestClient(Starlette(routes=[weights_route(registry, load)]))

    def get(subject, step, owner=OWNER, **headers):
        params = {"subject": subject, "step": step, "series_id": 7}
        return client.get(WEIGHTS_PATH, params=params, headers={"x-owner": owner} | headers)

    yield registry, run, load, get
    registry.shutdown()


def test_the_owner_gets_the_stored_file_once(shared):
    _, run, load, get = shared
    (step,) = weight_steps(run.folder)
    data = weights_path(run.folder, step).read_bytes()
    load.added.clear()
    response = get(f"run:{run.id}", step)
    assert response.content == data
    assert response.headers["x-step"] == str(step)
    assert response.headers["etag"] == f'"{hashlib.sha256(data).hexdigest()}"'
    assert "private" in response.headers["cache-control"]
    assert load.added == [(OWNER, len(data) / BYTES_PER_MS)]
    again = get(f"run:{run.id}", step, **{"if-none-match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_another_step_gets_the_nearest_weights_and_their_step(shared):
    _, run, _, get = shared
    (step,) = weight_steps(run.folder)
    assert get(f"run:{run.id}", step + 5).headers["x-step"] == str(step)


def test_a_model_that_only_the_server_runs_has_no_weights_here(shared, monkeypatch):
    _, run, _, get = shared
    monkeypatch.setattr("playground.runs.browser_model.MAX_PARAMETERS", 100)
    assert "choose a smaller one" in get(f"run:{run.id}", 1).json()["error"]
