"""Where the response of a route differs from its declared type."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, is_typeddict

from playground.server.routes import RESPONSE_TYPES
from playground.server.schemas.responses import ErrorResponse

JSON_TYPES = {str: str, int: int, float: int | float, bool: bool, NoneType: NoneType}


def problems(value, declared, path: str) -> list[str]:
    """Return where a JSON value differs from a declared type."""
    origin, arguments = get_origin(declared), get_args(declared)
    if declared is Any:
        return []
    if is_typeddict(declared):
        return object_problems(value, declared, path)
    if origin in (UnionType, Union):
        return min((problems(value, each, path) for each in arguments), key=len)
    if origin is NotRequired:
        return problems(value, arguments[0], path)
    if origin is Literal:
        return [] if value in arguments else [f"{path} is {value!r:.60}, not {declared}"]
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            return [f"{path} is no object"]
        members = {f"{path}.{key}": (each, arguments[1]) for key, each in value.items()}
    elif origin in (list, tuple):
        if not isinstance(value, list):
            return [f"{path} is no list"]
        types = arguments * len(value) if origin is list else arguments
        if len(types) != len(value):
            return [f"{path} is not {declared}"]
        members = {f"{path}[{i}]": each for i, each in enumerate(zip(value, types, strict=True))}
    elif isinstance(value, JSON_TYPES[declared]) and (declared is bool) == isinstance(value, bool):
        return []
    else:
        return [f"{path} is {value!r:.60}, not {declared.__name__}"]
    return [p for at, (each, type_) in members.items() for p in problems(each, type_, at)]


def object_problems(value, declared, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path} is no object"]
    types = declared.__annotations__
    required = {name for name, each in types.items() if get_origin(each) is not NotRequired}
    return [
        *(f"{path}.{name} is missing" for name in sorted(required - set(value))),
        *(f"{path}.{name} is not declared" for name in sorted(set(value) - set(types))),
        *(
            problem
            for name in value.keys() & types
            for problem in problems(value[name], types[name], f"{path}.{name}")
        ),
    ]


def route_problems(route: str, response) -> list[str]:
    """Return where a response differs from the type of its route or, as an error, of errors."""
    differences = problems(response, RESPONSE_TYPES[route], route)
    if not differences or not response.get("error"):
        return differences
    names = ErrorResponse.__annotations__
    known = {name: each for name, each in response.items() if name in names}
    return problems(known, ErrorResponse, route)
