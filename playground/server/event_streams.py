"""Limits on the sessions of Gradio's queue, and on the streams of their events and of MCP.

There is no limit by address, because all users behind a proxy have one address.
"""

import asyncio
import re
import secrets
import time
from contextlib import suppress
from urllib.parse import parse_qs

from gradio.queueing import Queue
from gradio.server_messages import UnexpectedErrorMessage
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .asgi import HttpMiddleware

MAX_STREAMS = 500
MAX_SESSIONS = 1000  # with unread messages; Gradio's queue ends for all users above 2000
STREAM_IDLE_S = 30.0  # without an event that waits or runs
STREAM_MAX_S = 300.0  # the longest call takes 240 s
CHECK_INTERVAL_S = 5.0

JOIN = re.compile(r"/gradio_api/(queue/join|call/(v2/)?\w+/?)")
STREAM = re.compile(r"/gradio_api/(queue/data|call/(v2/)?\w+/(?P<event>\w+))")
MCP = re.compile(r"/gradio_api/mcp/?")
ENDED = "The server ended this stream, which was open for too long; send the call again."


class EventStreamMiddleware(HttpMiddleware):
    """Limits sessions to one stream, and sessions and streams in number and duration.

    At a limit, the oldest stream ends, or the oldest session without a stream.

    A stream ends as if its client had disconnected. Gradio leaves the heartbeat of a stream that is
    cancelled, so a disconnect does not cancel it either (that is what version 2.4 of ASGI means).
    """

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self.streams: dict[str, asyncio.Event] = {}  # what ends them, by session
        self.joining = 0

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        if method == "GET" and (match := STREAM.fullmatch(path)):
            queue = scope["app"].get_blocks()._queue
            session = _find_session(scope, match["event"], queue)
            if session not in queue.pending_messages_per_session:
                await PlainTextResponse("There is no such event.", 404)(scope, receive, send)
            elif session in self.streams:
                text = "This session has a stream already; read that one."
                await PlainTextResponse(text, 429)(scope, receive, send)
            else:
                await self._stream(session, queue, scope, receive, send)
        elif method == "GET" and MCP.fullmatch(path):
            text = "This server sends no messages of its own; send calls with POST."
            await PlainTextResponse(text, 405, {"Allow": "POST"})(scope, receive, send)
        elif method == "POST" and MCP.fullmatch(path):
            await self._stream(f"mcp {secrets.token_hex(8)}", None, scope, receive, send)
        elif method == "POST" and JOIN.fullmatch(path):
            await self._join(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _stream(
        self, session: str, queue: Queue | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a stream of a session, or of MCP without a queue."""
        if len(self.streams) >= MAX_STREAMS:
            self._end(next(iter(self.streams)), scope["app"].get_blocks()._queue)
        ended = self.streams[session] = asyncio.Event()
        body = [await receive()]

        async def receive_end() -> Message:
            if body:
                return body.pop()
            await ended.wait()
            return {"type": "http.disconnect"}

        async def end() -> None:
            await _wait_for_end(session, queue, receive)
            self._end(session, queue)

        watcher = asyncio.create_task(end())
        try:
            asgi = dict(scope["asgi"]) | {"spec_version": "2.4"}
            await self.app(dict(scope) | {"asgi": asgi}, receive_end, send)
        finally:
            watcher.cancel()
            if self.streams.get(session) is ended:
                del self.streams[session]

    def _end(self, session: str, queue: Queue | None) -> None:
        if ended := self.streams.pop(session, None):
            ended.set()
        if queue and session in queue.pending_messages_per_session:  # Gradio waits for a message
            message = UnexpectedErrorMessage(message=ENDED)
            queue.pending_messages_per_session[session].put_nowait(message)

    async def _join(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that may add a session; drop the oldest one that is not read."""
        queue = scope["app"].get_blocks()._queue
        sessions = queue.pending_messages_per_session
        if len(sessions) + self.joining >= MAX_SESSIONS:
            oldest = next((each for each in sessions if each not in self.streams), None)
            if oldest is None:
                text = "Too many calls are waiting; try again in a minute."
                await PlainTextResponse(text, 503)(scope, receive, send)
                return
            for event in queue.event_ids_to_events.values():
                event.alive = event.alive and event.session_hash != oldest
            del sessions[oldest]
            queue.pending_event_ids_session.pop(oldest, None)
        else:
            oldest = None
        self.joining += 1
        try:
            if oldest is not None:
                await queue.clean_events(session_hash=oldest)
            await self.app(scope, receive, send)
        finally:
            self.joining -= 1


def _find_session(scope: Scope, event: str | None, queue: Queue) -> str:
    """Return the session of a stream's query, or of an event as Gradio finds it."""
    if event is None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        return query.get("session_hash", [""])[-1]
    sessions = queue.pending_event_ids_session.items()
    return next((session for session, events in sessions if event in events), event)


async def _wait_for_end(session: str, queue: Queue | None, receive: Receive) -> None:
    """Wait until the client disconnects, or until the stream has been open for too long."""
    started = last_pending = now = time.monotonic()
    while now - started < STREAM_MAX_S and now - last_pending < STREAM_IDLE_S:
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_INTERVAL_S):
                if (await receive())["type"] == "http.disconnect":
                    return
        now = time.monotonic()
        if queue is None or queue.pending_event_ids_session.get(session):
            last_pending = now
