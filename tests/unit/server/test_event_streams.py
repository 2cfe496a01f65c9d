"""Limits of sessions and streams of events, before a stand-in for Gradio's queue."""

import asyncio
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from playground.server import event_streams
from playground.server.event_streams import EventStreamMiddleware
from tests.support.coroutines import run_in_thread, until

DATA, MCP, JOIN = "/gradio_api/queue/data", "/gradio_api/mcp/", "/gradio_api/call/models"


class FakeQueue:
    """What the middleware uses of Gradio's queue, and a stream that reads it as Gradio's does."""

    def __init__(self):
        self.pending_messages_per_session, self.pending_event_ids_session = OrderedDict(), {}
        self.event_ids_to_events, self.cleaned, self.open = {}, [], 0

    def join(self, session):
        self.pending_messages_per_session[session] = asyncio.Queue()
        self.pending_event_ids_session[session] = {f"event of {session}"}
        self.event_ids_to_events[session] = SimpleNamespace(session_hash=session, alive=True)

    async def clean_events(self, session_hash):
        self.cleaned.append(session_hash)

    async def serve(self, scope, receive, send):
        if scope["path"] == JOIN:
            self.join(scope["query_string"].decode())
        self.open += 1
        await send({"type": "http.response.start", "status": 200})
        while scope["path"] != JOIN and (await receive())["type"] != "http.disconnect":
            pass
        self.open -= 1


class Client:
    """A request to the middleware, in a task."""

    def __init__(self, middleware, path, query="", method="GET"):
        self.sent, self.closed = [], asyncio.Event()
        self.body = [{"type": "http.request", "body": b""}]
        blocks = SimpleNamespace(_queue=middleware.app.__self__)
        scope = {
            "type": "http",
            "asgi": {"spec_version": "2.3"},
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [],
            "app": SimpleNamespace(get_blocks=lambda: blocks),
        }
        self.task = asyncio.create_task(middleware(scope, self.receive, self.send))

    async def receive(self):
        if self.body:
            return self.body.pop()
        await self.closed.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    async def status(self):
        await until(lambda: self.sent)
        return self.sent[0]["status"]


@pytest.fixture
def run(monkeypatch):
    """Run a coroutine with a middleware whose checks are frequent; no task is left."""
    monkeypatch.setattr(event_streams, "CHECK_INTERVAL_S", 0.01)

    def run(scenario):
        async def run_scene():
            queue = FakeQueue()
            middleware = EventStreamMiddleware(queue.serve)
            result = await asyncio.wait_for(scenario(middleware, queue), 20)
            await until(lambda: len(asyncio.all_tasks()) == 1)
            assert (middleware.streams, middleware.joining, queue.open) == ({}, 0, 0)
            return result

        return run_in_thread(run_scene())

    return run


async def end(*clients):
    for each in clients:
        each.closed.set()
        await each.task


@pytest.mark.parametrize(
    "path", [DATA, "/gradio_api/call/predict/event", "/gradio_api/call/v2/predict/event"]
)
def test_a_session_has_one_stream(run, path):
    async def scenario(middleware, queue):
        queue.join("event")
        queue.join("other")
        first = Client(middleware, path, "session_hash=event")
        statuses = [await first.status()]
        others = [("session_hash=event", 429), ("session_hash=other", 200), ("", 404)]
        clients = [Client(middleware, DATA, query) for query, _ in others]
        statuses += [await each.status() for each in clients]
        await end(first, *clients)
        again = Client(middleware, path, "session_hash=event")
        statuses.append(await again.status())
        await end(again)
        return statuses

    assert run(scenario) == [200, 429, 200, 404, 200]


def test_the_stream_of_an_event_is_that_of_its_session(run):
    async def scenario(middleware, queue):
        queue.join("abc")
        queue.pending_event_ids_session["abc"] = {"e1", "e2"}
        clients = [Client(middleware, f"/gradio_api/call/x/{each}") for each in ("e1", "e2")]
        statuses = [await each.status() for each in clients]
        await end(*clients)
        return statuses

    assert run(scenario) == [200, 429]


def test_a_stream_ends_after_the_last_pending_event_of_its_session(run, monkeypatch):
    monkeypatch.setattr(event_streams, "STREAM_IDLE_S", 0.05)

    async def scenario(middleware, queue):
        queue.join("busy")
        queue.join("idle")
        busy = Client(middleware, DATA, "session_hash=busy")
        await Client(middleware, DATA, "session_hash=idle").status()
        del queue.pending_event_ids_session["idle"]
        await until(lambda: "idle" not in middleware.streams)
        message = queue.pending_messages_per_session["idle"].get_nowait()
        is_open = "busy" in middleware.streams
        await end(busy)
        return is_open, message.message

    is_open, message = run(scenario)
    assert is_open
    assert "send the call again" in message


@pytest.mark.parametrize(("method", "path"), [("GET", DATA), ("POST", MCP)])
def test_a_stream_ends_though_its_events_do_not(run, monkeypatch, method, path):
    monkeypatch.setattr(event_streams, "STREAM_MAX_S", 0.05)

    async def scenario(middleware, queue):
        queue.join("a")
        client = Client(middleware, path, "session_hash=a", method)
        await client.task

    run(scenario)


def test_the_oldest_of_too_many_streams_ends(run, monkeypatch):
    monkeypatch.setattr(event_streams, "MAX_STREAMS", 3)

    async def scenario(middleware, queue):
        clients = []
        for session in "abcde":
            queue.join(session)
            method, path = ("POST", MCP) if session == "b" else ("GET", DATA)
            clients.append(Client(middleware, path, f"session_hash={session}", method))
            await clients[-1].status()
        await asyncio.gather(clients[0].task, clients[1].task)
        left = list(middleware.streams)
        await end(*clients[2:])
        return left

    assert run(scenario) == ["c", "d", "e"]


def test_mcp_offers_no_stream_of_its_own(run):
    async def scenario(middleware, queue):
        client = Client(middleware, MCP)
        await client.task
        return client.sent[0]["status"], dict(client.sent[0]["headers"])[b"allow"]

    assert run(scenario) == (405, b"POST")


def test_a_new_session_ends_the_oldest_without_a_stream(run, monkeypatch):
    monkeypatch.setattr(event_streams, "MAX_SESSIONS", 3)

    async def scenario(middleware, queue):
        for session in "abc":
            queue.join(session)
        stream = Client(middleware, DATA, "session_hash=a")
        await stream.status()
        await Client(middleware, JOIN, "d", "POST").task
        left = list(queue.pending_messages_per_session), list(queue.pending_event_ids_session)
        alive = [each for each, event in queue.event_ids_to_events.items() if event.alive]
        await end(stream)
        return left, alive, queue.cleaned

    assert run(scenario) == ((["a", "c", "d"], ["a", "c", "d"]), ["a", "c", "d"], ["b"])


def test_calls_that_arrive_together_do_not_exceed_the_sessions(run, monkeypatch):
    monkeypatch.setattr(event_streams, "MAX_SESSIONS", 10)

    async def scenario(middleware, queue):
        serve, waiting = queue.serve, asyncio.Event()

        async def serve_late(*request):
            await waiting.wait()
            await serve(*request)

        for number in range(6):
            queue.join(f"old {number}")
        middleware.app, queue.serve = serve, serve_late
        clients = [Client(middleware, JOIN, str(number), "POST") for number in range(40)]
        middleware.app = serve_late
        await until(lambda: sum(bool(each.sent) for each in clients) == 30)
        waiting.set()
        statuses = [await each.status() for each in clients]
        return statuses.count(503), len(queue.pending_messages_per_session)

    assert run(scenario) == (30, 10)
