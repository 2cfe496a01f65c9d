"""The actions of an owner on a run, what a user shares of it, and the form of a new one."""

import json
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.errors import UserError
from playground.runs.access import Access, Right
from playground.runs.metric_series import MetricSeries
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import MAX_STEPS
from playground.server.form_api import form_handlers
from playground.server.routes import build_routes
from playground.server.runs_api import ACTIONS, describe_result, find_command, list_runs
from playground.training.run_config import RunConfig
from playground.ui.form_schema import form_defaults
from playground.ui.form_values import run_config
from tests.support.coroutines import run_in_thread
from tests.support.small_runs import start_run


@pytest.mark.parametrize("owner", ["", "short", "x" * 31 + "\u00e9", "../" * 12])
def test_an_invalid_owner_key_lists_no_run_and_is_not_remembered(registry, owner):
    start_run(registry, owner=owner)
    assert run_in_thread(list_runs(registry, {"owner": owner}))["runs"] == []
    assert not registry.owner_last_seen


def test_run_with_the_maximum_of_steps_cannot_be_extended():
    registry = SimpleNamespace(commands=SimpleNamespace(ensure_trainable=lambda run: None))
    with pytest.raises(UserError, match=r"has 1,000,000 steps, .* start a new run"):
        ACTIONS["extend"](registry, SimpleNamespace(step=MAX_STEPS), None)


def model_with(scores=None, config=None, **evaluations):
    """A run with these exact matches by step, as `step_2=0.5`; a step takes two seconds."""
    by_step = {int(name.removeprefix("step_")): score for name, score in evaluations.items()}
    points = MetricSeries(
        {"step": step, "loss": 1.0, "seconds": 2.0 * step}
        | ({"exact_match": by_step[step], "eval_size": 256} if step in by_step else {})
        for step in range(1, max(by_step, default=0) + 1)
    )
    config = config or RunConfig.from_flat({"task": "sort", "max_length": 8})
    record = SimpleNamespace(scores=scores)
    run = SimpleNamespace(load_points=lambda: points, record=record, config=config, steps=50)
    return Access(Right.OWN, run)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            model_with({"exact_match": 0.9925, "n": 2000}, step_2=0.4, step_5=0.991),
            "Learned sort 1–8 in 5 steps, 10.0 s: 99.2 % of 2,000 unseen sequences right",
        ),
        (
            model_with(step_1=0.995, step_3=0.2),
            "Learned sort 1–8 in 1 step, 2.0 s: 20.0 % of 256 unseen sequences right",
        ),
        (model_with(step_4=0.5), "sort 1–8 after 4 steps: 50.0 % of 256 unseen sequences right"),
        (model_with(), ""),
    ],
)
def test_the_sentence_has_the_first_step_at_99_percent_and_the_last_score(model, expected):
    assert describe_result(model) == expected


def test_the_command_has_the_planned_steps_and_no_dataset():
    expected = "--task sort --min-length 1 --length 8 --preset adam --max-steps 50"
    assert find_command(model_with()) == "python -m playground train " + expected
    own = RunConfig.from_flat(
        {"task": "dataset", "dataset_symbols": "a b", "dataset_sha256": "a" * 64}
    )
    assert find_command(model_with(config=own)) is None


# The form of a run


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
