"""The JSON routes of the page: POST playground/api/GROUP/NAME.

They are Starlette routes, which match before those of Gradio. Gradio's server functions need much
more time per request, on the cores that also train (benchmarks/RESULTS.md, "Overhead of viewers",
measures these routes). Requests are untrusted. Pages of other sites may send requests with
the user's cookies; the middleware rejects them.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial, wraps
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from playground.common.strict_json import parse_strict_json
from playground.common.validation import parse
from playground.errors import UserError, error_response
from playground.jobs.admission import CLIENT_ADDRESS
from playground.runs.access import NOT_FOUND, Right
from playground.runs.registry import Registry

from .asgi import json_error
from .rate_limit import LoadLimits

ROUTE_PREFIX = "/playground/api/"
MAX_BRACKETS = 5000  # in JSON; nested lists take long to parse
Handler = Callable[[object, Request], Awaitable[Any]]  # the JSON, or a response with it
HandlerMethod = Callable[..., Coroutine[Any, Any, Any]]
RequestType = TypeVar("RequestType", bound=BaseModel)
RESPONSE_TYPES: dict[str, Any] = {}  # by route

# The load of a request in milliseconds (rate_limit.LoadLimits): the time of the server process.
# Requests that start a process or a job have a higher load, which limits their rate.
DEFAULT_LOAD_MS = 10.0
ROUTES_BY_LOAD_MS = {
    2: "runs/poll runs/snapshot class/poll jobs/poll",
    3: "runs/list",
    5: "runs/predict runs/curves runs/details form/check experiments/poll",
    20: "runs/action",
    50: (
        "form/start experiments/plan experiments/places experiments/presets replications/list "
        "replications/outcome replications/start datasets/action jobs/submit "
        "class/join"  # codes are not to be guessed
    ),
    100: "class/open experiments/submit",
    200: "runs/report runs/page",
}
LOAD_MS_BY_ROUTE = {name: ms for ms, names in ROUTES_BY_LOAD_MS.items() for name in names.split()}


def build_routes(handlers: Mapping[str, Handler], load: LoadLimits | None = None) -> list[Route]:
    """Return a route for each handler; `load` limits owners, the middleware limits addresses."""
    load = load or LoadLimits(0.0, 0.0)
    return [
        Route(
            ROUTE_PREFIX + name, _make_endpoint(handler, load_ms_of(name), load), methods=["POST"]
        )
        for name, handler in handlers.items()
    ]


def load_ms_of(name: str) -> float:
    return LOAD_MS_BY_ROUTE.get(name, DEFAULT_LOAD_MS)


def _make_endpoint(
    handler: Handler, load_ms: float, load: LoadLimits
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body = await request.body()
        try:
            payload = parse_body(body)
        except UserError as error:
            return json_error(error, 400)
        address = CLIENT_ADDRESS.get()
        owner = payload.get("owner") if isinstance(payload, dict) else None
        if retry_after_s := load.take_owner(owner, load_ms):
            return await load.reject(address, retry_after_s)
        response = await handler(payload, request)
        if isinstance(response, Response):
            return response
        start = time.thread_time()
        content = json.dumps(response, separators=(",", ":"), allow_nan=False)
        seconds = time.thread_time() - start + getattr(request.state, "handler_cpu_s", 0.0)
        load.add(address, owner, 1000 * seconds - load_ms)
        return Response(content, media_type="application/json")

    return endpoint


def parse_body(body: bytes) -> Any:
    """Parse the JSON of a request; raise UserError if it is malformed or has too many brackets."""
    if body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
        raise UserError(f"this JSON has more than {MAX_BRACKETS} lists and objects; send fewer")
    try:
        return parse_strict_json(body)
    except ValueError:
        raise UserError("a JSON object is expected") from None


def handler(
    route: str,
    request_type: type[RequestType],
    response_type: Any,
    needs: Right | Callable[[Any], Right | None] | None = None,
    missing: dict[str, Any] | int | None = None,
) -> Callable[[Callable[..., Any]], HandlerMethod]:
    """Decorate the handler of a route: validate its request, and return errors as a response.

    `response_type` is a typed dictionary or a union of them. Tests compare it with real responses,
    and scripts/write_response_types.py writes it for the page's scripts.

    The arguments of the handler are its context (`self` or the registry), the validated request
    and, of a request that names models, what `require` returns for it: the only way to a model.
    An argument `http_request` receives the HTTP request. A plain function runs in a thread, so it
    may block.

    Args:
        needs: the right that a request needs on the models that it names, or a function of the
            request, which returns None for a request that uses no model.
        missing: the response for a model that does not exist, or the status of the error.

    Raises TypeError for a request that names models without a right that it needs, or vice versa.
    """
    if hasattr(request_type, "require") != (needs is not None):
        raise TypeError(f"{route}: a request that names a model declares the right that it needs")

    async def find_model(context: Any, request: Any) -> Any:
        right = needs(request) if callable(needs) else needs
        if right is None:
            return None
        registry = getattr(context, "registry", context)
        if request.reads_disk:
            return await asyncio.to_thread(request.require, registry, right)
        return request.require(registry, right)

    def decorate(function: Callable[..., Any]) -> HandlerMethod:
        takes_request = "http_request" in signature(function).parameters

        def measured(*arguments: Any) -> tuple[dict[str, Any], float]:
            start = time.thread_time()
            return function(*arguments), time.thread_time() - start

        @wraps(function)
        async def respond(
            context: Any, payload: object, http_request: Request | None = None
        ) -> Any:
            try:
                request = parse(request_type, payload)
                models = () if needs is None else (await find_model(context, request),)
                arguments = (context, request, *models, *[http_request] * takes_request)
                if iscoroutinefunction(function):
                    return await function(*arguments)
                response, seconds = await asyncio.to_thread(measured, *arguments)
                if http_request is not None:
                    http_request.state.handler_cpu_s = seconds
                return response
            except (ValueError, OSError) as error:
                if missing is not None and getattr(error, "code", "") == NOT_FOUND:
                    return json_error(error, missing) if isinstance(missing, int) else missing
                return error_response(error)

        respond.route, respond.request_type = route, request_type  # type: ignore[attr-defined]
        RESPONSE_TYPES[route] = response_type
        return respond

    return decorate


def bind_handlers(context: Any, namespace: Mapping[str, Any]) -> dict[str, Handler]:
    """Return the handlers of a module or class by route name; `context` is their first argument."""
    handlers = [each for each in namespace.values() if hasattr(each, "route")]
    return {each.route: partial(each, context) for each in handlers}


class HandlerGroup:
    """A class whose methods are handlers of routes, which find models in `registry`."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def handlers(self) -> dict[str, Handler]:
        return bind_handlers(self, vars(type(self)))
