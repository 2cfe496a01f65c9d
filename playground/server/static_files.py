"""Serve the front end: the ES modules and stylesheets in `playground/ui/static`."""

import gzip
import os
from pathlib import Path
from typing import Any

import brotli
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from playground.ui.mount import STATIC_DIR, STATIC_URL

CACHE_SECONDS = 365 * 24 * 3600
MIN_COMPRESSED_BYTES = 500
BROTLI_QUALITY = 10  # 11 takes twice as long and saves 3 % more


class VersionedFiles(StaticFiles):
    """Files that browsers may store, because their path has the version.

    The path is the parameter of the route, because a proxy may have removed a prefix of the URL.
    With PLAYGROUND_DEV=1, browsers check at each use whether a file has changed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # the compressed content by path and encoding, with the version of the file
        self._compressed: dict[tuple[str, str], tuple[str, bytes]] = {}

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if isinstance(response, FileResponse) and response.status_code == 200:
            accepted = Headers(scope=scope).get("accept-encoding", "")
            response = await self.compress(response, accepted)
        if response.status_code not in (200, 304):
            return response
        if os.environ.get("PLAYGROUND_DEV") == "1":
            response.headers["cache-control"] = "no-cache"
        else:
            response.headers["cache-control"] = f"public, max-age={CACHE_SECONDS}, immutable"
            for name in ("etag", "last-modified", "accept-ranges"):  # never checked again
                del response.headers[name]
        return response

    def get_path(self, scope: Scope) -> str:
        return os.path.normpath(str(scope["path_params"]["path"]))

    async def compress(self, response: FileResponse, accepted: str) -> Response:
        """Return the response with a compressed body, if the client accepts one."""
        encoding = next((name for name in ("br", "gzip") if name in accepted), None)
        if encoding is None or int(response.headers["content-length"]) < MIN_COMPRESSED_BYTES:
            return response
        path, version = str(response.path), response.headers["etag"]
        stored_version, body = self._compressed.get((path, encoding), ("", b""))
        if stored_version != version:
            body = await run_in_threadpool(compress_file, path, encoding)
            self._compressed[path, encoding] = (version, body)
        headers = {"content-encoding": encoding, "vary": "Accept-Encoding", "etag": version}
        return Response(body, headers=headers, media_type=response.media_type)


def compress_file(path: str, encoding: str) -> bytes:
    """Return a file's compressed content."""
    content = Path(path).read_bytes()
    if encoding == "br":
        return bytes(brotli.compress(content, mode=brotli.MODE_TEXT, quality=BROTLI_QUALITY))
    return gzip.compress(content)


def static_route(folder: Path = STATIC_DIR) -> Route:
    """Return the route of the files."""
    return Route(f"/{STATIC_URL}{{path:path}}", VersionedFiles(directory=folder), methods=["GET"])
