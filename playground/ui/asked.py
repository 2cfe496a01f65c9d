"""What the pages' scripts ask the server: POST playground/ask/NAME with a JSON object, answered with one.

A route of the app's own, in front of Gradio's. Gradio's server functions do the same and take five times as long for it, all in
routing and checking; with a class watching, that is the core that somebody trains on (benchmarks/RESULTS.md, "What watching
costs"). The arguments come from anybody's browser: whoever answers reads them with care.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from playground.runs.registry import Registry
from playground.training.manifest import parse_json

PATH = "/playground/ask/"
Answerer = Callable[[Registry, object], Awaitable[dict[str, Any]]]


def asked(registry: Registry, answerers: Mapping[str, Answerer]) -> list[Route]:
    """A route for each of the names."""
    return [Route(PATH + name, _route(registry, answerer), methods=["POST"]) for name, answerer in answerers.items()]


def _route(registry: Registry, answerer: Answerer) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        try:
            what = parse_json(await request.body())
        except ValueError:
            return JSONResponse({"error": "a JSON object is expected"}, status_code=400)
        answer = json.dumps(await answerer(registry, what), separators=(",", ":"), allow_nan=False)
        return Response(answer, media_type="application/json")

    return serve
