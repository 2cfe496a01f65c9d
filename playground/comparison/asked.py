"""Validation of requests about pretrained models: types, ranges and error messages."""

from __future__ import annotations

from typing import Any

from .work import Refused

LONGEST_TEXT = 4000  # characters


def text_of(
    what: dict[str, Any], name: str = "text", most: int = LONGEST_TEXT, usual: str | None = None
) -> str:
    """Return a text that is not empty.

    Raises:
        Refused: if the value is not a text, is empty, or is longer than `most` characters.
    """
    value = what.get(name, usual)
    if not isinstance(value, str) or not value.strip():
        raise Refused(f"{name} is empty; type some text")
    if len(value) > most:
        raise Refused(f"{name} has {len(value):,} characters; give at most {most:,}")
    # tokenizers reject an unpaired surrogate
    return value.replace("\x00", "").encode("utf-8", "replace").decode()


def number_of(what: dict[str, Any], name: str, usual: float, low: float, high: float) -> float:
    """Return a number in a range; NaN is rejected.

    Raises:
        Refused: with the value and the accepted range.
    """
    value = what.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Refused(
            f"{name} is {str(value)[:20]}; it must be a number from {low:,g} to {high:,g}"
        )
    return float(value)


def whole_of(what: dict[str, Any], name: str, usual: int, low: int, high: int) -> int:
    """Return a whole number in a range.

    Raises:
        Refused: with the value and the accepted range.
    """
    value = what.get(name, usual)
    if type(value) is not int or not low <= value <= high:
        raise Refused(
            f"{name} is {str(value)[:20]}; it must be a whole number from {low:,} to {high:,}"
        )
    return value


def choice_of(what: dict[str, Any], name: str, choices: tuple[str, ...], usual: str) -> str:
    """Return one of several words.

    Raises:
        Refused: with the accepted words.
    """
    value = what.get(name, usual)
    if value not in choices:
        raise Refused(f"{name} is {str(value)[:20]!r}; choose one of {', '.join(choices)}")
    return str(value)


def words_of(what: dict[str, Any], name: str, usual: tuple[str, ...], most: int) -> list[str]:
    """Return a few short words.

    Raises:
        Refused: for more than `most` words, or for a value that is not a word.
    """
    value = what.get(name, list(usual))
    if (
        not isinstance(value, list)
        or len(value) > most
        or not all(isinstance(word, str) and 0 < len(word.strip()) <= 40 for word in value)
    ):
        raise Refused(f"{name} must be at most {most} words of up to 40 letters")
    return [word.strip() for word in value]
