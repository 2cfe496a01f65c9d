"""Serve the front end: the ES modules and stylesheets in `playground/ui/static`."""

import os
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from playground.ui.mount import STATIC_DIR, STATIC_URL

CACHE_SECONDS = 365 * 24 * 3600
MIN_GZIP_BYTES = 500


class CacheHeaderMiddleware:
    """Lets browsers store every file that exists.

    With PLAYGROUND_DEV=1, browsers check at each use whether it has changed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        is_development = os.environ.get("PLAYGROUND_DEV") == "1"
        self.cache_control = (
            "no-cache" if is_development else f"public, max-age={CACHE_SECONDS}, immutable"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (200, 304):
                MutableHeaders(scope=message)["cache-control"] = self.cache_control
            await send(message)

        await self.app(scope, receive, send_with_header)


class VersionedFiles(StaticFiles):
    """Files whose path is that of the route, whatever prefix a proxy has removed from it."""

    def get_path(self, scope: Scope) -> str:
        return os.path.normpath(str(scope["path_params"]["path"]))


def static_route(folder: Path = STATIC_DIR) -> Route:
    """Return the route of the files, which compresses them for clients that accept it."""
    return Route(
        f"/{STATIC_URL}{{path:path}}",
        VersionedFiles(directory=folder),
        methods=["GET"],
        middleware=[
            Middleware(CacheHeaderMiddleware),
            Middleware(GZipMiddleware, minimum_size=MIN_GZIP_BYTES),
        ],
    )
