"""Validation with pydantic models: of untrusted values, with messages, and of definitions.

A message names the field, its value and what is accepted: `n is 900; give a whole number from 1 to
500`. The accepted values come from the JSON schema of the model, so no model writes messages. A
field whose type is too general describes its values with `json_schema_extra={"accepts": "a name on
the Hub"}`.
"""

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from playground.errors import UserError
from playground.models.config_fields import format_number, short_repr

Model = TypeVar("Model", bound=BaseModel)


class Definition(BaseModel):
    """One entry of a TOML file of the package: a table of fields for each name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_definitions(path: Path, kind: type[Model]) -> dict[str, Model]:
    """Return the definitions of a file, by name."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: kind.model_validate(fields) for name, fields in tables.items()}


def parse(model_type: type[Model], values: object) -> Model:
    """Return untrusted values as a model.

    Raises UserError for the first invalid field, which it names.
    """
    try:
        return model_type.model_validate(values)
    except ValidationError as error:
        message, field = describe(error, model_type)
        raise UserError(message, field=field) from None


def describe(error: ValidationError, model_type: type[BaseModel]) -> tuple[str, str]:
    """Return the message about the first invalid field, and the name of that field."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    root = _json_schema(model_type)
    name, schema = _find_field(root, first["loc"])
    value, kind = first["input"], first["type"]
    if isinstance(cause, ValueError):  # a validator of the model raised it
        return str(cause), getattr(cause, "field", "") or name
    if kind == "extra_forbidden":
        unknown = first["loc"][-1]
        fields = ", ".join(schema.get("properties", ()))
        return f"{short_repr(unknown)} is not a field; the fields are {fields}", str(unknown)
    if kind == "missing":
        problem = "is missing"
    elif kind in ("string_too_long", "too_long"):
        unit = "characters" if isinstance(value, str) else "values"
        problem = f"has {len(value):,} {unit}"
    else:
        problem = f"is {short_repr(value)}"
    return f"{name or 'the value'} {problem}; {_accepted(schema, root) or first['msg']}", name


@lru_cache(maxsize=64)
def _json_schema(model_type: type[BaseModel]) -> dict[str, Any]:
    return model_type.model_json_schema()


def _find_field(root: dict[str, Any], path: tuple[int | str, ...]) -> tuple[str, dict[str, Any]]:
    """Return the name of the field at the path of an error, and its schema.

    Parts of the path that are no field, such as the member of a union, are left out.
    """
    name, schema = "", _expand(root, root)
    for part in path:
        if isinstance(part, int):
            items = schema.get("prefixItems", [])
            inner = items[part] if part < len(items) else schema.get("items")
        else:
            inner = schema.get("properties", {}).get(part) or schema.get("additionalProperties")
        if not isinstance(inner, dict):
            break
        name += f"[{part}]" if isinstance(part, int) else f"{'.' if name else ''}{part[:80]}"
        schema = _expand(inner, root)
    return name, schema


def _expand(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its reference resolved, and without the null of an optional value."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(options) != 1:
        return schema
    return _expand(options[0], root) | {k: v for k, v in schema.items() if k != "anyOf"}


def _accepted(schema: dict[str, Any], root: dict[str, Any]) -> str:
    """Return what a field accepts, as the end of a message; empty if the schema has none."""
    if choices := schema.get("enum") or [schema[key] for key in ("const",) if key in schema]:
        return f"choose one of {', '.join(map(str, choices))}"
    options = [_expand(each, root) for each in schema.get("anyOf", [schema])]
    accepted = [text for text in map(_values, options) if text]
    return f"give {' or '.join(accepted)}" if accepted else ""


def _values(schema: dict[str, Any]) -> str:
    """Return the values of a type, such as `a whole number from 1 to 500`."""
    if "accepts" in schema:
        return str(schema["accepts"])
    if schema.get("type") in ("integer", "number"):
        noun = "a whole number" if schema["type"] == "integer" else "a number"
        return noun + _range(schema.get("minimum"), schema.get("maximum"), " from")
    if schema.get("type") == "string":
        return "a text" + _range(
            schema.get("minLength"), schema.get("maxLength"), " of", " characters"
        )
    if schema.get("type") == "array":
        return "a list" + _range(schema.get("minItems"), schema.get("maxItems"), " of", " values")
    others = {"boolean": "true or false", "object": "an object of names and values"}
    return others.get(schema.get("type", ""), "")


def _range(low: float | None, high: float | None, preposition: str, unit: str = "") -> str:
    """Return the range of a number or of a length; empty if there are no bounds."""
    if low is not None and high is not None:
        return f"{preposition} {format_number(low)} to {format_number(high)}{unit}"
    if low is not None:
        return f" of at least {format_number(low)}{unit}"
    return "" if high is None else f" of at most {format_number(high)}{unit}"
