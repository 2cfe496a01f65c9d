"""The types of the arguments of the public API."""

from collections.abc import Callable
from inspect import signature
from typing import Annotated, Any, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Field, create_model

from playground.runs.owner_keys import OWNER_KEY_PATTERN

from .base import MAX_INT, JsonObject, RequestBody, whole_number

MAX_WAIT_S = 240.0  # of compare, push and job


def _parse_owner(value: object) -> object:
    """Return the owner key, or an empty string for none.

    The key is secret, so the error message does not contain the value.
    """
    if value in ("", None):
        return ""
    if not isinstance(value, str) or not OWNER_KEY_PATTERN.fullmatch(value):
        raise ValueError("owner is not an owner key; pass the key that start returned, or omit it")
    return value


Owner = Annotated[str, BeforeValidator(_parse_owner)]
# The bounds come first: the JSON schema, and so a message, has no bounds behind a validator.
Step = Annotated[int, Field(ge=-1, le=MAX_INT), BeforeValidator(whole_number)]
EvalSize = Annotated[int, Field(ge=1, le=2000), BeforeValidator(whole_number)]
BenchmarkSize = Annotated[int, Field(ge=1, le=500), BeforeValidator(whole_number)]
Shots = Annotated[int, Field(ge=0, le=32), BeforeValidator(whole_number)]
JobId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        json_schema_extra={"accepts": "the job that compare or push returned"},
    ),
]
Seconds = Annotated[
    float,
    Field(
        ge=0,
        le=MAX_WAIT_S,
        json_schema_extra={"accepts": f"a number of seconds from 0 to {MAX_WAIT_S:g}"},
    ),
]

Settings = Annotated[
    JsonObject | None,
    Field(json_schema_extra={"accepts": 'a JSON object of settings, such as {"task": "copy"}'}),
]
MODEL_ARGUMENTS = ("model", "run")  # the arguments that name a model


class Call(RequestBody):
    """The arguments of a call; an unknown argument is an error."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


def call_type(function: Callable[..., Any]) -> type[Call]:
    """Return the model of the arguments of an endpoint, with the names of its signature."""
    types = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        name: (types[name], ... if each.default is each.empty else each.default)
        for name, each in signature(function).parameters.items()
        if name not in ("self", "request")
    }
    return create_model(function.__name__, __base__=Call, **fields)
