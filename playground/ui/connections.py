"""Bounds on connections: how many there are, and how long their headers may take.

uvicorn waits for headers without end, and asyncio writes a traceback for each connection that finds no
free file descriptor. So idle connections could shut out everyone and fill the disk with the log.
"""

from __future__ import annotations

import logging
import os
import time
from asyncio import TimerHandle, Transport
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from socket import SHUT_RDWR
from typing import Any

import uvicorn.config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from playground.logs import FORMAT, RepeatFilter, SafeFormatter

from .limits import network_of

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

HEADER_SECONDS = 20.0  # until the headers of a request have to be complete
MAX_HEADER_BYTES = 64_000
MAX_CONNECTIONS = 4000
WRITE_SECONDS = 30.0  # for which a client may read nothing of a response
RESERVED = 0.5  # of the file descriptors, for files, pipes and processes


def raise_descriptor_limit() -> int:
    """Raise the soft limit of file descriptors to the hard one; returns the limit in force."""
    if resource is None:
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def max_connections(descriptors: int) -> int:
    """Return how many connections fit into so many file descriptors."""
    with suppress(OSError):
        descriptors -= len(os.listdir("/proc/self/fd"))
    return max(8, min(MAX_CONNECTIONS, int(descriptors * (1 - RESERVED))))


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with deadlines and a bound on open connections.

    At the bound, a new connection closes one that serves no request: the one that has been idle
    longest, of the address that holds most. One address may hold half of all connections.
    """

    bound = MAX_CONNECTIONS
    open: set[BoundedProtocol] = set()  # noqa: RUF012 - shared by all connections of the server

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.idle_since = time.monotonic()
        self.header_timer: TimerHandle | None = None
        self.write_timer: TimerHandle | None = None
        self.overhead_bytes = 0  # since the last that were part of a body
        # A connection that becomes a websocket leaves this protocol without connection_lost.
        self.ws_protocol_class = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        own = [each for each in self.open if each.host == self.host]
        is_full = len(self.open) >= self.bound
        if (len(own) >= self.bound // 2 and not close_idle(own)) or (
            is_full and not close_idle(self.open)
        ):
            transport.abort()
        self.open.add(self)
        self.await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.discard(self)
        self.stop_header_timer()
        self.stop_write_timer()
        super().connection_lost(exc)
        # A process that ZeroGPU forks from this one holds a copy of the socket: closing only this
        # end would leave the connection open, and the client's next request without an answer.
        with suppress(OSError):
            self.transport.get_extra_info("socket").shutdown(SHUT_RDWR)

    def data_received(self, data: bytes) -> None:
        if self.is_idle() and self.header_timer is None:
            self.await_headers()
        self.overhead_bytes += len(data)
        super().data_received(data)
        if self.overhead_bytes > MAX_HEADER_BYTES:  # of this request, the next one, or a trailer
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self.stop_header_timer()
        self.overhead_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.overhead_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.overhead_bytes = 0
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing in the log; a request to upgrade is answered as any other."""

    def on_response_complete(self) -> None:
        self.idle_since = time.monotonic()
        super().on_response_complete()

    def is_idle(self) -> bool:
        """Whether no request is being served on this connection."""
        return self.cycle is None or self.cycle.response_complete

    def await_headers(self) -> None:
        """Close the connection unless headers are complete in time."""
        self.header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def stop_header_timer(self) -> None:
        if self.header_timer:
            self.header_timer.cancel()
            self.header_timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stop_write_timer()
        self.write_timer = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self.stop_write_timer()
        super().resume_writing()

    def stop_write_timer(self) -> None:
        if self.write_timer:
            self.write_timer.cancel()
            self.write_timer = None

    @property
    def host(self) -> str:
        """The address of the peer, as the limits count it."""
        return network_of(self.client[0]) if self.client else ""


def close_idle(connections: Collection[BoundedProtocol]) -> bool:
    """Close one idle connection of these. Returns whether there was one."""
    idle = [each for each in connections if each.is_idle() and not each.transport.is_closing()]
    if not idle:
        return False
    held = Counter(each.host for each in connections)
    victim = max(idle, key=lambda each: (held[each.host], -each.idle_since))
    BoundedProtocol.open.discard(victim)
    victim.transport.abort()
    return True


def bound_connections() -> None:
    """Make the web server use the bounded protocol and the app's log format."""
    BoundedProtocol.bound = max_connections(raise_descriptor_limit())
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:BoundedProtocol"
    uvicorn.config.LOGGING_CONFIG["formatters"]["default"] = {"()": SafeFormatter, "fmt": FORMAT}
    logging.getLogger("uvicorn.error").addFilter(RepeatFilter())
    log.debug("At most %d connections", BoundedProtocol.bound)
