"""Validation of the fields of a request, which is untrusted input, and numbers as JSON."""

import math
from typing import Any

from torch import Tensor

from playground.inspection.inspected_model import InspectionError

MAX_ROWS, MAX_COLUMNS = 80, 128  # of a displayed tensor


def source_text(request: dict[str, Any]) -> str:
    """Return the sequence that the user entered.

    Raises:
        InspectionError: for a missing or long text.
    """
    text = request.get("text")
    if not isinstance(text, str) or len(text) > 2000:
        raise InspectionError("type a sequence of at most 2,000 characters", field="text")
    return text


def text_field(request: dict[str, Any], name: str, max_length: int, default: str) -> str:
    """Return a text field of at most `max_length` characters; `default` is the default.

    Raises:
        InspectionError: for another type, or a longer text.
    """
    value = request.get(name, default)
    if not isinstance(value, str) or len(value) > max_length:
        raise InspectionError(
            f"{name} is {str(value)[:20]!r}; it must be text of at most {max_length:,} characters"
        )
    return value


def int_field(request: dict[str, Any], name: str, low: int, high: int, default: int = 0) -> int:
    """Return an integer field from `low` to `high`; `default` is the default.

    Raises:
        InspectionError: for another type, or a number out of range.
    """
    value = request.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise InspectionError(
            f"{name} is {str(value)[:20]}; it must be a whole number from {low:,} to {high:,}"
        )
    return value


def choice_field(
    request: dict[str, Any], name: str, choices: tuple[str, ...], default: str = ""
) -> str:
    """Return a choice field; without a `default`, it is the first choice.

    Raises:
        InspectionError: for any other value.
    """
    value = request.get(name, default or choices[0])
    if value not in choices:
        raise InspectionError(f"{name} is {str(value)[:20]!r}; choose one of {', '.join(choices)}")
    return str(value)


def json_number(number: float | None, digits: int = 6) -> float | None:
    """Round a number for JSON; None if it is None, infinite or NaN, which JSON does not have."""
    if number is None or not math.isfinite(number):
        return None
    return float(f"{number:.{digits}g}")


def json_array(values: Tensor, digits: int = 6) -> Any:
    """Convert a tensor to nested lists of such numbers."""
    if values.dim() > 1:
        return [json_array(row, digits) for row in values]
    return [json_number(value, digits) for value in values.tolist()]
