"""Limits on connections: the size of headers, and the time that a client may be silent.

uvicorn has no timeout for headers or for a response that is not read. Without one, idle connections
could take every file descriptor, and asyncio logs a traceback for each that it cannot accept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any

import uvicorn.config

from playground.common.logs import FORMAT, RepeatFilter, SafeFormatter
from playground.common.platform import raise_descriptor_limit

from .middleware import TRANSFER_PATHS

SWEEP_INTERVAL_S = 2.0
SILENCE_TIMEOUT_S = 20.0  # without a complete request, or with an unread response
CROWDED_TIMEOUT_S = 1.0  # where connections take half of the file descriptors
MAX_HEADER_BYTES = 64_000
MAX_ACCEPTED = 64  # connections in one turn of the event loop: nothing else runs meanwhile
MAX_WAITING = 4096  # connections that the system holds until a turn accepts them


def configure_uvicorn() -> None:
    """Configure uvicorn's limit of headers, and the log format of the app.

    The parser httptools has no limit of headers; h11 has. The client stays the peer:
    `resolve_client_address` decides which headers of a proxy count.
    """
    uvicorn.Config = partial(  # type: ignore[misc, assignment]  # Gradio creates the configuration
        uvicorn.Config,
        backlog=MAX_ACCEPTED,
        http="h11",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        ws="none",
        server_header=False,
        proxy_headers=False,
    )
    uvicorn.config.LOGGING_CONFIG["formatters"]["default"] = {"()": SafeFormatter, "fmt": FORMAT}
    logging.getLogger("uvicorn.error").addFilter(RepeatFilter())


@asynccontextmanager
async def sweep_connections(app: Any) -> AsyncIterator[None]:
    """Close silent connections while the app runs; a lifespan of ASGI."""
    max_open = raise_descriptor_limit() // 2

    async def sweep_repeatedly() -> None:
        silent: dict[Any, tuple[int, float]] = {}
        # until the launch is complete
        while (server := getattr(app.get_blocks(), "server", None)) is None:
            await asyncio.sleep(SWEEP_INTERVAL_S)
        for listener in (each for listening in server.servers for each in listening.sockets):
            with closing(listener.dup()) as duplicate:
                # asyncio has one number for what a turn accepts and for what the system holds
                duplicate.listen(MAX_WAITING)
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            silent = sweep(server.server_state.connections, silent, max_open)

    task = asyncio.create_task(sweep_repeatedly())
    yield
    task.cancel()


def sweep(
    connections: set[Any], silent: dict[Any, tuple[int, float]], max_open: int
) -> dict[Any, tuple[int, float]]:
    """Close each connection that has been silent for too long.

    `silent` is the result of the last call: for each silent connection the unread bytes of its
    response, and since when their number is the same.
    """
    now = time.monotonic()
    timeout_s = CROWDED_TIMEOUT_S if len(connections) > max_open else SILENCE_TIMEOUT_S
    still_silent = {}
    for each in connections:
        unread = each.transport.get_write_buffer_size()
        if unread or _awaits_request(each):
            last_unread, since = silent.get(each, (unread, now))
            still_silent[each] = unread, (since if last_unread == unread else now)
    for each, (_, since) in still_silent.items():
        if now - since > timeout_s:
            each.transport.abort()
    return still_silent


def _awaits_request(connection: Any) -> bool:
    """Return whether the server waits for a request or its rest; uploads have other limits."""
    cycle = connection.cycle
    if cycle is None or cycle.response_complete:
        return True
    is_upload = cycle.scope["path"] in TRANSFER_PATHS
    return cycle.more_body and not cycle.response_started and not is_upload
