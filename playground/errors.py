"""Errors that a user can correct, and the response that reports them."""

from __future__ import annotations

from typing import Any


class UserError(ValueError):
    """A request that cannot be carried out; the message has the reason and the remedy.

    `field` names the invalid setting, if there is one. `retryable`: the same request may succeed
    later.
    """

    def __init__(self, message: str, field: str = "", retryable: bool = False) -> None:
        super().__init__(message)
        self.field = field
        self.retryable = retryable


def error_response(error: Exception) -> dict[str, Any]:
    """Return the JSON of an error: `error`, and `field` and `again` if they apply."""
    response: dict[str, Any] = {"error": str(error) or "this took too long; try again"}
    if field := getattr(error, "field", ""):
        response["field"] = field
    if getattr(error, "retryable", False):
        response["again"] = True
    return response
