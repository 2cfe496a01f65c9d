"""Every field of every route with every kind of value: an answer, never a server error."""

import json

import pytest

from playground.lessons.bugs import BUGS
from playground.lessons.lessons import LESSONS
from playground.server.datasets_api import DatasetHandlers
from playground.server.lessons_api import LessonRequest
from playground.server.routes import ROUTE_PREFIX
from playground.server.schemas.experiments import ExperimentForm
from tests.support.hostile_values import NESTED

VALUES = [
    *(None, True, False, -1, 0, 1, 0.5, 2**31, 2**63, 10**299, -(10**299), 1e308, 5e-324),
    *("", "0", "\x00", "\ud800", "x" * 3000, "../..", [], {}, [1], [None], {"a": 1}, NESTED[2]),
    *([["d_model", "8"]], {"grid": 1}, ["x"] * 400),
]
TEXTS = ["NaN", "-Infinity", "1e999", "9" * 301, "9" * 5000, "[" * 900 + "]" * 900]
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


def odd_requests(request_type, model):
    """Yield JSON texts that are valid but for one field, or one field of a nested object."""
    fields = request_type.model_fields
    valid = {name: value for name, value in VALID.items() if name in fields} | model
    inner = {
        "options": OPTIONS.split(),
        "form": ExperimentForm.model_fields,
        "request": LessonRequest.model_fields,
    }
    for odd in (*map(json.dumps, VALUES), *TEXTS):
        for name in fields:
            yield json.dumps(valid | {name: "ODD"}).replace('"ODD"', odd)
            for nested in inner.get(name, ()):
                content = valid.get(name, {}) | {nested: "ODD"}
                yield json.dumps(valid | {name: content}).replace('"ODD"', odd)


@pytest.mark.timeout(300)
def test_no_field_of_any_route_causes_a_server_error(server, monkeypatch):
    client, registry, run, owner = server
    registry.scheduler.ensure_can_enqueue = lambda *_: None
    handlers = client.app.state.handlers | DatasetHandlers(registry).handlers()
    model = {"owner": owner, "subject": f"run:{run.id}"}
    n_errors = n_results = 0
    for name, handler in handlers.items():
        for text in odd_requests(handler.func.request_type, model):
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
