"""The JSON routes of the page: POST playground/api/GROUP/NAME.

They are Starlette routes in front of Gradio's. Gradio's server functions cost much more routing and
validation per request, on the cores that also train (benchmarks/RESULTS.md, "Overhead of viewers",
measured with these routes). Arguments are untrusted. Pages of other sites may send requests with
the user's cookies; the origin check of middleware.py rejects them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from playground.checkpoints.manifest import parse_strict_json
from playground.errors import UserError, error_response
from playground.runs.owner_keys import OWNER_KEY_PATTERN

from .client import resolve_client_address
from .origin import is_own_origin
from .rate_limit import LoadLimits

ROUTE_PREFIX = "/playground/api/"
OLD_ROUTE_PREFIX = "/playground/ask/"  # of version 0.1.0
MAX_INLINE_PARSE_BYTES = 64_000  # a larger body is parsed in a thread
MAX_BRACKETS = 5000  # in JSON; a megabyte of nested lists takes almost a second to parse
Handler = Callable[[object, Request], Awaitable[dict[str, Any]]]
MethodHandler = Callable[..., Awaitable[dict[str, Any]]]

# The load of a request in milliseconds (rate_limit.LoadLimits): the time of the server process.
# Requests that start a process or a job have a higher load, which limits their rate.
DEFAULT_LOAD_MS = 10.0
LOAD_MS_BY_ROUTE = {
    "runs/poll": 2,
    "runs/snapshot": 2,
    "runs/predict": 5,
    "runs/curves": 5,
    "runs/list": 3,
    "runs/details": 5,
    "runs/action": 20,
    "inspect/view": 10,
    "inspect/figures": 200,
    "runs/report": 200,
    "datasets/action": 50,
    "jobs/submit": 50,
    "jobs/poll": 2,
    "architectures/train": 100,
    "experiments/poll": 5,
    "experiments/submit": 100,
    "experiments/figures": 200,
    "replications/outcome": 50,
    "replications/start": 50,
    "hub/submit": 50,
    "hub/poll": 2,
    "lessons/poll": 2,
    "lessons/start-bug": 50,
    "lessons/start": 50,
}


def build_routes(handlers: Mapping[str, Handler], load: LoadLimits | None = None) -> list[Route]:
    """Return a route for each of the names; `load` limits clients and owners."""
    load = load or LoadLimits(0.0, 0.0)
    routes = [
        Route(
            ROUTE_PREFIX + name,
            _make_endpoint(handler, LOAD_MS_BY_ROUTE.get(name, DEFAULT_LOAD_MS), load),
            methods=["POST"],
        )
        for name, handler in handlers.items()
    ]
    return [*routes, Route(OLD_ROUTE_PREFIX + "{name}", _reject_old_page, methods=["POST"])]


async def _reject_old_page(request: Request) -> Response:
    """Respond to a page of version 0.1.0 that was open when the server was updated."""
    return JSONResponse({"error": "the server was updated; reload the page", "again": False})


def _make_endpoint(
    handler: Handler, cost: float, load: LoadLimits
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if not is_own_origin(request.headers):
            return JSONResponse({"error": "open the playground itself"}, status_code=403)
        address = resolve_client_address(request)
        if seconds := load.take_address(address, cost):
            return await load.reject(address, seconds)
        body = await request.body()
        if body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
            return JSONResponse(
                {"error": f"this JSON has more than {MAX_BRACKETS} lists and objects"}, 400
            )
        try:
            payload = (
                await asyncio.to_thread(parse_strict_json, body)
                if len(body) > MAX_INLINE_PARSE_BYTES
                else parse_strict_json(body)
            )
        except ValueError:
            return JSONResponse({"error": "a JSON object is expected"}, status_code=400)
        if seconds := load.take_owner(
            payload.get("owner") if isinstance(payload, dict) else None, cost
        ):
            return await load.reject(address, seconds)
        content = json.dumps(
            await handler(payload, request), separators=(",", ":"), allow_nan=False
        )
        headers = getattr(request.state, "response_headers", None)  # set by a handler
        return Response(content, media_type="application/json", headers=headers)

    return endpoint


def call_owner_handler(
    handler: Callable[[str, dict[str, Any]], dict[str, Any]], payload: object
) -> dict[str, Any]:
    """Call a handler with the owner key of the request.

    Errors of the user become a response.
    """
    payload = payload if isinstance(payload, dict) else {}
    try:
        return handler(require_owner(payload), payload)
    except (ValueError, OSError) as error:
        return error_response(error)


def respond_with_errors(handler: MethodHandler) -> MethodHandler:
    """Decorate a handler: an error of the user, such as a `UserError`, becomes a response."""

    @wraps(handler)
    async def wrapper(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return await handler(*args, **kwargs)
        except (ValueError, OSError) as error:
            return error_response(error)

    return wrapper


def require_owner(payload: Mapping[str, Any]) -> str:
    """Return the owner key of a request.

    Raises:
        UserError: if the request has none.
    """
    owner = payload.get("owner")
    if not isinstance(owner, str) or not OWNER_KEY_PATTERN.fullmatch(owner):
        raise UserError("the request has no owner key; reload the page and try again")
    return owner
