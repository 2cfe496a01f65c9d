"""The parser of JSON in files and requests, which are untrusted.

Every reader uses it. Its result can be printed, copied and written again: it is not nested deeply,
and its numbers fit into floats.
"""

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from playground.errors import UserError

from . import messages

MAX_JSON_BYTES = 1_000_000  # of a file; a valid one has about 2,000
MAX_DEPTH = 50  # of lists and objects; what the playground writes has about 10
MAX_DIGITS = 300  # of a whole number; larger ones do not fit into a float


def read_json(path: Path) -> Any:
    """Read strict JSON from an untrusted file.

    Raises UserError for a file that cannot be read, is too large, or is not strict JSON.
    """
    name = messages.file_label(path)
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise UserError(messages.too_many_bytes(name, size, MAX_JSON_BYTES))
        return parse_strict_json(path.read_bytes())
    except OSError as error:
        raise UserError(messages.could_not_read(path, error)) from None
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{name} is damaged: {error}") from None


def parse_strict_json(data: bytes, allow_infinity: bool = False) -> Any:
    """Parse JSON of a limited depth, without NaN, infinity and repeated keys.

    Args:
        allow_infinity: whether infinity and NaN are accepted, as transformers writes them.

    Raises ValueError for anything else, and for a number that no float can hold.
    """

    def reject_constant(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a number")

    def parse_float(text: str) -> float:
        number = float(text)
        return number if math.isfinite(number) else reject_constant(text)

    def parse_int(text: str) -> int:
        if len(text) > MAX_DIGITS:
            raise ValueError(f"a number has {len(text):,} digits; at most {MAX_DIGITS} are read")
        return int(text)

    def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = dict(pairs)
        if len(keys) != len(pairs):
            raise ValueError("a key occurs twice")
        return keys

    try:
        content = json.loads(
            data,
            parse_constant=None if allow_infinity else reject_constant,
            parse_float=parse_float,
            parse_int=parse_int,
            object_pairs_hook=reject_duplicates,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(content)
    return content


def _check_depth(content: object) -> None:
    """Raise ValueError for content that is nested too deeply; one level at a time."""
    level = [content]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    if level:
        raise ValueError("it is nested too deeply")
