"""Write the responses of the JSON routes as types of the page's scripts.

    python -m scripts.write_response_types

The file is ui/static/shared/responses.d.ts. A test compares both.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, is_typeddict

import playground.server.app  # noqa: F401  it imports every route
from playground.lessons.service import LessonResult
from playground.server.routes import RESPONSE_TYPES
from playground.server.schemas.responses import ErrorResponse, RunStatus
from playground.ui.page import STATIC_DIR

FILE = STATIC_DIR / "shared" / "responses.d.ts"
ROOTS = (ErrorResponse, LessonResult, *(RESPONSE_TYPES[route] for route in sorted(RESPONSE_TYPES)))
HEADER = """\
// The responses of the server. `python -m scripts.write_response_types` writes this file.
"""
NAMES = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null"}


def find_types(annotation: Any) -> Iterator[type]:
    """Yield the typed dictionaries of an annotation, each after those that it needs."""
    if not is_typeddict(annotation):
        for each in get_args(annotation):
            yield from find_types(each)
        return
    for each in (base_of(annotation), *annotation.__annotations__.values()):
        yield from find_types(each)
    yield annotation


def to_typescript(annotation: Any) -> str:
    """Return an annotation as a type of TypeScript."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation == RunStatus:
        return "RunStatus"
    if annotation is Any:
        return "any"
    if origin in (UnionType, Union):
        return " | ".join(map(to_typescript, arguments))
    if origin is Literal:
        return " | ".join(map(json.dumps, arguments))
    if origin is tuple:
        return f"[{', '.join(map(to_typescript, arguments))}]"
    if origin in (dict, Mapping):
        return f"Record<string, {to_typescript(arguments[1])}>"
    if origin is list:
        member = to_typescript(arguments[0])
        return f"({member})[]" if " | " in member else f"{member}[]"
    return NAMES.get(annotation) or str(annotation.__name__)


def class_node(declaration: type) -> ast.ClassDef:
    """Return the source of a class, parsed."""
    (node,) = ast.parse(inspect.getsource(declaration)).body
    assert isinstance(node, ast.ClassDef)
    return node


def base_of(declaration: type) -> Any:
    """Return the class that a typed dictionary extends, or `TypedDict`."""
    return vars(sys.modules[declaration.__module__])[ast.unparse(class_node(declaration).bases[0])]


def find_comments(declaration: type) -> dict[str, str]:
    """Return the comment beside or above each field of a class."""
    lines, comments = inspect.getsource(declaration).splitlines(), {}
    for field in class_node(declaration).body:
        if isinstance(field, ast.AnnAssign):
            above = lines[field.lineno - 2].strip()
            beside = lines[field.lineno - 1][field.end_col_offset or 0 :].strip()
            comment = beside or (above if above.startswith("#") else "")
            comments[ast.unparse(field.target)] = comment.removeprefix("#").strip()
    return comments


def declare(declaration: type) -> str:
    """Return a typed dictionary as an interface."""
    base, comments = base_of(declaration), find_comments(declaration)
    extended = f" extends {base.__name__}" if is_typeddict(base) else ""
    text = " ".join((declaration.__doc__ or "").split())
    lines = [f"/** {text} */"] if text else []
    lines.append(f"export interface {declaration.__name__}{extended} {{")
    for name, comment in comments.items():
        annotation = declaration.__annotations__[name]
        is_optional = get_origin(annotation) is NotRequired
        type_ = to_typescript(get_args(annotation)[0] if is_optional else annotation)
        lines += [f"  /** {comment} */"] if comment else []
        lines.append(f"  {name}{'?' * is_optional}: {type_};")
    return "\n".join([*lines, "}"])


def render() -> str:
    """Return the content of the file."""
    status = " | ".join(map(json.dumps, get_args(RunStatus)))
    types = dict.fromkeys(each for root in ROOTS for each in find_types(root))
    declarations = [HEADER, f"export type RunStatus = {status};\n"]
    return "\n".join([*declarations, *(declare(each) + "\n" for each in types)])


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8")
