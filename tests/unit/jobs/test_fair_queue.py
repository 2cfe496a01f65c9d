"""Requests to an inspection process: clients take turns, and none can fill the queue."""

import asyncio
from concurrent.futures import CancelledError
from types import SimpleNamespace
from typing import ClassVar

import pytest
from starlette.requests import Request

from playground.jobs.fair_queue import (
    MAX_PER_ADDRESS,
    MAX_PER_CLIENT,
    Client,
    InspectionQueue,
    InspectionRequest,
)
from playground.runs import inspector_client as eyes_module
from playground.runs import inspector_process
from playground.runs.inspector_client import InspectorClient
from playground.server.live_api import await_result
from tests.support.coroutines import run_in_thread

ADA, BOB, EVE = Client("10.0.0.1", "ada"), Client("10.0.0.2", "bob"), Client("10.0.0.1", "eve")


class FakeChild:
    """A process that answers when the test says so."""

    started: ClassVar[list["FakeChild"]] = []

    def __init__(self, entry, name, *arguments, on_message, on_exit):
        self.on_message, self.on_exit = on_message, on_exit
        self.requests, self.is_killed = [], False
        self.started.append(self)

    def send(self, *message):
        self.requests.append(message)
        return True

    def kill(self):
        self.is_killed = True

    def answer(self, **answer):
        """Answer the latest request."""
        self.on_message(self.requests[-1][0], answer)

    @property
    def texts(self):
        return [text for _, _, _, text in self.requests]


@pytest.fixture
def eyes(monkeypatch):
    monkeypatch.setattr(FakeChild, "started", [])
    monkeypatch.setattr(eyes_module, "WorkerProcess", FakeChild)
    return InspectorClient()


def ask(eyes, client, *texts):
    return [eyes.request("predict", {}, text, client=client) for text in texts]


def serve_all(eyes):
    """Answer request after request until none waits, and return their texts in order."""
    (child,) = FakeChild.started
    while eyes._current is not None:
        child.answer(text=child.texts[-1])
    return child.texts


def test_one_request_at_a_time_is_at_the_process(eyes):
    first, second = ask(eyes, ADA, "1", "2")
    (child,) = FakeChild.started
    assert child.texts == ["1"]
    child.answer(found=1)
    assert (first.result(0), second.done(), child.texts) == ({"found": 1}, False, ["1", "2"])


def test_another_client_waits_for_one_request_and_not_for_a_backlog(eyes):
    ask(eyes, ADA, *"123456")
    ask(eyes, BOB, "b")
    assert serve_all(eyes) == ["1", "b", *"23456"]


def test_addresses_take_turns_and_so_do_the_owners_behind_one(eyes):
    ask(eyes, ADA, "a1", "a2", "a3")
    ask(eyes, EVE, "e1", "e2", "e3")
    ask(eyes, BOB, "b1", "b2", "b3")
    assert serve_all(eyes) == ["a1", "b1", "a2", "b2", "e1", "b3", "a3", "e2", "e3"]


def test_invented_owners_of_one_address_share_its_turns(eyes):
    for number in range(20):
        ask(eyes, Client("10.0.0.1", f"invented {number}"), "x")
    ask(eyes, BOB, "b1", "b2")
    assert serve_all(eyes)[:4] == ["x", "b1", "x", "b2"]


def test_a_client_and_an_address_have_as_many_waiting_as_they_may(eyes):
    # one of them is at the process
    replies = ask(eyes, ADA, *("x" for _ in range(MAX_PER_CLIENT + 3)))
    assert [reply.done() for reply in replies] == [False] * (MAX_PER_CLIENT + 1) + [True] * 2
    refused = replies[-1].result(0)
    assert "busy" in refused["error"]
    assert refused["again"]
    invented = [
        ask(eyes, Client("10.0.0.1", f"invented {number}"), "x")[0]
        for number in range(MAX_PER_ADDRESS)
    ]
    assert sum(reply.done() for reply in invented) == MAX_PER_CLIENT
    assert not ask(eyes, BOB, "b")[0].done()


def test_a_viewer_of_a_shared_run_does_not_use_up_its_owners_quota(eyes):
    viewer = Client(ADA.address, "viewer")
    ask(eyes, viewer, *("x" for _ in range(MAX_PER_CLIENT + 5)))
    assert not ask(eyes, ADA, "mine")[0].done()
    assert serve_all(eyes)[1] == "mine"


def test_a_cancelled_request_never_reaches_the_process_and_frees_its_place(eyes):
    replies = ask(eyes, ADA, *(str(number) for number in range(MAX_PER_CLIENT + 1)))
    assert all(reply.cancel() for reply in replies[1:])
    again = ask(eyes, ADA, *("again" for _ in range(MAX_PER_CLIENT)))
    assert not any(reply.done() for reply in again)
    assert serve_all(eyes) == ["0", *["again"] * MAX_PER_CLIENT]
    with pytest.raises(CancelledError):
        replies[1].result(0)


def test_request_past_time_limit_ends_and_next_gets_new_process(eyes):
    slow = eyes.request("predict", {}, "slow", client=ADA, timeout_s=5.0)
    (waiting,) = ask(eyes, BOB, "next")
    eyes._started_at -= 6
    eyes.check_timeout(60)
    first, second = FakeChild.started
    assert "longer than 5 s" in slow.result(0)["error"]
    assert (first.is_killed, second.texts, waiting.done()) == (True, ["next"], False)
    first.on_exit(-9)  # its end takes nothing from the process after it
    second.answer(found=1)
    assert waiting.result(0) == {"found": 1}


def test_requests_that_wait_survive_the_end_of_the_process(eyes):
    (current,), (waiting,) = ask(eyes, ADA, "1"), ask(eyes, BOB, "2")
    FakeChild.started[0].on_exit(-11)
    assert current.result(0)["again"]
    assert FakeChild.started[1].texts == ["2"]
    FakeChild.started[1].answer(found=2)
    assert waiting.result(0) == {"found": 2}


def test_a_stopped_process_answers_what_waits_and_accepts_no_more(eyes):
    current, waiting = ask(eyes, ADA, "1", "2")
    eyes.stop()
    FakeChild.started[0].on_exit(-9)
    late = ask(eyes, BOB, "3")[0]
    assert all("error" in reply.result(0) for reply in (current, waiting, late))
    assert len(FakeChild.started) == 1


def test_an_empty_queue_has_no_next_request():
    queue = InspectionQueue()
    request = InspectionRequest("predict", {}, client=ADA)
    assert queue.put(request)
    assert list(queue) == [request]
    assert queue.next() is request
    assert queue.next() is None
    assert len(queue) == 0


# What a page's handler does with its future


def request_whose(*messages):
    """A request of a page whose connection delivers these messages, and nothing after them."""
    waiting = list(messages)

    async def receive():
        return waiting.pop(0) if waiting else await asyncio.get_running_loop().create_future()

    return Request({"type": "http", "path": "/playground/api/runs/predict", "headers": []}, receive)


def test_a_time_limit_takes_the_request_out_of_the_queue(eyes):
    _, waiting = ask(eyes, ADA, "1", "2")
    told = run_in_thread(await_result(waiting, 0.01))
    assert told["again"]
    assert waiting.cancelled()


def test_a_client_that_disconnects_takes_its_request_out_of_the_queue(eyes):
    _, waiting = ask(eyes, ADA, "1", "2")
    run_in_thread(await_result(waiting, 600, request_whose({"type": "http.disconnect"})))
    assert waiting.cancelled()


@pytest.mark.parametrize(
    "request_", [request_whose(), SimpleNamespace(scope={"path": "/gradio_api/call/predict"})]
)
def test_a_client_that_stays_gets_its_answer(eyes, request_):
    (reply,) = ask(eyes, ADA, "1")

    async def answered():
        task = asyncio.ensure_future(await_result(reply, 600, request_))
        await asyncio.sleep(0)
        FakeChild.started[0].answer(found=1)
        return await task

    assert run_in_thread(answered()) == {"found": 1}


# What the process does with a request that it was not made for


def test_an_unexpected_error_of_a_view_is_answered_and_logged(monkeypatch, caplog):
    requests, answers = [(1, "snapshot", {}, "")], []

    def receive():
        if not requests:
            raise EOFError
        return requests.pop()

    def fail(*_):
        raise ZeroDivisionError("a defect of a view")

    monkeypatch.setattr(inspector_process, "prepare_process", lambda nice: None)
    monkeypatch.setattr(inspector_process.Inspector, "dispatch", fail)
    inspector_process.main(SimpleNamespace(recv=receive, send=answers.append))
    assert answers == [(1, {"error": "ZeroDivisionError: a defect of a view"})]
    assert "Traceback" in caplog.text
