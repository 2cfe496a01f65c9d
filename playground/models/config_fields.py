"""Validated dataclass fields: each has a description and the values that it accepts.

This file does not import torch, because forms and command lines use it too.
"""

from dataclasses import Field, field, fields
from typing import Any


class ConfigError(ValueError):
    """An invalid setting, named by `field`; the message has the value and what is accepted."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def config_field(
    default: Any,
    description: str,
    *,
    bounds: tuple[float | None, float | None] = (None, None),
    choices: tuple[str, ...] = (),
    role: str = "",
) -> Any:
    """Define a dataclass field with its description and the range that it accepts.

    `role` is what a setting does in an experiment (train_config.py).
    """
    limits = dict(zip(("low", "high"), bounds, strict=True))
    metadata = {"help": description, "choices": choices, "role": role} | limits
    return field(default=default, metadata=metadata)


def validate_fields(config: Any) -> None:
    """Check every field as `validate_field` does; NaN, infinities and booleans are not numbers."""
    for each in fields(config):
        value = getattr(config, each.name)
        checked = validate_field(each, value)
        if checked is not value:
            object.__setattr__(config, each.name, checked)


def validate_field(field_definition: Field[Any], value: Any) -> Any:
    """Check a value against a setting's type, range and choices; return it as it is saved.

    Raises ConfigError for an invalid value.
    """
    name, kind = field_definition.name, type(field_definition.default)
    low, high, choices = (field_definition.metadata[key] for key in ("low", "high", "choices"))
    if choices:
        is_valid = value in choices
    elif kind is bool or kind is str:
        is_valid = isinstance(value, kind)
    else:
        is_number = isinstance(value, int if kind is int else int | float)
        is_valid = is_number and not isinstance(value, bool) and low <= value <= high
    if not is_valid:
        if choices:
            accepted = f"choose one of {', '.join(choices)}"
        elif kind is bool or kind is str:
            accepted = "it must be " + ("true or false" if kind is bool else "text")
        else:
            noun = "a whole number" if kind is int else "a number"
            accepted = f"it must be {noun} from {format_number(low)} to {format_number(high)}"
        raise ConfigError(name, f"{name} is {short_repr(value)}; {accepted}")
    # 1 and 1.0 are the same setting and must be saved the same
    return float(value) if kind is float else value


def format_number(number: float) -> str:
    """Format a bound without an exponent: 1,000,000 and 0.000000001."""
    return f"{number:,}" if isinstance(number, int) else f"{number:,.16f}".rstrip("0").rstrip(".")


def short_repr(value: object) -> str:
    """Format a value for an error message, at most 80 characters long.

    Python refuses to convert a number with thousands of digits, so such a number is described.
    """
    try:
        text = repr(value)
    except ValueError:
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."
