"""What stands before the app. On a laptop, only pages of this machine may speak to the server: a foreign site whose name was
made to point here (DNS rebinding) sends its own Host, a foreign page that posts here sends its own Origin, and both are refused.
Everywhere, nobody uploads files that no part of the page asks for, and no request is larger than one of the page's own: a
checkpoint or rows, where those are taken (transfer.py, rows.py), else a form."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .asked import host_of
from .rows import PATH as ROWS_PATH
from .transfer import LARGEST_UPLOAD, PATH

LOCAL = ("localhost", "127.0.0.1", "[::1]")
LARGEST_REQUEST = 1_000_000  # bytes; the page's own have some 5,000


class TrustedOrigin:
    """Refuses requests that a page of another host, or of another port of this machine, sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            origin = headers.get("origin")
            if origin is not None and host_of(origin) != headers.get("host"):
                await refusal(400, "Foreign origin refused: open the playground itself.")(scope, receive, send)
                return
        await self.app(scope, receive, send)


class SmallRequests:
    """Refuses uploads, and bodies that no form of the page makes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = LARGEST_UPLOAD if scope["path"] in (PATH, ROWS_PATH) else LARGEST_REQUEST
        if scope["path"].rstrip("/").endswith("/upload"):
            await refusal(403, "Nothing here takes uploads.")(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit() or int(declared) > most:
            await refusal(413, f"A request may have {most:,} bytes.")(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise HTTPException(413, f"A request may have {most:,} bytes.")
            return message

        await self.app(scope, counted, send)


def refusal(status: int, sentence: str) -> PlainTextResponse:
    return PlainTextResponse(sentence, status_code=status)


def middleware(open_to_all: bool) -> list[Any]:
    """The guards of an instance that is open to all, or of one that serves this machine alone."""
    local = [] if open_to_all else [Middleware(TrustedHostMiddleware, allowed_hosts=list(LOCAL)), Middleware(TrustedOrigin)]
    return [*local, Middleware(SmallRequests)]
