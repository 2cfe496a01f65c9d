"""What several ASGI applications share."""

import math
from collections.abc import Mapping

from gradio.route_utils import get_root_url
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from playground.errors import error_response


class HttpMiddleware:
    """Middleware for HTTP requests; all other connections pass unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.handle if scope["type"] == "http" else self.app)(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


def json_error(
    error: Exception, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(error_response(error), status_code, headers)


def root_url(request: Request) -> str:
    """Return the address of the page that the client uses."""
    return get_root_url(request, request.url.path, request.app.root_path) + "/"


def accepted_encoding(header: str) -> str:
    """Return the encoding to use for an Accept-Encoding header: br, gzip or identity."""
    weights: dict[str, float] = {}
    for each in header.lower().split(","):
        name, _, parameter = each.partition(";")
        key, _, value = parameter.partition("=")
        try:
            weight = float(value) if key.strip() == "q" else 1.0
        except ValueError:
            weight = 0.0
        weights[name.strip()] = weight if math.isfinite(weight) else 0.0
    others = weights.get("*", 0.0)
    best = max(("br", "gzip"), key=lambda name: weights.get(name, others))
    return best if weights.get(best, others) > 0 else "identity"
