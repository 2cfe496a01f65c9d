"""Validation of the fields of a request, which is untrusted input, and numbers as JSON."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from playground.inspection.subject import NotInspectable


def text(request: dict[str, Any]) -> str:
    """Return the sequence that the user entered.

    Raises:
        NotInspectable: for a missing or long text.
    """
    text = request.get("text")
    if not isinstance(text, str) or len(text) > 2000:
        raise NotInspectable("type a sequence of at most 2,000 characters")
    return text


def typed(request: dict[str, Any], name: str, longest: int, usual: str) -> str:
    """Return a text field of at most `longest` characters; `usual` is the default.

    Raises:
        NotInspectable: for another type, or a longer text.
    """
    value = request.get(name, usual)
    if not isinstance(value, str) or len(value) > longest:
        raise NotInspectable(
            f"{name} is {str(value)[:20]!r}; it must be text of at most {longest:,} characters"
        )
    return value


def whole(request: dict[str, Any], name: str, low: int, high: int, usual: int = 0) -> int:
    """Return an integer field from `low` to `high`; `usual` is the default.

    Raises:
        NotInspectable: for another type, or a number out of range.
    """
    value = request.get(name, usual)
    if type(value) is not int or not low <= value <= high:
        raise NotInspectable(
            f"{name} is {str(value)[:20]}; it must be a whole number from {low:,} to {high:,}"
        )
    return value


def one_of(request: dict[str, Any], name: str, choices: tuple[str, ...]) -> str:
    """Return a choice field; the first choice is the default.

    Raises:
        NotInspectable: for any other value.
    """
    value = request.get(name, choices[0])
    if value not in choices:
        raise NotInspectable(f"{name} is {str(value)[:20]!r}; choose one of {', '.join(choices)}")
    return str(value)


def plain(number: float, digits: int = 6) -> float | None:
    """Round a number for JSON; None if it is infinite or NaN, which JSON does not have."""
    return float(f"{number:.{digits}g}") if math.isfinite(number) else None


def numbers(values: Tensor, digits: int = 6) -> Any:
    """Convert a tensor to nested lists of such numbers."""
    if values.dim() > 1:
        return [numbers(row, digits) for row in values]
    return [plain(value, digits) for value in values.tolist()]
