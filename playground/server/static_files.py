"""Serve the front end: the ES modules and stylesheets in `playground/ui/static`."""

import os
from pathlib import Path

from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from playground.ui.mount import STATIC_DIR, STATIC_URL

CACHE_SECONDS = 365 * 24 * 3600
MIN_GZIP_BYTES = 500


class VersionedFiles(StaticFiles):
    """Files that browsers may store, because their path has the version.

    The path is the parameter of the route, because a proxy may have removed a prefix of the URL.
    With PLAYGROUND_DEV=1, browsers check at each use whether a file has changed.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if response.status_code in (200, 304):
            is_development = os.environ.get("PLAYGROUND_DEV") == "1"
            response.headers["cache-control"] = (
                "no-cache" if is_development else f"public, max-age={CACHE_SECONDS}, immutable"
            )
        return response

    def get_path(self, scope: Scope) -> str:
        return os.path.normpath(str(scope["path_params"]["path"]))


def static_route(folder: Path = STATIC_DIR) -> Route:
    """Return the route of the files, which compresses them for clients that accept it."""
    return Route(
        f"/{STATIC_URL}{{path:path}}",
        VersionedFiles(directory=folder),
        methods=["GET"],
        middleware=[Middleware(GZipMiddleware, minimum_size=MIN_GZIP_BYTES)],
    )
