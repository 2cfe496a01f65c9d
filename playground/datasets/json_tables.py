"""Tables in JSON and JSON Lines, and the cells of nested values."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import Any

from .pairs import DatasetError
from .tables import (
    MAX_COLUMNS,
    MAX_NAME_LENGTH,
    MAX_SAMPLE_ROWS,
    Row,
    Table,
    clean_name,
    text_lines,
)

MAX_DEPTH = 32
USER_ROLES = ("user", "human")  # of chats; the answer follows


def json_table(text: str, name: str, encoding: str) -> Table | None:
    """Return the table of JSON or JSON Lines; None for another text. Raises DatasetError."""
    is_named_json = name.lower().endswith((".json", ".jsonl", ".ndjson"))
    if not is_named_json and not re.match(r"\s*+[\[{]", text):
        return None
    content = _parse_json(text)
    if content is not None:
        rows = _find_rows(content)
        if not any(isinstance(row, dict) for row in rows[:MAX_SAMPLE_ROWS]):
            raise DatasetError(
                "this JSON has no list of rows; write a list of objects, or one object on each line"
            )
        return _object_table("JSON", lambda: enumerate(rows, start=1), encoding)
    sample = [row for _, row in islice(_json_lines(text), MAX_SAMPLE_ROWS)]
    if 2 * sum(isinstance(row, dict) for row in sample) > len(sample):
        return _object_table("JSON Lines", lambda: _json_lines(text), encoding)
    if not is_named_json and not re.match(r'\s*+(\{\s*+"|\[\s*+["\[{])', text):
        return None
    raise DatasetError(f"this JSON cannot be read: {_json_problem(text)}; correct the file")


def _json_lines(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each line; a comma may end it."""
    for number, line in enumerate(text_lines(text), start=1):
        if stripped := line.strip().rstrip(","):
            yield number, _parse_json(stripped)


def _parse_json(text: str) -> Any:
    """Parse JSON whose numbers stay as written; return None for other text."""
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=float)
    except (ValueError, RecursionError):
        return None


def _json_problem(text: str) -> str:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"{error.msg[:1].lower()}{error.msg[1:]} in line {error.lineno:,}"
    except (ValueError, RecursionError):
        pass
    return "its values are nested too deeply"


def _find_rows(content: Any) -> list[Any]:
    """Return the rows of JSON: a list, the only list of objects in an object, or that object."""
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        return []
    lists = {
        key: value
        for key, value in content.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    }
    if len(lists) > 1:
        names = ", ".join(f"{key[:40]} ({len(lists[key]):,})" for key in list(lists)[:5])
        raise DatasetError(f"this JSON has several lists of rows: {names}; write one of them")
    return next(iter(lists.values()), [content] if content else [])


def _object_table(
    kind: str, objects: Callable[[], Iterable[tuple[int, Any]]], encoding: str
) -> Table:
    """Return the table of objects; the columns are the keys of the first ones."""
    sample = (row for _, row in islice(objects(), MAX_SAMPLE_ROWS))
    columns = collect_columns(row for row in sample if isinstance(row, dict))

    def rows(selected: Sequence[str]) -> Iterator[Row]:
        for number, row in objects():
            if isinstance(row, dict):
                cells = flatten(row)
                yield number, [cells.get(name) for name in selected]
            else:
                yield number, "is no JSON object"

    return Table(kind, columns, rows, encoding)


def collect_columns(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the columns of rows, in the order of their first occurrence."""
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(flatten(row))
        if len(columns) > MAX_COLUMNS:
            raise DatasetError(
                f"there are more than {MAX_COLUMNS:,} columns; keep those of sources and targets"
            )
    return tuple(columns)


def flatten(row: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the cells of an object: nested names are joined by dots, tokens by blanks.

    The messages of a chat give the columns `NAME.user` and `NAME.assistant`.
    """
    cells: dict[str, str | None] = {}
    stack = [("", row, 0)]
    while stack:
        prefix, value, depth = stack.pop()
        if isinstance(value, list):
            value = _first_messages(value) or value
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            stack += [
                (_join(prefix, key), each, depth + 1) for key, each in reversed([*value.items()])
            ]
        elif prefix in cells:
            raise DatasetError(f"a row has two columns {prefix[:40]}; rename one of them")
        else:
            cells[prefix] = _cell(value)
    return cells


def _join(prefix: str, name: Any) -> str:
    return clean_name(f"{prefix}.{str(name)[:MAX_NAME_LENGTH]}").removeprefix(".")


def _first_messages(messages: Sequence[Any]) -> dict[str, Any] | None:
    """Return the first question and what answers it, by role; None if this is no chat.

    A system message before the question counts; a greeting before it, or a later turn, does not.
    """
    for role, content in (("role", "content"), ("from", "value")):
        if all(isinstance(each, Mapping) and {role, content} <= each.keys() for each in messages):
            roles = [str(each[role]) for each in messages]
            is_user = [each.lower() in USER_ROLES for each in roles]
            start = is_user.index(True) if True in is_user else 0
            texts: dict[str, Any] = {}
            for i in range(start, len(messages)):
                if is_user[i] and texts.keys() - {roles[i]}:
                    break  # the next turn
                if is_user[i] or roles[i] not in texts:  # the last question before the answer
                    texts[roles[i]] = messages[i][content]
            system = {roles[i]: messages[i][content] for i in range(start) if roles[i] == "system"}
            return texts | system
    return None


def _cell(value: Any) -> str | None:
    """Return the text of a value, a list of words joined by blanks; None for anything else."""
    if isinstance(value, list):
        words = [_scalar(each) for each in value]
        return None if None in words else " ".join(word for word in words if word) or None
    return _scalar(value)


def _scalar(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return None  # a missing number
    return str(value) if isinstance(value, int | float | date | Decimal) else None
