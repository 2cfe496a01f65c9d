"""Calls of the public API: arguments, rights and rate limits, and their form for Gradio."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

import gradio as gr
from pydantic import BeforeValidator, ConfigDict, Field, create_model, field_validator
from starlette.requests import Request

from playground.common.validation import parse
from playground.errors import UserError, raise_for_error
from playground.jobs.admission import CLIENT_ADDRESS, Client, limit
from playground.models.config_fields import ConfigError, short_repr
from playground.pretrained.benchmark.export import latest_rows
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
from playground.runs.owner_keys import new_owner_key, valid_owner_key
from playground.runs.registry import Registry

from .client import resolve_client_address
from .rate_limit import LoadLimits, busy
from .routes import Handler
from .schemas.base import RequestBody, whole_number

POLL_INTERVAL_S = 0.25  # of a job
Result = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., Awaitable[dict[str, Any]]])
ENDPOINTS: dict[str, type["Endpoint"]] = {}  # by name


def has_mcp() -> bool:
    """Return whether the endpoints can be served as MCP tools."""
    return find_spec("mcp") is not None


def _parse_owner(value: object) -> str:
    """Return the owner key, or an empty string for none; no message repeats the secret value."""
    key = valid_owner_key(value)
    if not key and value not in ("", None):
        raise ValueError("owner is not an owner key; pass the key that start returned, or omit it")
    return key


def text(description: str, *examples: Any, **limits: Any) -> Any:
    """Return the text and limits of an argument, with its value in the example programs."""
    return Field(description=description, examples=list(examples), **limits)


OwnerKey = Annotated[str, BeforeValidator(_parse_owner)]


class Endpoint(RequestBody):
    """The arguments of an endpoint; unknown ones are an error."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    function: ClassVar[Callable[..., Awaitable[Result]]]
    load: ClassVar[float]
    needs: ClassVar[Right | None]

    whole_numbers = field_validator("*", mode="before")(whole_number)

    @classmethod
    def texts(cls) -> tuple[str, str]:
        description, _, result = (inspect.getdoc(cls.function) or "").partition("\n\nReturns:")
        return " ".join(description.split()), " ".join(result.split())


def endpoint(load: float = 0.0, needs: Right | None = None) -> Callable[[Function], Function]:
    """Decorate an endpoint of the public API: a function of the call and of its arguments.

    The call has the model, owner and step of the arguments too. The last paragraph of the docstring
    describes the result.

    Args:
        load: what a call costs an address beyond its request, in milliseconds (rate_limit.py).
        needs: the right that the caller needs on the model that the call names.

    Raises TypeError for a call that names a model without a right that it needs, or vice versa.
    """

    def decorate(function: Function) -> Function:
        name, (_, *parameters) = function.__name__, inspect.signature(function).parameters.values()
        fields: dict[str, Any] = {
            each.name: (each.annotation, ... if each.default is each.empty else each.default)
            for each in parameters
        }
        if bool({"model", "run"} & set(fields)) != (needs is not None):
            raise TypeError(f"{name}: a call that names a model declares its right")
        arguments = create_model(name, __base__=Endpoint, **fields)
        arguments.function, arguments.load, arguments.needs = staticmethod(function), load, needs
        ENDPOINTS[name] = arguments
        return function

    return decorate


@dataclass
class Call:
    """A call of an endpoint: its client, and the model that it names.

    owner   the key of the caller, by default that of a local instance; "" without one
    fields  the fields of a request about the model
    access  the model with the right of the caller
    """

    site: "Endpoints"
    request: Request
    owner: str
    fields: Mapping[str, Any]
    access: Access

    async def send(self, handler: str, **fields: Any) -> Result:
        """Return the response of a handler of the page; raise UserError with its error."""
        payload = {**self.fields, "owner": self.owner, **fields}
        return raise_for_error(await self.site.handlers[handler](payload, self.request))

    async def run_job(self, kind: str, fields: Mapping[str, Any], wait: float) -> Result:
        self.owner = self.owner or new_owner_key()
        response = await self.send("jobs/submit", kind=kind, request=fields)
        return await self.wait_for_job(response["job"], wait)

    async def wait_for_job(self, job: str, seconds: float) -> Result:
        """Return the status of a job when it ends, or after `seconds`."""
        client = Client(CLIENT_ADDRESS.get())
        waiting_calls = self.site.waiting_calls
        may_wait = not limit("waiting-calls").exceeded(client, waiting_calls)
        deadline = time.monotonic() + seconds * may_wait
        waiting_calls.append(client)
        try:
            while True:
                response = await self.send("jobs/poll", job=job)
                if response["status"] not in ("waiting", "working") or time.monotonic() >= deadline:
                    break
                await asyncio.sleep(POLL_INTERVAL_S)
        finally:
            waiting_calls.remove(client)
        names = ["status", "message", "retryable"]
        result = {"job": job, "owner": self.owner, "result": _without_paths(response["result"])}
        if response["kind"] == "benchmark":
            names += ["done", "total"]
            result["rows"] = latest_rows(response["rows"])
        return result | {name: response[name] for name in names}


def _without_paths(value: Any) -> Any:
    """Rename the key `path` to `file`: gradio_client downloads every dictionary with a `path`."""
    if isinstance(value, dict):
        return {
            "file" if key == "path" else key: _without_paths(item) for key, item in value.items()
        }
    return [_without_paths(each) for each in value] if isinstance(value, list | tuple) else value


class Endpoints:
    """The endpoints over a registry and the handlers of the page."""

    def __init__(
        self, registry: Registry, handlers: Mapping[str, Handler], load: LoadLimits
    ) -> None:
        self.registry, self.handlers, self.load = registry, handlers, load
        self.waiting_calls: list[Client] = []  # the client of each call that waits for a job

    def register(self) -> None:
        """Add the endpoints to the page under construction."""
        if has_mcp():
            from . import mcp_server

            mcp_server.install()
        for name in ENDPOINTS:
            gr.api(self._gradio_function(name), api_name=name, queue=False)

    async def call(self, name: str, request: Request, arguments: Mapping[str, Any]) -> Result:
        """Return the response of an endpoint, or raise UserError."""
        client = resolve_client_address(request)
        CLIENT_ADDRESS.set(client)  # Gradio runs some calls outside of the request
        if seconds := self.load.take_address(client, ENDPOINTS[name].load):
            raise busy(seconds)
        checked = parse(ENDPOINTS[name], arguments)
        owner = getattr(checked, "owner", "") or self.registry.single_owner
        call = Call(self, request, owner, {}, Access(Right.WATCH))
        if checked.needs is not None:
            model = getattr(checked, "model", "") or getattr(checked, "run", "")
            step = getattr(checked, "step", -1)
            call.access, subject = await self._require(model, owner, checked.needs)
            call.fields = {"subject": subject} | ({"step": step} if step >= 0 else {})
        return await checked.function(call, **dict(checked))

    async def _require(self, model: str, owner: str, right: Right) -> tuple[Access, str]:
        name = model.strip()
        has_prefix = name.startswith((RUN_PREFIX, SHARE_PREFIX, CHECKPOINT_PREFIX))
        ref = ModelRef(subject=name if has_prefix else RUN_PREFIX + name, owner=owner)
        try:
            return await asyncio.to_thread(require, self.registry, ref, right), ref.subject
        except UserError as error:
            if error.code != NOT_FOUND:
                raise
            raise UserError(
                f"there is no model {short_repr(model)} for you: give a run's id with the key that "
                "start returned as owner, watch:ID, or checkpoint:NAME; the models endpoint lists "
                "them"
            ) from None

    def _gradio_function(self, name: str) -> Callable[..., Coroutine[Any, Any, Result]]:
        """Return an endpoint as a function, from whose signature and docstring Gradio reads.

        Unexpected errors reach the client without their text.
        """
        fields, function = ENDPOINTS[name].model_fields, ENDPOINTS[name].function
        types = get_type_hints(function) | {"request": gr.Request}
        del types["call"]
        _, *parameters = inspect.signature(function).parameters.values()
        last = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
        signature = inspect.Signature([*parameters, last], return_annotation=Result)

        async def respond(*args: Any, **kwargs: Any) -> Result:
            arguments = dict(signature.bind(*args, **kwargs).arguments)
            request = arguments.pop("request", None)
            # Gradio wraps the request, its MCP server does not.
            request = request.request if isinstance(request, gr.Request) else request
            try:
                return await self.call(name, request, arguments)
            except (UserError, ConfigError) as error:
                raise gr.Error(str(error), print_exception=False) from None

        description, result = ENDPOINTS[name].texts()
        texts = (f"    {each}: {field.description}" for each, field in fields.items())
        respond.__doc__ = "\n".join([description, "Args:", *texts, "Returns:", result])
        respond.__signature__ = signature  # type: ignore[attr-defined]
        respond.__annotations__ = types
        respond.__name__ = name
        return respond
