"""What a request may hold, read with care because it comes from anybody's browser, and numbers as the page gets them."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from playground.inspection.subject import NotInspectable


def text(request: dict[str, Any]) -> str:
    text = request.get("text")
    if not isinstance(text, str) or len(text) > 2000:
        raise NotInspectable("type a sequence of at most 2,000 characters")
    return text


def typed(request: dict[str, Any], name: str, longest: int, usual: str) -> str:
    value = request.get(name, usual)
    if not isinstance(value, str) or len(value) > longest:
        raise NotInspectable(
            f"{name} is {str(value)[:20]!r}; it must be text of at most {longest:,} characters"
        )
    return value


def whole(request: dict[str, Any], name: str, low: int, high: int, usual: int = 0) -> int:
    value = request.get(name, usual)
    if type(value) is not int or not low <= value <= high:
        raise NotInspectable(
            f"{name} is {str(value)[:20]}; it must be a whole number from {low:,} to {high:,}"
        )
    return value


def one_of(request: dict[str, Any], name: str, choices: tuple[str, ...]) -> str:
    """The first choice is the usual one."""
    value = request.get(name, choices[0])
    if value not in choices:
        raise NotInspectable(f"{name} is {str(value)[:20]!r}; choose one of {', '.join(choices)}")
    return str(value)


def plain(number: float, digits: int = 6) -> float | None:
    """A number for JSON, which knows no infinity: None."""
    return float(f"{number:.{digits}g}") if math.isfinite(number) else None


def numbers(values: Tensor, digits: int = 6) -> Any:
    """A tensor as nested lists of such numbers."""
    if values.dim() > 1:
        return [numbers(row, digits) for row in values]
    return [plain(value, digits) for value in values.tolist()]
