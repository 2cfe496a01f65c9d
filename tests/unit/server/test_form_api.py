"""The routes of the form of a run."""

import json

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.runs.owner_keys import new_owner_key
from playground.server.form_api import form_handlers
from playground.server.routes import build_routes
from playground.training.run_config import RunConfig
from playground.ui.form_schema import form_defaults
from playground.ui.form_values import run_config

SMALL = {"d_model": 16, "n_heads": 2, "n_layers": 1, "max_steps": 3.0, "preset": None}


@pytest.fixture
def post(registry, workers):
    client = TestClient(Starlette(routes=build_routes(form_handlers(registry))))
    return lambda name, **fields: client.post(f"/playground/api/form/{name}", json=fields).json()


def test_check_returns_the_size_or_the_errors(post):
    assert post("check", values=SMALL)["size"].endswith(" MB")
    assert post("check", values={"no field": 1})["errors"] == {}  # of a page of another version
    wrong = post("check", values={"n_heads": 5, "d_model": 64})
    assert wrong["size"] == ""
    assert "use one of 1, 2, 4" in wrong["errors"]["n_heads"]


def test_fill_returns_the_values_of_settings_or_the_reason(post):
    settings = {"architecture": "gpt2", "d_model": 32, "task": "copy"}
    values = post("fill", settings=json.dumps(settings))["values"]
    assert values.keys() == form_defaults().keys() - {"preset"}
    assert run_config(values | {"preset": None}) == RunConfig.from_flat(settings)
    assert "is not a setting of a run" in post("fill", settings='{"<b>": 1}')["error"]
    assert "no JSON" in post("fill", settings="{")["error"]


def test_start_trains_the_values_for_their_owner(post, registry):
    owner = new_owner_key()
    subject = post("start", values=SMALL, owner=owner, speed=5)["subject"]
    (run,) = registry.list_for_owner(owner)
    assert subject == f"run:{run.id}"
    assert run.config == run_config(form_defaults() | SMALL)
    assert [change.to_list() for change in run.changes] == [[0, "speed", 5.0]]


def test_start_reports_the_errors_and_starts_nothing(post, registry):
    owner = new_owner_key()
    assert "max_steps" in post("start", values={"max_steps": 0}, owner=owner)["errors"]
    assert "speed is -1" in post("start", values=SMALL, owner=owner, speed=-1)["error"]
    assert "has no owner key" in post("start", values=SMALL)["error"]
    assert registry.list_for_owner(owner) == []
