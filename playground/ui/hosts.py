"""Who may speak to the server. On a laptop, only pages of this machine: a foreign site whose name was made to point here
(DNS rebinding) sends its own Host, a foreign page that posts here sends its own Origin, and both are refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOCAL = ("localhost", "127.0.0.1", "[::1]")


class TrustedOrigin:
    """Refuses requests that a page of another host sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] in ("http", "websocket") else None
        if origin is not None and (urlsplit(origin).hostname or "") not in ("localhost", "127.0.0.1", "::1"):
            await PlainTextResponse("Foreign origin refused: open the playground itself.", status_code=400)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def middleware(open_to_all: bool) -> list[Any]:
    """What stands before the app: nothing where anybody may come, else only this machine's names."""
    if open_to_all:
        return []
    return [Middleware(TrustedHostMiddleware, allowed_hosts=list(LOCAL)), Middleware(TrustedOrigin)]
