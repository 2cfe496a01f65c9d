"""What the endpoints of the public API share: limits, validation and the calls of handlers."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any

import gradio as gr
from starlette.requests import Request

from playground.common.validation import parse
from playground.errors import UserError, raise_for_error
from playground.jobs.admission import CLIENT_ADDRESS, Client
from playground.models.config_fields import ConfigError, short_repr
from playground.runs.access import (
    CHECKPOINT_PREFIX,
    NOT_FOUND,
    RUN_PREFIX,
    SHARE_PREFIX,
    Access,
    ModelRef,
    Right,
    require,
)
from playground.runs.registry import Registry

from ..client import resolve_client_address
from ..origin import is_own_origin
from ..rate_limit import RateLimiter
from ..routes import Handler
from ..schemas.public_api import MODEL_ARGUMENTS, call_type

Method = Callable[..., Coroutine[Any, Any, dict[str, Any]]]


def endpoint(kind: str = "calls", needs: Right | None = None) -> Callable[[Method], Method]:
    """Decorate an endpoint: apply the rate limit of its kind, and validate its arguments.

    The signature stays: Gradio reads names, types and descriptions from it, and drops what
    `Annotated` adds to a type.

    Args:
        needs: the right that the caller needs on the model that the call names.

    Raises:
        TypeError: for a call that names a model without a right that it needs, or vice versa.
    """

    def decorate(function: Method) -> Method:
        arguments_type = call_type(function)
        names = [name for name in MODEL_ARGUMENTS if name in arguments_type.model_fields]
        if bool(names) != (needs is not None):
            raise TypeError(f"{function.__name__}: a call that names a model declares its right")
        signature = inspect.signature(function)

        @wraps(function)
        async def call(self: EndpointBase, *args: Any, **values: Any) -> dict[str, Any]:
            arguments = dict(signature.bind(self, *args, **values).arguments)
            request = starlette_request(arguments.pop("request", None))
            del arguments["self"]
            self.apply_rate_limit(request, kind)
            fields = dict(parse(arguments_type, arguments))
            if needs is not None:
                await self.require(fields[names[0]], fields["owner"], needs)
            return await function(self, **fields, request=request)

        call.call_type = arguments_type  # type: ignore[attr-defined]
        return call

    return decorate


class EndpointBase:
    """The endpoints over a registry and the handlers of the page.

    Args:
        handlers: the handlers of the page by name.
        is_public: whether the instance is shared, so calls are limited.
    """

    def __init__(
        self, registry: Registry, handlers: Mapping[str, Handler], is_public: bool
    ) -> None:
        self.registry, self.handlers = registry, handlers
        self.rate_limiter = RateLimiter.from_environment(is_public)
        self.waiting_calls: list[Client] = []  # the client of each call that waits for a job

    async def call_handler(
        self, name: str, payload: dict[str, Any], request: Request
    ) -> dict[str, Any]:
        """Return the response of a handler of the page.

        Raises:
            UserError: with the error of the response.
        """
        response: dict[str, Any] = await self.handlers[name](payload, request)
        return raise_for_error(response)

    def owner_key(self, owner: str) -> str:
        """Return the given key, or the key of a local instance, or an empty string."""
        return owner or self.registry.single_owner

    def model_ref(self, model: str, owner: str) -> ModelRef:
        """Return the reference of a model name."""
        name = model.strip()
        has_prefix = name.startswith((RUN_PREFIX, SHARE_PREFIX, CHECKPOINT_PREFIX))
        return ModelRef(
            subject=name if has_prefix else RUN_PREFIX + name, owner=self.owner_key(owner)
        )

    async def require(self, model: str, owner: str, right: Right) -> Access:
        """Return a model on which the caller holds a right.

        Raises:
            UserError: for an unknown model, a run of another owner, or a caller who may do less.
        """
        try:
            ref = self.model_ref(model, owner)
            return await asyncio.to_thread(require, self.registry, ref, right)
        except UserError as error:
            if error.code != NOT_FOUND:
                raise
            raise UserError(not_found_message(model)) from None

    def apply_rate_limit(self, request: Request, kind: str = "calls") -> None:
        """Apply the rate limit to a call of this client.

        Raises:
            UserError: for too many calls, and for requests from pages of other sites, because
                browsers send them with the user's cookies.
        """
        client = resolve_client_address(request)
        CLIENT_ADDRESS.set(client)  # Gradio runs some calls outside of the request
        if not is_own_origin(request.headers):
            raise UserError(
                "pages of other sites are rejected; use a program or open the playground"
            )
        self.rate_limiter.acquire("calls", client)
        if kind != "calls":
            self.rate_limiter.acquire(kind, client)


def with_user_errors(endpoint_method: Method) -> Method:
    """Wrap an endpoint so that its expected errors reach the client as messages.

    Unexpected errors reach the client without their text.
    """

    @wraps(endpoint_method)
    async def wrapper(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return await endpoint_method(*args, **kwargs)
        except (UserError, ConfigError) as error:
            raise gr.Error(str(error), print_exception=False) from None

    return wrapper


def starlette_request(request: Any) -> Request:
    """Return the Starlette request; Gradio wraps it, its MCP server does not."""
    return request.request if isinstance(request, gr.Request) else request


def not_found_message(model: str) -> str:
    """Return the message for a model that does not exist for the caller."""
    return (
        f"there is no model {short_repr(model)} for you: give a run's id with the key that start "
        "returned as owner, watch:ID, or checkpoint:NAME; the models endpoint lists them"
    )


def step_field(step: int) -> dict[str, int]:
    """Return the `step` field of a request; empty for the latest."""
    return {"step": step} if step >= 0 else {}


def omit(response: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a response without some fields."""
    return {name: value for name, value in response.items() if name not in names}
