"""Requests to an inspection process; tests/unit/jobs/test_queue.py has the order of its queue."""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from playground.errors import UserError
from playground.jobs.admission import LIMITS, VIEWER, Client
from playground.runs import inspector_process
from playground.runs.snapshots import InspectorClient
from playground.server.process_calls import await_result
from tests.support.coroutines import run_in_thread

ADA, BOB = Client("10.0.0.1", "ada"), Client("10.0.0.2", "bob")
OF_CLIENT = LIMITS["inspections"].per_owner


@pytest.fixture
def inspector(started):
    inspector = InspectorClient(60.0)
    yield inspector
    inspector.stop()


def request(inspector, client, *texts):
    return [inspector.request("predict", {}, text, client=client) for text in texts]


def test_viewer_uses_neither_the_quota_of_the_owner_nor_of_others(inspector):
    futures = request(inspector, Client(ADA.address, VIEWER), *("x" for _ in range(OF_CLIENT + 1)))
    assert [future.done() for future in futures] == [False] * OF_CLIENT + [True]
    rejection = futures[-1].result(0)
    assert ("busy" in rejection["error"], rejection["retryable"]) == (True, True)
    assert not request(inspector, Client(BOB.address, VIEWER), "other")[0].done()
    assert not request(inspector, ADA, "mine")[0].done()


def test_a_stopped_process_fails_pending_requests_and_rejects_new_ones(inspector, started):
    current, waiting = request(inspector, ADA, "1", "2")
    inspector.stop()
    started[0].on_exit(-9)
    late = request(inspector, BOB, "3")[0]
    assert all("error" in future.result(0) for future in (current, waiting, late))
    assert len(started) == 1


# What a page's handler does with its future


def page_request(*messages):
    """Return a request whose connection delivers these messages, and nothing after them."""
    waiting = list(messages)

    async def receive():
        return waiting.pop(0) if waiting else await asyncio.get_running_loop().create_future()

    return Request({"type": "http", "path": "/playground/api/runs/predict", "headers": []}, receive)


def test_a_time_limit_takes_the_request_out_of_the_queue(inspector):
    _, waiting = request(inspector, ADA, "1", "2")
    with pytest.raises(UserError, match="try again") as raised:
        run_in_thread(await_result(waiting, 0.01))
    assert raised.value.retryable
    assert waiting.cancelled()


def test_a_client_that_disconnects_takes_its_request_out_of_the_queue(inspector):
    _, waiting = request(inspector, ADA, "1", "2")
    with pytest.raises(UserError, match="disconnected"):
        run_in_thread(await_result(waiting, None, page_request({"type": "http.disconnect"})))
    assert waiting.cancelled()


@pytest.mark.parametrize(
    "http_request", [page_request(), SimpleNamespace(scope={"path": "/gradio_api/call/predict"})]
)
def test_a_client_that_stays_gets_its_response(inspector, started, http_request):
    (future,) = request(inspector, ADA, "1")

    async def respond():
        task = asyncio.ensure_future(await_result(future, 600, http_request))
        await asyncio.sleep(0)
        started[0].respond(actual=1)
        return await task

    assert run_in_thread(respond()) == {"actual": 1}


# The process


def test_an_unexpected_error_of_a_view_is_a_response_and_logged(monkeypatch, caplog):
    def fail(*_):
        raise ZeroDivisionError("a defect of a view")

    monkeypatch.setattr("torch.set_num_threads", lambda n: None)
    monkeypatch.setattr(inspector_process.Inspector, "dispatch", fail)
    handler = inspector_process.create_handler()
    with pytest.raises(UserError, match=r"fault of the program.*ZeroDivisionError") as error:
        handler("snapshot", {}, "", None)
    assert not error.value.retryable
    assert "a defect of a view" not in str(error.value)
    assert "Traceback" in caplog.text
