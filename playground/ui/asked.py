"""What the pages' scripts ask the server: POST playground/ask/NAME with JSON, answered with JSON.

Routes of the app's own, in front of Gradio's. Gradio's server functions do the same with much more routing and checking on the way; with
a class watching, that is time of the cores on which somebody trains (benchmarks/RESULTS.md, "What watching costs", measured with these
routes). The arguments come from anybody's browser: whoever answers reads them with care. A page of another site may send
such requests too, with the visitor's cookies; they say where they come from, and are refused everywhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from playground.models.config import SettingError
from playground.runs.run import Refused
from playground.training.manifest import parse_json

from .visit import OWNER

PATH = "/playground/ask/"
Answerer = Callable[[object, Request], Awaitable[dict[str, Any]]]


def asked(answerers: Mapping[str, Answerer]) -> list[Route]:
    """A route for each of the names."""
    return [Route(PATH + name, _route(answerer), methods=["POST"]) for name, answerer in answerers.items()]


def _route(answerer: Answerer) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        if not is_ours(request):
            return JSONResponse({"error": "open the playground itself"}, status_code=403)
        try:
            what = parse_json(await request.body())
        except ValueError:
            return JSONResponse({"error": "a JSON object is expected"}, status_code=400)
        answer = json.dumps(await answerer(what, request), separators=(",", ":"), allow_nan=False)
        return Response(answer, media_type="application/json")

    return serve


def answer_owner(answer: Callable[[str, dict[str, Any]], dict[str, Any]], what: object) -> dict[str, Any]:
    """An answer to a page that says whose it is, or the sentence that says what is wrong, and with which `field`."""
    what = what if isinstance(what, dict) else {}
    owner = what.get("owner")
    if not isinstance(owner, str) or not OWNER.fullmatch(owner):
        return {"error": "this page does not say whose it is; reload it and try again"}
    try:
        return answer(owner, what)
    except SettingError as error:
        return {"error": str(error), "field": error.field}
    except (Refused, ValueError, OSError, TimeoutError) as error:
        return {"error": str(error) or "this took too long; try again"}


def is_ours(request: Request) -> bool:
    """Whether a page of this server asks, or no page at all. A Space stands behind a proxy that may change the Host."""
    origin = request.headers.get("origin")
    if origin is None:
        return True
    hosts = (request.headers.get("host"), request.headers.get("x-forwarded-host"), *os.environ.get("SPACE_HOST", "").split(","))
    theirs = host_of(origin)
    return theirs != "" and theirs in hosts


def host_of(origin: str) -> str:
    """The host and port of an Origin; empty where it has none, as "null", which a frame without an origin says, or is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
