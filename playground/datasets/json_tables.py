"""Tables in JSON and JSON Lines, and the cells of nested values."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from .pairs import DatasetError
from .tables import (
    MAX_SAMPLE_ROWS,
    Row,
    Table,
    has_row_of_names,
    numbered_names,
    text_lines,
    unique_names,
    usual_width,
    width_problem,
)

MAX_DEPTH = 32


def json_table(text: str, name: str, encoding: str, has_names: bool | None) -> Table | None:
    """Return the table of JSON or JSON Lines; None for another text.

    Raises:
        DatasetError: for JSON without rows.
    """
    is_named_json = name.lower().endswith((".json", ".jsonl", ".ndjson"))
    if not is_named_json and not re.match(r"\s*+(\{|\[\s*+[\[{])", text):
        return None
    first_lines = list(islice((line for line in text_lines(text) if line.strip()), 2))
    if len(first_lines) == 2 and isinstance(_parse_json(first_lines[0]), dict):
        return _json_lines(text, encoding)
    content = _parse_json(text)
    if content is None and not is_named_json:
        return None
    rows = _find_rows(content)
    if not rows:
        raise DatasetError(
            "this JSON has no list of rows; write a list of objects, or one object on each line"
        )
    if all(isinstance(row, list) for row in rows[:MAX_SAMPLE_ROWS]):
        return _list_table(rows, encoding, has_names)
    return _object_table("JSON", lambda: enumerate(rows, start=1), encoding)


def _json_lines(text: str, encoding: str) -> Table:
    def objects() -> Iterator[tuple[int, Any]]:
        for number, line in enumerate(text_lines(text), start=1):
            if line.strip():
                yield number, _parse_json(line)

    return _object_table("JSON Lines", objects, encoding)


def _parse_json(text: str) -> Any:
    """Parse JSON whose numbers stay as written; return None for other text."""
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None


def _find_rows(content: Any) -> list[Any]:
    """Return the rows of JSON: a list, the only list of an object, an object of columns, or one."""
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        return []
    columns = {key: value for key, value in content.items() if isinstance(value, list)}
    if len(columns) < 2:
        return next(iter(columns.values()), [content] if content else [])
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=False)]


def _list_table(rows: Sequence[Any], encoding: str, has_names: bool | None) -> Table:
    cells = [[_cell(value) or "" for value in row] for row in rows if isinstance(row, list)]
    width = usual_width(cells[:MAX_SAMPLE_ROWS])
    full = [row for row in cells[:MAX_SAMPLE_ROWS] if len(row) == width]
    first = full[0] if full else []
    if has_names is None:
        has_names = has_row_of_names(first, full[1:])

    def numbered() -> Iterator[Row]:
        for number, row in enumerate(cells, start=1):
            if not (has_names and row is first):
                yield number, row if len(row) == width else width_problem(len(row), width)

    names = unique_names(first) if has_names else numbered_names(width)
    return Table("JSON", tuple(names), numbered, encoding, has_names=has_names)


def _object_table(
    kind: str, objects: Callable[[], Iterable[tuple[int, Any]]], encoding: str
) -> Table:
    """Return the table of objects; the columns are the keys of the first ones."""
    columns: dict[str, None] = {}
    for _, row in islice(objects(), MAX_SAMPLE_ROWS):
        columns |= dict.fromkeys(flatten(row)) if isinstance(row, dict) else {}

    def rows() -> Iterator[Row]:
        for number, row in objects():
            if isinstance(row, dict):
                cells = flatten(row)
                yield number, [cells.get(name) for name in columns]
            else:
                yield number, "is no JSON object"

    return Table(kind, tuple(columns), rows, encoding)


def flatten(row: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the cells of an object: nested names are joined by dots, tokens by blanks.

    The messages of a chat give the columns `NAME.user` and `NAME.assistant`, its first ones.
    """
    cells: dict[str, str | None] = {}
    stack = [("", row, 0)]
    while stack:
        prefix, value, depth = stack.pop()
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            stack += [
                (f"{prefix}.{key}" if prefix else str(key), each, depth + 1)
                for key, each in reversed(list(value.items()))
            ]
        elif isinstance(value, list) and value and all(map(_is_message, value)):
            for message in reversed(value):
                cells[f"{prefix}.{message['role']}"] = _cell(message["content"])
        else:
            cells[prefix] = _cell(value)
    return cells


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and {"role", "content"} <= value.keys()


def _cell(value: Any) -> str | None:
    """Return the text of a value, a list of words joined by blanks; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list) and value:
        words = [_cell(each) for each in value]
        return None if None in words else " ".join(word for word in words if word)
    return None
