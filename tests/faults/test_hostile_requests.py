"""Malformed requests get a response or an error message, never a server error."""

import json
import math

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from playground.checkpoints.checkpoint import build_model
from playground.errors import UserError
from playground.inspection.ablation import NUM_SEQUENCES
from playground.inspection.views import VIEWS
from playground.lessons.bugs import BUGS, RANDOM_BUG
from playground.lessons.lessons import LESSONS
from playground.runs.commands import COMMANDS
from playground.runs.snapshot import SnapshotBuilder
from playground.server.routes import ROUTE_PREFIX
from playground.server.weights_api import WEIGHTS_PATH
from playground.training.run_config import RunConfig
from playground.ui.form_schema import form_defaults
from tests.support.hostile_values import HOSTILE_VALUES
from tests.support.small_runs import TINY_SETTINGS, repeat_counts

MAX_REQUESTS_PER_SUCCESS = 5  # at least one in five requests must succeed
STEPS = 6
FORM_VALUES = st.dictionaries(st.sampled_from(sorted(form_defaults())), HOSTILE_VALUES, max_size=2)
SEQUENCE = st.one_of(st.text("0123456789", min_size=1, max_size=5), st.text(max_size=30))
OPTIONS = {
    "kind": st.sampled_from(["encoder", "decoder", "cross"]),
    "mode": st.sampled_from(["free-running", "teacher-forced"]),
    "layer": st.integers(0, 1),
    "head": st.integers(0, 1),
    "position": st.integers(0, 5),
    "corrupt": SEQUENCE,
    "other": SEQUENCE,
    "set": st.sampled_from(["single", "groups", "keep"]),
    "stage": st.sampled_from(["embedding", "attention"]),
    "off": HOSTILE_VALUES,
    "n": st.integers(1, NUM_SEQUENCES),
    "side": st.sampled_from(["source", "target"]),
}
VALUES_BY_FIELD = {
    "action": st.sampled_from(
        [
            *COMMANDS,
            "change",
            "rename",
            "rerun",
            "branch",
            "download",
            "list",
            "use",
            "start",
            "x",
        ]
    ),
    "n_points": st.integers(0, 9),
    "series_id": st.integers(-1, 1),
    "snapshot_version": st.integers(0, 2),
    "step": st.integers(0, 9),
    "text": SEQUENCE,
    "view": st.sampled_from(sorted(VIEWS)),
    "options": st.fixed_dictionaries({}, optional=OPTIONS),
    "kind": st.sampled_from(
        [
            *("account", "gallery", "repo_info", "pull", "reproduce", "preview", "plan", "push"),
            *("model-info", "cached-models", "benchmark", "inference", "finetune", "lesson"),
            "bug",
        ]
    ),
    "request": st.dictionaries(
        st.sampled_from(["n", "models", "model", "rows", "checkpoint", "owner"]),
        HOSTILE_VALUES,
        max_size=3,
    ),
    "name": st.text(max_size=20),
    "setting": st.sampled_from(["learning_rate", "max_steps", "speed", "stop_at_exact_match"]),
    "value": st.floats(0, 100),
    "checkpoint": st.just(f"{STEPS:07d}-kept"),
    "min_length": st.integers(1, 3),
    "max_length": st.integers(3, 9),
    "job": st.just("task"),
    "cursor": st.integers(0, 9),
    "form": st.fixed_dictionaries(
        {"grid": st.just([["d_model", "8, 16"]]), "seeds": st.just("0, 1")},
        optional={
            "base": HOSTILE_VALUES,
            "name": HOSTILE_VALUES,
            "kind": st.sampled_from(["grid", "lengths"]),
            "times": HOSTILE_VALUES,
            "n": HOSTILE_VALUES,
        },
    ),
    "question": st.sampled_from(["heads", "positions", "x"]),
    "open": HOSTILE_VALUES,
    "experiment": HOSTILE_VALUES,
    "content": st.just("0" * 64),
    "repo": st.sampled_from(["ada/digits", "../x", ""]),
    "revision": st.sampled_from(["main", "..", "a/b"]),
    "token": st.just("hf_x"),
    "lesson": st.sampled_from([*LESSONS, "x"]),
    "guess": st.integers(0, 12) | st.sampled_from(["one head", "most"]) | HOSTILE_VALUES,
    "code": st.sampled_from(["", "BCDFGH", "x" * 500]),
    "bug": st.sampled_from([*BUGS, RANDOM_BUG, "x"]),
    "seed": st.integers(0, 9),
    "steps": st.integers(20, 300),
    "line": st.integers(0, 99),
    "expected_parent": HOSTILE_VALUES,
    "is_main": st.booleans(),
    "private": st.booleans(),
    "values": FORM_VALUES,
    "settings": FORM_VALUES.map(json.dumps),
    "speed": st.floats(0, 100),
}


FIELDS_BY_ROUTE = {  # what a page's script sends along, beside whose page it is and what is on show
    "runs/poll": ["n_points", "series_id", "snapshot_version"],
    "runs/snapshot": ["step"],
    "runs/predict": ["text", "step"],
    "runs/list": [],
    "runs/details": [],
    "runs/model": [],
    "runs/curves": ["subjects"],
    "runs/action": ["action", "setting", "value", "name", "step", "checkpoint"],
    "inspect/view": ["view", "options", "text", "step"],
    "datasets/action": ["action", "sha256"],
    "jobs/submit": ["kind", "request"],
    "jobs/poll": ["job", "cursor"],
    "jobs/cancel": ["job"],
    "experiments/plan": ["form"],
    "experiments/places": ["form", "on", "token"],
    "experiments/submit": ["form"],
    "experiments/poll": ["open"],
    "experiments/action": ["experiment", "action"],
    "experiments/csv": ["experiment"],
    "experiments/json": ["experiment"],
    "replications/start": ["name"],
    "replications/outcome": ["name"],
    "session/open": ["stored"],
    "form/check": ["values"],
    "form/fill": ["settings"],
    "form/start": ["values", "speed"],
    "lessons/guess": ["job", "bug", "line"],
    "class/join": ["code"],
    "class/guess": ["code", "lesson", "guess"],
    "class/poll": ["code", "lesson"],
    "class/close": ["code"],
}


@st.composite
def requests(draw, name, subjects, owner, known_ids):
    """Generate requests: mostly valid ones with an odd value, sometimes any JSON."""
    if draw(st.integers(0, 9)) == 0:
        return draw(HOSTILE_VALUES)
    request = {"owner": owner, "subject": draw(st.sampled_from(subjects)), "subjects": subjects}
    request |= {
        field: draw(VALUES_BY_FIELD[field])
        for field in FIELDS_BY_ROUTE.get(name, [])
        if field in VALUES_BY_FIELD
    } | known_ids.get(name, {})
    if draw(st.booleans()):
        request[draw(st.sampled_from([*FIELDS_BY_ROUTE.get(name, []), "owner", "subject"]))] = draw(
            HOSTILE_VALUES
        )
    return request


def is_success(response):
    return (
        response.status_code == 200
        and "error" not in response.json()
        and response.json().get("status") not in ("not-found", "failed")
    )


def create_objects(client, owner):
    """Start a job, an experiment and a claim, for later requests; return their names."""

    def send(name, **more):
        return client.post(ROUTE_PREFIX + name, content=json.dumps({"owner": owner} | more)).json()

    job = {"job": send("jobs/submit", kind="cached-models", request={})["job"]}
    experiment = send("experiments/submit", form={"grid": [["d_model", "8, 16"]], "seeds": "0, 1"})[
        "experiment"
    ]
    claim = {"name": send("replications/list")["claims"][0]["name"]}
    experiment_fields = {"experiment": experiment, "action": "cancel"}
    bug = {"bug": RANDOM_BUG, "seed": 0, "steps": 60}
    measurement = {"job": send("jobs/submit", kind="bug", request=bug)["job"]}

    def open_class():
        return {"code": send("class/open")["code"]}

    return {
        "experiments/action": experiment_fields,
        "experiments/csv": experiment_fields,
        "experiments/json": experiment_fields,
        "jobs/poll": job,
        "jobs/cancel": job,
        "lessons/guess": measurement,
        **dict.fromkeys(("class/join", "class/guess", "class/poll"), open_class()),
        "class/close": open_class(),
        "experiments/poll": {"open": experiment},
        "replications/start": claim,
        "replications/outcome": claim,
    }


@repeat_counts(400, 20_000)
def test_every_input_gets_a_result_or_an_error_message(server, count):
    client, registry, run, owner = server
    names = sorted(
        route.path.removeprefix(ROUTE_PREFIX)
        for route in client.app.routes
        if route.path.startswith(ROUTE_PREFIX)
    )
    assert {
        *("runs/poll", "runs/predict", "runs/action", "inspect/view", "datasets/action"),
        *("jobs/submit", "experiments/plan"),
    } <= set(names)
    subjects = [
        f"run:{run.id}",
        f"run:{run.id}",
        f"watch:{run.share_id}",
        "checkpoint:small",
        "checkpoint:../small",
        "run:",
    ]
    known_ids = create_objects(client, owner)
    successes = dict.fromkeys(names, 0)
    sent = []

    def send(name, data):
        request = data.draw(requests(name, subjects, owner, known_ids))
        response = client.post(ROUTE_PREFIX + name, content=json.dumps(request))
        assert response.status_code in (200, 400, 404), (response.status_code, response.text[:300])
        assert "error" not in response.json() or isinstance(response.json()["error"], str)
        assert "Traceback" not in response.text
        successes[name] += is_success(response)
        sent.append(name)
        # stay below the limit of runs, which would reject later requests
        for other_run in registry.list_for_owner(owner):
            if other_run is not run:
                registry.scheduler._queue.clear()
                registry.remove(other_run)

    def send_random(names, n):
        run_examples = given(st.sampled_from(names), st.data())(send)
        settings(max_examples=n, suppress_health_check=list(HealthCheck))(run_examples)()

    send_random(names, count)
    assert len(sent) >= 0.8 * count
    assert sum(successes.values()) * MAX_REQUESTS_PER_SUCCESS >= len(sent)
    missing = [name for name in names if not successes[name] and name not in ALWAYS_REJECTED]
    if missing:  # routes without a successful random request
        send_random(missing, 200 * len(missing))
    assert [name for name in missing if not successes[name]] == []


# Hub tasks have no network, no experiment has finished, and no measurement runs. These routes
# reject every request with a message.
ALWAYS_REJECTED = ("datasets/action", "damaged/remove", "lessons/guess")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"subject": "run:"},
        {"subject": "checkpoint:../small", "step": "1"},
        {"subject": "checkpoint:small", "step": "9" * 5000},
        {"subject": "checkpoint:small", "step": "²"},
        {"subject": "checkpoint:small", "step": "-1"},
        {"subject": "checkpoint:small", "step": "1.5"},
        {"subject": "x" * 500, "step": "1"},
    ],
)
def test_hostile_requests_for_weights_get_an_error_message(server, query):
    client, *_ = server
    response = client.get(WEIGHTS_PATH, params=query, headers={"x-owner": "x" * 500})
    assert response.status_code in (400, 404), response.text[:300]
    assert isinstance(response.json()["error"], str)
    assert client.get(WEIGHTS_PATH, params={"subject": "checkpoint:small", "step": 1}).content


@pytest.mark.smoke
@pytest.mark.parametrize("depth", [900, 998])
def test_deeply_nested_request_causes_no_server_error(server, depth):
    """Python parses JSON that is nested deeper than it can serialize."""
    client, _, run, owner = server
    body = "[" * depth + "]" * depth
    for name in ("inspect/view", "jobs/submit", "experiments/plan", "runs/poll"):
        body = (
            f'{{"owner": "{owner}", "subject": "run:{run.id}", "view": "attention", "text": '
            '"123", "kind": "inference", '
        )
        body += (
            f'"options": {{"kind": {body}}}, "request": {{"a": {body}}}, "form": {{"a": '
            f"{body}}}, "
            f'"n_points": {body}}}'
        )
        assert client.post(ROUTE_PREFIX + name, content=body).status_code in (200, 400)


@pytest.fixture(scope="module")
def job_requests():
    """Return the request types of jobs with pretrained models."""
    from playground.pretrained.attention.prompt import AttentionRequest
    from playground.pretrained.benchmark.job import BenchmarkRequest
    from playground.pretrained.finetuning.job import FinetuneRequest
    from playground.pretrained.inference import InferenceRequest

    return (BenchmarkRequest, FinetuneRequest, InferenceRequest, AttentionRequest)


@settings(max_examples=100)
@example(10**400)
@example(math.inf)
@example(math.nan)
@given(HOSTILE_VALUES)
def test_a_hostile_field_of_a_job_request_is_rejected_or_plain_json(job_requests, value):
    valid = {"checkpoint": "folder", "model": "gpt2", "text": "a text"}
    for request_type in job_requests:
        for name in request_type.model_fields:
            try:
                request = request_type.parse(valid | {name: value})
            except UserError as error:
                if not str(error):
                    raise
            else:
                json.dumps(request.model_dump(), allow_nan=False).encode()


HOSTILE_TEXTS = [
    "1" * 2000,
    "\ud800",
    "١٢٣",
    "1\x002",
    "１２",
    "1\u20282",
    "PAD",
    "<EOS>",
    "1;2",
    "e\u0301",
]


@repeat_counts(100, 6000)
def test_any_text_gets_a_prediction_or_an_error_message(count):
    config = RunConfig.from_flat(TINY_SETTINGS | {"max_steps": 50})
    view, family = (
        SnapshotBuilder(config.task.load(), config, torch.device("cpu")),
        build_model(config).eval(),
    )
    successes = []

    @settings(max_examples=count)
    @given(
        st.one_of(
            st.text("0123456789 ,", max_size=12),
            st.text(max_size=40),
            st.sampled_from(HOSTILE_TEXTS),
        )
    )
    def send(text):
        response = view.predict(family, text)
        json.dumps(response, allow_nan=False)
        successes.append("error" not in response)
        if successes[-1]:
            assert response["target"] == [*"".join(text.replace(",", " ").split())][::-1]
            # the model is untrained
            assert set(response["prediction"]) <= {*"0123456789", "PAD", "SOS"}
            assert response["correct"] == (response["prediction"] == response["target"])
        else:
            assert 5 < len(response["error"]) < 500

    send()
    assert sum(successes) * MAX_REQUESTS_PER_SUCCESS >= len(successes)
