"""Malformed requests get a response or an error message, never a server error."""

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playground.checkpoints.checkpoint import build_model
from playground.errors import UserError
from playground.lessons.bugs import BUGS
from playground.lessons.lessons import LESSONS
from playground.runs.snapshot import SnapshotBuilder
from playground.server.datasets_api import DatasetHandlers
from playground.server.lessons_api import LessonRequest
from playground.server.routes import ROUTE_PREFIX
from playground.server.schemas.experiments import ExperimentForm
from playground.server.weights_api import WEIGHTS_PATH
from playground.training.run_config import RunConfig
from tests.support.hostile_values import HOSTILE_VALUES, NESTED
from tests.support.inspectors import respond
from tests.support.small_runs import TINY_SETTINGS, repeat_counts

MAX_REQUESTS_PER_SUCCESS = 5  # at least one in five texts must be valid
VALUES = [
    *(None, True, False, -1, 0, 1, 0.5, 2**31, 2**63, 10**299, -(10**299), 1e308, 5e-324),
    *("", "0", "\x00", "\ud800", "x" * 3000, "../..", [], {}, [1], [None], {"a": 1}, NESTED[2]),
    *([["d_model", "8"]], {"grid": 1}, ["x"] * 400),
]
TEXTS = [
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 301,
    "9" * 5000,
    *("[" * n + "]" * n for n in (900, 998)),
]
OPTIONS = "kind mode temperature seed layer head position corrupt other set stage off n side"
# The other fields of a request, so that the odd one is reached.
VALID = {
    "view": "attention",
    "action": "show",
    "architectures": ["gpt2"],
    "name": "mingpt-sort",
    "text": "123",
    "bug": next(iter(BUGS)),
    "kind": "lesson",
    "request": {"lesson": next(iter(LESSONS))},
    "form": {"grid": [["d_model", "8, 16"]], "seeds": "0, 1"},
    "options": {},
}


def odd_requests(request_type, known):
    """Yield odd JSON texts, and texts that are valid but for one field, also a nested one."""
    fields = request_type.model_fields
    valid = {name: value for name, value in VALID.items() if name in fields} | known
    inner = {
        "options": OPTIONS.split(),
        "form": ExperimentForm.model_fields,
        "request": LessonRequest.model_fields,
    }
    for odd in (*map(json.dumps, VALUES), *TEXTS):
        yield odd
        for name in fields:
            yield json.dumps(valid | {name: "ODD"}).replace('"ODD"', odd)
            for nested in inner.get(name, ()):
                content = valid.get(name, {}) | {nested: "ODD"}
                yield json.dumps(valid | {name: content}).replace('"ODD"', odd)


@pytest.mark.timeout(300)
def test_no_field_of_any_route_causes_a_server_error(server):
    client, registry, run, owner = server
    registry.scheduler.ensure_can_enqueue = lambda *_: None
    handlers = client.app.state.handlers | DatasetHandlers(registry).handlers()

    def create(route, **fields):
        return client.post(ROUTE_PREFIX + route, json={"owner": owner} | fields).json()

    experiment = create("experiments/submit", form=VALID["form"])["experiment"]
    known = {
        "owner": owner,
        "subject": f"run:{run.id}",
        "experiment": experiment,
        "open": experiment,
        "code": create("class/open")["code"],
        "job": create("jobs/submit", kind="cached-models", request={})["job"],
    }
    n_errors = n_results = 0
    for name, handler in handlers.items():
        for text in odd_requests(handler.func.request_type, known):
            response = client.post(ROUTE_PREFIX + name, content=text)
            assert response.status_code in (200, 400), (name, text[:300], response.text[:300])
            error = response.json().get("error", "")
            assert isinstance(error, str), (name, text[:300])
            assert not any(word in error for word in ("Traceback", "Error:", "NoneType", "/tmp/"))
            n_errors += bool(error)
            n_results += not error
        for other in registry.list_for_owner(owner):
            if other is not run:
                registry.remove(other)
        run.update(deleted_at=None)
    assert min(n_errors, n_results) > 500


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
    *("1" * 2000, "\ud800", "١٢٣", "1\x002", "１２", "1\u20282", "PAD", "<EOS>", "1;2", "e\u0301")
]


@repeat_counts(100, 6000)
def test_any_text_gets_a_prediction_or_an_error_message(count):
    config = RunConfig.from_flat(TINY_SETTINGS | {"max_steps": 50})
    view, family = (SnapshotBuilder(config), build_model(config).eval())
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
        response = respond(view.predict, family, text)
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
