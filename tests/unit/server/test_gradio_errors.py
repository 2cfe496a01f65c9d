"""Invalid requests: log entries, and time on the event loop."""

import contextlib
import io
import json
import logging
import threading

import gradio.queueing
import gradio.routes
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.server import routes as requested_module
from playground.server.gradio_patches import apply_patches
from playground.server.routes import build_routes


@pytest.mark.parametrize("module", [gradio.queueing, gradio.routes])
def test_an_error_of_an_event_is_logged_and_truncated(module, caplog):
    apply_patches()
    printed, secret = io.StringIO(), "end of the value"
    with contextlib.redirect_stderr(printed), caplog.at_level(logging.ERROR, "playground"):
        try:
            raise ValueError("v" * 60_000 + secret)
        except ValueError:
            module.traceback.print_exc()
    assert printed.getvalue() == ""
    assert [record.name for record in caplog.records] == ["playground.server.gradio_patches"]
    message = caplog.records[0].getMessage()
    assert message.startswith("An event failed: ValueError: vvv")
    assert "test_gradio_errors.py" in message  # where it was raised
    assert secret not in message
    assert len(message) < 4000


@pytest.mark.parametrize(("size", "is_elsewhere"), [(100, False), (200_000, True)])
def test_a_large_body_is_parsed_beside_the_event_loop(monkeypatch, size, is_elsewhere):
    parsed, answered = [], []
    parse = requested_module.parse_strict_json

    def spy(body):
        parsed.append(threading.get_ident())
        return parse(body)

    async def answer(what, _):
        answered.append(threading.get_ident())
        return {"length": len(what["text"])}

    monkeypatch.setattr(requested_module, "parse_strict_json", spy)
    with TestClient(Starlette(routes=build_routes({"jobs/submit": answer}))) as client:
        reply = client.post("/playground/api/jobs/submit", content=json.dumps({"text": "x" * size}))
    assert reply.json() == {"length": size}
    assert (parsed != answered) is is_elsewhere
