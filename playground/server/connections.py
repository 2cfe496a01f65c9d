"""Limits on connections: their number, and the time for their headers.

uvicorn has no timeout for headers, and asyncio logs a traceback for each connection without a free
file descriptor. Without limits, idle connections could block all users and fill the disk with logs.
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

from playground.common.logs import FORMAT, RepeatFilter, SafeFormatter

from .client import network_of

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

HEADER_TIMEOUT_S = 20.0  # timeout for the headers of a request
MAX_HEADER_BYTES = 64_000
MAX_CONNECTIONS = 4000
WRITE_TIMEOUT_S = 30.0  # timeout of a client that reads nothing of a response
RESERVED_DESCRIPTOR_FRACTION = 0.5  # fraction of file descriptors for files, pipes and processes


def raise_descriptor_limit() -> int:
    """Raise the soft limit of file descriptors to the hard one, and return the limit."""
    if resource is None:
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = 65_536 if hard == resource.RLIM_INFINITY else hard
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, target), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def max_connections(descriptors: int) -> int:
    """Return the maximum number of connections for a number of file descriptors."""
    with suppress(OSError):
        descriptors -= len(os.listdir("/proc/self/fd"))
    return max(8, min(MAX_CONNECTIONS, int(descriptors * (1 - RESERVED_DESCRIPTOR_FRACTION))))


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with timeouts and a limit on open connections.

    At the limit, a new connection closes one that waits for its client: of the address with the
    most connections, an idle one before an upload, the least recently active one first. One address
    may hold half of all connections.
    """

    max_open = MAX_CONNECTIONS
    # shared by all connections of the server
    open_connections: set[BoundedProtocol] = set()  # noqa: RUF012

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.last_active = time.monotonic()
        self.header_timer: TimerHandle | None = None
        self.write_timer: TimerHandle | None = None
        self.overhead_bytes = 0  # received since the last byte of a body
        # A connection that becomes a WebSocket leaves this protocol without connection_lost.
        self.ws_protocol_class = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        same_host = [
            connection for connection in self.open_connections if connection.host == self.host
        ]
        is_full = len(self.open_connections) >= self.max_open
        if (len(same_host) >= self.max_open // 2 and not close_least_active(same_host)) or (
            is_full and not close_least_active(self.open_connections)
        ):
            transport.abort()
        self.open_connections.add(self)
        self.await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.discard(self)
        self.stop_header_timer()
        self.stop_write_timer()
        super().connection_lost(exc)
        # A process that is forked from this one has a copy of the socket. Without the shutdown, the
        # connection would stay open, and the next request of the client without a response.
        with suppress(OSError):
            self.transport.get_extra_info("socket").shutdown(SHUT_RDWR)

    def data_received(self, data: bytes) -> None:
        if self.is_idle() and self.header_timer is None:
            self.await_headers()
        self.overhead_bytes += len(data)
        super().data_received(data)
        if self.overhead_bytes > MAX_HEADER_BYTES:  # of headers or a trailer
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self.stop_header_timer()
        self.overhead_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.overhead_bytes = 0
        self.last_active = time.monotonic()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.overhead_bytes = 0
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing; a request to upgrade gets a normal response."""

    def on_response_complete(self) -> None:
        self.last_active = time.monotonic()
        super().on_response_complete()

    def is_idle(self) -> bool:
        """Return whether the connection serves no request."""
        return self.cycle is None or self.cycle.response_complete

    def is_waiting(self) -> bool:
        """Return whether the server waits for a request, or for the rest of one."""
        return self.is_idle() or (self.cycle.more_body and not self.cycle.response_started)

    def await_headers(self) -> None:
        """Start the timer that closes the connection unless the headers are complete."""
        self.header_timer = self.loop.call_later(HEADER_TIMEOUT_S, self.transport.abort)

    def stop_header_timer(self) -> None:
        if self.header_timer:
            self.header_timer.cancel()
            self.header_timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stop_write_timer()
        self.write_timer = self.loop.call_later(WRITE_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        self.stop_write_timer()
        super().resume_writing()

    def stop_write_timer(self) -> None:
        if self.write_timer:
            self.write_timer.cancel()
            self.write_timer = None

    @property
    def host(self) -> str:
        """The network of the peer, as used by the limits."""
        return network_of(self.client[0]) if self.client else ""


def close_least_active(connections: Collection[BoundedProtocol]) -> bool:
    """Close one of these connections that waits for its client; return whether there was one."""
    waiting = [
        connection
        for connection in connections
        if connection.is_waiting() and not connection.transport.is_closing()
    ]
    if not waiting:
        return False
    count_by_host = Counter(each.host for each in connections)
    victim = max(
        waiting, key=lambda each: (count_by_host[each.host], each.is_idle(), -each.last_active)
    )
    BoundedProtocol.open_connections.discard(victim)
    victim.transport.abort()
    return True


class BoundedConfig(uvicorn.Config):
    """uvicorn's configuration with a backlog that leaves file descriptors free.

    asyncio accepts as many connections as the backlog has before the protocol closes any. No
    response has the header `server`. The client stays the peer: `resolve_client_address` decides
    which headers of a proxy count.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"server_header": False, "proxy_headers": False})
        self.backlog = min(self.backlog, max(1, BoundedProtocol.max_open // 2))


def bound_connections() -> None:
    """Configure uvicorn with the bounded protocol and the log format of the app."""
    BoundedProtocol.max_open = max_connections(raise_descriptor_limit())
    uvicorn.Config = BoundedConfig  # type: ignore[misc]  # Gradio creates the configuration
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:BoundedProtocol"
    uvicorn.config.LOGGING_CONFIG["formatters"]["default"] = {"()": SafeFormatter, "fmt": FORMAT}
    logging.getLogger("uvicorn.error").addFilter(RepeatFilter())
    log.debug("At most %d connections", BoundedProtocol.max_open)
