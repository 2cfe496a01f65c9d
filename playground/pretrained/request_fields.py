"""Validation of requests about pretrained models: types, ranges and error messages."""

from __future__ import annotations

from typing import Any

from playground.errors import UserError

MAX_TEXT_LENGTH = 4000  # characters


def text_field(
    request: dict[str, Any],
    name: str = "text",
    max_length: int = MAX_TEXT_LENGTH,
    default: str | None = None,
) -> str:
    """Return a text that is not empty.

    Raises:
        UserError: if the value is not a text, is empty, or is longer than `max_length` characters.
    """
    value = request.get(name, default)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{name} is empty; type some text")
    if len(value) > max_length:
        raise UserError(f"{name} has {len(value):,} characters; give at most {max_length:,}")
    # tokenizers reject an unpaired surrogate
    return value.replace("\x00", "").encode("utf-8", "replace").decode()


def number_field(
    request: dict[str, Any], name: str, default: float, low: float, high: float
) -> float:
    """Return a number in a range; NaN is rejected.

    Raises:
        UserError: with the value and the accepted range.
    """
    value = request.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UserError(
            f"{name} is {str(value)[:20]}; it must be a number from {low:,g} to {high:,g}"
        )
    return float(value)


def integer_field(request: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    """Return a whole number in a range.

    Raises:
        UserError: with the value and the accepted range.
    """
    value = request.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise UserError(
            f"{name} is {str(value)[:20]}; it must be a whole number from {low:,} to {high:,}"
        )
    return value


def choice_field(request: dict[str, Any], name: str, choices: tuple[str, ...], default: str) -> str:
    """Return one of several words.

    Raises:
        UserError: with the accepted words.
    """
    value = request.get(name, default)
    if value not in choices:
        raise UserError(f"{name} is {str(value)[:20]!r}; choose one of {', '.join(choices)}")
    return str(value)


def words_field(
    request: dict[str, Any], name: str, default: tuple[str, ...], max_count: int
) -> list[str]:
    """Return a few short words.

    Raises:
        UserError: for more than `max_count` words, or for a value that is not a word.
    """
    value = request.get(name, list(default))
    if (
        not isinstance(value, list)
        or len(value) > max_count
        or not all(isinstance(word, str) and 0 < len(word.strip()) <= 40 for word in value)
    ):
        raise UserError(f"{name} must be at most {max_count} words of up to 40 letters")
    return [word.strip() for word in value]
