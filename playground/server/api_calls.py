"""What the endpoints of the public API share: types of arguments, limits, and conversions."""

import asyncio
import base64
import inspect
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Annotated, Any, get_type_hints

import gradio as gr
import numpy as np
from gradio.utils import get_function_description
from pydantic import BeforeValidator, ConfigDict, Field, create_model
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
from playground.runs.owner_keys import OWNER_KEY_PATTERN
from playground.runs.registry import Registry

from .client import resolve_client_address
from .rate_limit import RateLimiter
from .routes import Handler
from .schemas.base import MAX_INT, JsonObject, Name, RequestBody, Sequence, Token, whole_number

MAX_WEIGHTS = 200_000  # weights in one response
MAX_WAIT_S = 240.0  # of compare, push and job
MODEL_ARGUMENTS = ("model", "run")  # the arguments that name a model
Method = Callable[..., Coroutine[Any, Any, dict[str, Any]]]


def _parse_owner(value: object) -> object:
    """Return the owner key, or an empty string for none.

    The key is secret, so the error message does not contain the value.
    """
    if value in ("", None):
        return ""
    if not isinstance(value, str) or not OWNER_KEY_PATTERN.fullmatch(value):
        raise ValueError("owner is not an owner key; pass the key that start returned, or omit it")
    return value


def _argument(type_: Any, description: str, *examples: Any, **limits: Any) -> Any:
    """Return the type of an argument with its text, and its value in the example programs."""
    return Annotated[type_, Field(description=description, examples=list(examples), **limits)]


def _number(description: str, low: int, high: int, *examples: int) -> Any:
    # The bounds come first: the JSON schema, and so a message, has no bounds behind a validator.
    bounds = Field(ge=low, le=high, description=description, examples=list(examples))
    return Annotated[int, bounds, BeforeValidator(whole_number)]


# The types of the arguments. Words in capitals stand for values of the user.
Model = _argument(Name, "a run's id, watch:ID, or checkpoint:NAME.", "checkpoint:reverse")
RunId = _argument(Name, "the run's id.", "RUN")
Tokens = _argument(Sequence, 'tokens of the model\'s task, such as "3 1 4".', "3 1 4")
OwnerKey = Annotated[str, BeforeValidator(_parse_owner)]
Owner = _argument(OwnerKey, "the key that start returned, for a run's id.")
RunOwner = _argument(OwnerKey, "the key that start returned.", "OWNER")
JobCaller = _argument(OwnerKey, "the key that start returned; without it, a new key for the job.")
JobOwner = _argument(OwnerKey, "the owner that it returned.", "OWNER")
Step = _number(
    "use the recorded weights nearest to this step of a run; -1 for the latest.", -1, MAX_INT
)
Layer = _number("a layer index from 0; -1 for all.", -1, MAX_INT, 0)
Head = _number("a head index from 0; -1 for all.", -1, MAX_INT, 0)
EvalSize = _number(
    "number of sequences, from 1 to 2000, spread over the training lengths.", 1, 2000, 100
)
BenchmarkSize = _number(
    "number of sequences, from 1 to 500; at most 40 on a shared instance.", 1, 500
)
Shots = _number("few-shot examples in a prompt, from 0 to 32.", 0, 32)
Repository = _argument(
    Name, "the repository on the Hub, user/name; created if it does not exist.", "USER/NAME"
)
WriteToken = _argument(
    Token, "a write token, not stored; locally the default is the token of hf auth login.", "TOKEN"
)
JobId = _argument(
    str,
    "the job that compare or push returned.",
    "JOB",
    min_length=1,
    max_length=200,
    json_schema_extra={"accepts": "the job that compare or push returned"},
)
Seconds = _argument(
    float,
    "seconds to wait for the end, up to 240; then use the job endpoint.",
    ge=0,
    le=MAX_WAIT_S,
    json_schema_extra={"accepts": f"a number of seconds from 0 to {MAX_WAIT_S:g}"},
)
Settings = _argument(
    JsonObject | None,
    'non-default settings by name, such as {"task": "reverse", "max_steps": 300}.',
    {"task": "reverse", "max_steps": 300},
    json_schema_extra={"accepts": 'a JSON object of settings, such as {"task": "copy"}'},
)


class Call(RequestBody):
    """The arguments of a call; an unknown argument is an error."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


def _call_type(function: Method) -> type[Call]:
    """Return the model of the arguments of an endpoint, with the names of its signature."""
    types = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        name: (types[name], ... if each.default is each.empty else each.default)
        for name, each in inspect.signature(function).parameters.items()
        if name not in ("self", "request")
    }
    return create_model(function.__name__, __base__=Call, **fields)


def _documentation(function: Method, arguments_type: type[Call]) -> str:
    """Return the docstring for Gradio, with a line for each argument."""
    description, texts, returns = get_function_description(function)
    arguments = [
        f"    {name}: {texts[name] or field.description}"
        for name, field in arguments_type.model_fields.items()
    ]
    heading = ["", "Args:"] if arguments else []
    return "\n".join([description, *heading, *arguments, "", "Returns:", *returns])


def endpoint(kind: str = "calls", needs: Right | None = None) -> Callable[[Method], Method]:
    """Decorate an endpoint: apply the rate limit of its kind, and validate its arguments.

    The signature stays: Gradio reads names and types from it, and drops what `Annotated` adds to a
    type. The docstring gets the descriptions of the arguments that it lacks from their types.

    Args:
        needs: the right that the caller needs on the model that the call names.

    Raises:
        TypeError: for a call that names a model without a right that it needs, or vice versa.
    """

    def decorate(function: Method) -> Method:
        arguments_type = _call_type(function)
        names = [name for name in MODEL_ARGUMENTS if name in arguments_type.model_fields]
        if bool(names) != (needs is not None):
            raise TypeError(f"{function.__name__}: a call that names a model declares its right")
        signature = inspect.signature(function)

        @wraps(function)
        async def call(self: EndpointBase, *args: Any, **values: Any) -> dict[str, Any]:
            arguments = dict(signature.bind(self, *args, **values).arguments)
            request = arguments.pop("request", None)
            # Gradio wraps the request, its MCP server does not.
            request = request.request if isinstance(request, gr.Request) else request
            del arguments["self"]
            self.apply_rate_limit(request, kind)
            fields = dict(parse(arguments_type, arguments))
            if needs is not None:
                await self.require(fields[names[0]], fields["owner"], needs)
            return await function(self, **fields, request=request)

        call.__doc__ = _documentation(function, arguments_type)
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

    def model_fields(self, model: str, owner: str, step: int = -1) -> dict[str, Any]:
        """Return the fields of a request about a model, at the latest step for -1."""
        ref = self.model_ref(model, owner).model_dump()
        return ref | ({"step": step} if step >= 0 else {})

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
            UserError: for too many calls.
        """
        client = resolve_client_address(request)
        CLIENT_ADDRESS.set(client)  # Gradio runs some calls outside of the request
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


def not_found_message(model: str) -> str:
    """Return the message for a model that does not exist for the caller."""
    return (
        f"there is no model {short_repr(model)} for you: give a run's id with the key that start "
        "returned as owner, watch:ID, or checkpoint:NAME; the models endpoint lists them"
    )


def select_indices(name: str, index: int, count: int) -> list[int]:
    """Return the selected index as a list, or all indices for -1.

    Raises:
        UserError: if the model has no such index.
    """
    if index >= count:
        raise UserError(f"{name} is {index}; give a whole number from -1 to {count - 1}")
    return [index] if index >= 0 else list(range(count))


def decode_weights(
    response: dict[str, Any], layers: list[int], heads: list[int]
) -> list[list[list[list[float]]]]:
    """Return the attention weights of a view as weights[layer][head][row][column].

    Raises:
        UserError: if there are too many.
    """
    n_rows, n_columns = len(response["rows"]), len(response["columns"])
    if len(layers) * len(heads) * n_rows * n_columns > MAX_WEIGHTS:
        raise UserError(
            f"the response exceeds {MAX_WEIGHTS:,} weights; request one layer or one head"
        )
    thousandths = np.frombuffer(base64.b64decode(response["weights"]), np.int16)
    weights_LHRC = thousandths.reshape(-1, response["heads"], n_rows, n_columns) / 1000
    selected: list[list[list[list[float]]]] = weights_LHRC[layers][:, heads].tolist()
    return selected


def rename_path_keys(value: Any) -> Any:
    """Rename the key `path` to `file` in a result.

    gradio_client downloads every dictionary with a `path`.
    """
    if isinstance(value, dict):
        return {
            "file" if key == "path" else key: rename_path_keys(item) for key, item in value.items()
        }
    return [rename_path_keys(each) for each in value] if isinstance(value, list | tuple) else value
