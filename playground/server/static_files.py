"""Serve the files of the page, those of `playground/ui/static`."""

import gzip
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import brotli
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from playground.common.env import env_text
from playground.ui.page import STATIC_DIR, STATIC_URL

from .asgi import accepted_encoding

CACHE_SECONDS = 365 * 24 * 3600
TEXT_SUFFIXES = (".css", ".js", ".json", ".svg")  # fonts are compressed already
MIN_COMPRESSED_BYTES = 500
BROTLI_QUALITY = 10  # 11 takes twice as long and saves 3 % more
# Comments at the start of a line. Elsewhere the same characters may be part of a text.
COMMENT_PATTERNS = {
    ".css": re.compile(r"^[ \t]*/\*.*?\*/", re.MULTILINE | re.DOTALL),
    ".js": re.compile(r"^[ \t]*(?:/\*.*?\*/|//[^\n]*)", re.MULTILINE | re.DOTALL),
}


class VersionedFiles(StaticFiles):
    """Files that browsers may store, because their path changes with their content.

    The path is the parameter of the route, because a proxy may have removed a prefix of the URL.
    Browsers get scripts and stylesheets without comments. With PLAYGROUND_DEV=1, they get the files
    as they are, and check at each use whether one has changed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.is_development = env_text("DEV") == "1"

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if response.status_code not in (200, 304):
            return response
        if self.is_development:
            response.headers["cache-control"] = "no-cache"
            return response
        if isinstance(response, FileResponse) and Path(response.path).suffix in TEXT_SUFFIXES:
            accepted = ",".join(Headers(scope=scope).getlist("accept-encoding"))
            response = await self.encode(response, accepted_encoding(accepted))
        response.headers["cache-control"] = f"public, max-age={CACHE_SECONDS}, immutable"
        for name in ("etag", "last-modified", "accept-ranges"):  # never checked again
            del response.headers[name]
        return response

    def get_path(self, scope: Scope) -> str:
        return os.path.normpath(str(scope["path_params"]["path"]))

    async def encode(self, response: FileResponse, encoding: str) -> Response:
        if int(response.headers["content-length"]) < MIN_COMPRESSED_BYTES:
            encoding = "identity"
        path, version = str(response.path), response.headers["etag"]
        body = await run_in_threadpool(encode_file, path, encoding, version)
        headers = {"content-encoding": encoding, "vary": "Accept-Encoding"}
        headers = {} if encoding == "identity" else headers
        return Response(body, headers=headers, media_type=response.media_type)


@lru_cache(maxsize=1000)
def encode_file(path: str, encoding: str, version: str) -> bytes:
    """Return a file without comments, in an encoding of HTTP; `version` keys the cache."""
    content = Path(path).read_bytes()
    if pattern := COMMENT_PATTERNS.get(Path(path).suffix):
        content = remove_comments(content.decode(), pattern).encode()
    return encode_text(content, encoding)


def encode_text(content: bytes, encoding: str) -> bytes:
    if encoding == "br":
        return bytes(brotli.compress(content, mode=brotli.MODE_TEXT, quality=BROTLI_QUALITY))
    return gzip.compress(content) if encoding == "gzip" else content


def remove_comments(text: str, pattern: re.Pattern[str]) -> str:
    """Return the text without comments; the line numbers of errors stay the same."""
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)


def static_route(folder: Path = STATIC_DIR) -> Route:
    return Route(f"/{STATIC_URL}{{path:path}}", VersionedFiles(directory=folder), methods=["GET"])
