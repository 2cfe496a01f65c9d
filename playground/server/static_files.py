"""Serve the front end: the ES modules and stylesheets in `playground/ui/static`."""

import asyncio
import gzip
import os
from functools import lru_cache
from pathlib import Path

import brotli
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

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if isinstance(response, FileResponse) and response.status_code == 200:
            response = await compress(response, Headers(scope=scope).get("accept-encoding", ""))
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


async def compress(response: FileResponse, accepted: str) -> Response:
    """Return the response with a compressed body, if the client accepts that and it is smaller."""
    encoding = next((name for name in ("br", "gzip") if name in accepted), None)
    size = int(response.headers["content-length"])
    if encoding is None or size < MIN_COMPRESSED_BYTES:
        return response
    version = response.headers["etag"]
    body = await asyncio.to_thread(compress_file, str(response.path), version, encoding)
    headers = {"content-encoding": encoding, "vary": "Accept-Encoding", "etag": version}
    return Response(body, headers=headers, media_type=response.media_type)


@lru_cache(maxsize=1000)
def compress_file(path: str, version: str, encoding: str) -> bytes:
    """Return a file's compressed content; `version` differs once the file has changed."""
    content = Path(path).read_bytes()
    if encoding == "br":
        return bytes(brotli.compress(content, mode=brotli.MODE_TEXT, quality=BROTLI_QUALITY))
    return gzip.compress(content)


def static_route(folder: Path = STATIC_DIR) -> Route:
    """Return the route of the files."""
    return Route(f"/{STATIC_URL}{{path:path}}", VersionedFiles(directory=folder), methods=["GET"])
