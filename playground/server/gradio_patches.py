"""Changes to Gradio 6.31 for which it has no option.

tests/integration/server/test_middleware.py tests each. Apply them before the launch.
"""

import asyncio
import logging
import sys
import traceback
from collections.abc import Coroutine
from contextvars import ContextVar
from copy import copy
from typing import Any

import gradio
import gradio.queueing
import gradio.routes
import gradio.state_holder
from gradio.queueing import Queue
from gradio.server_messages import EstimationMessage
from gradio.utils import LRUCache
from starlette.types import ASGIApp, Receive, Scope, Send

from .asgi import HttpMiddleware

log = logging.getLogger(__name__)
MAX_ERROR_TEXT = 500  # characters; the message may contain a value of the client
MAX_FRAMES = 12


class LoggedTraceback:
    """The module traceback for gradio.queueing and gradio.routes.

    It logs what they print to stderr.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    @staticmethod
    def print_exc(*_: Any, **__: Any) -> None:
        """Log the current exception, with a truncated message."""
        error = sys.exception()
        if error is not None:
            frames = "".join(traceback.format_tb(error.__traceback__, limit=-MAX_FRAMES))
            log.error(
                "An event failed: %s: %.*s\n%s", type(error).__name__, MAX_ERROR_TEXT, error, frames
            )


class SessionState(gradio.state_holder.SessionState):
    """A session without a copy of every component's configuration.

    Gradio makes that copy for each session, and for each API call without one: 0.4 MB and 75 ms of
    the event loop. Only deep links read it, which this server does not offer.
    """

    def __init__(self, blocks: gradio.Blocks) -> None:
        self.blocks_config = copy(blocks.default_config)
        self.config_values: dict[int, Any] = {}
        self.state_data: dict[int, Any] = {}
        self._state_ttl: dict[int, Any] = {}
        self.is_closed = False
        self.STATE_TTL_WHEN_CLOSED = 3600

    def __setitem__(self, key: int, value: Any) -> None:
        block = self.blocks_config.blocks.get(key)
        if isinstance(block, gradio.State):
            super().__setitem__(key, value)
        else:
            self.blocks_config.blocks[key] = value

    def _update_config(self, key: int) -> None:
        """Store no copy of the configuration."""

    def _update_value_in_config(self, key: int, value: Any) -> None:
        """Store no copy of the configuration."""


def without_cors(app: ASGIApp, **_: Any) -> ASGIApp:
    """Replace Gradio's CORS middleware, which accepts credentials from any site, by none."""
    return app


class UnreadMessages(asyncio.Queue[Any]):
    """The unread messages of one session, with a bounded number of queue estimates."""

    MAX_ESTIMATES = 50

    def put_nowait(self, item: Any) -> None:
        if not isinstance(item, EstimationMessage) or self.qsize() < self.MAX_ESTIMATES:
            super().put_nowait(item)


class SessionMessages(LRUCache[str, Any]):
    """The unread messages by session, for Gradio's queue.

    Gradio drops the oldest session, and the next message to it raises KeyError. Where an event of
    that session waits, the error ends the task that starts events, for all users.

    Here a session with an event that waits or runs is dropped last. A message to a dropped
    session is lost.
    """

    def __init__(self, queue: Queue, max_size: int) -> None:
        super().__init__(max_size)
        self._queue = queue

    def __setitem__(self, session: str, messages: Any) -> None:
        if session not in self and len(self) >= self.max_size:
            self._evict_one()
        super().__setitem__(session, UnreadMessages())

    def __missing__(self, session: str) -> Any:
        return UnreadMessages()

    def _evict_one(self) -> None:
        busy = {event.session_hash for event in self._queue.event_ids_to_events.values()}
        del self[next((session for session in self if session not in busy), next(iter(self)))]


class SessionEvents(LRUCache[str, set[str]]):
    """The ids of unread events by session; Gradio keeps them without a bound."""

    def __missing__(self, session: str) -> set[str]:
        return set()


MAX_UNREAD_SESSIONS = 2000


def bound_sessions(queue: Queue) -> None:
    """Bound what a queue keeps for sessions that do not read their messages."""
    queue.pending_messages_per_session = SessionMessages(queue, MAX_UNREAD_SESSIONS)
    queue.pending_event_ids_session = SessionEvents(2 * MAX_UNREAD_SESSIONS)


STREAM = "/gradio_api/queue/data"
stream_tasks: ContextVar[list[asyncio.Task[Any]]] = ContextVar("stream_tasks")


class TrackingAsyncio:
    """The module asyncio for gradio.routes; records the tasks that a stream starts."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    def create_task(coroutine: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        """Create a task as asyncio does."""
        task = asyncio.create_task(coroutine, **options)
        if (tasks := stream_tasks.get(None)) is not None:
            tasks.append(task)
        return task


class StreamCleanupMiddleware(HttpMiddleware):
    """Ends what a stream of Gradio's events leaves behind when its client disconnects.

    Gradio starts a heartbeat for each stream, and ends it only with a stream that is complete.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != STREAM:
            await self.app(scope, receive, send)
            return
        tasks: list[asyncio.Task[Any]] = []
        stream_tasks.set(tasks)
        try:
            await self.app(scope, receive, send)
        except KeyError:
            pass  # an earlier stream of the session has removed its messages
        finally:
            for task in tasks:
                task.cancel()


def apply_patches() -> None:
    """Replace Gradio's session state, CORS middleware, heartbeats and tracebacks.

    Safe to call again.
    """
    for name in ("state_holder", "blocks", "route_utils", "mcp"):
        if module := sys.modules.get(f"gradio.{name}"):
            module.SessionState = SessionState  # type: ignore[attr-defined]
    gradio.routes.CustomCORSMiddleware = without_cors
    gradio.routes.asyncio = TrackingAsyncio()
    gradio.queueing.traceback = gradio.routes.traceback = LoggedTraceback()
