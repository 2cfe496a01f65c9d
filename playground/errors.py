"""Errors that a user can correct, and the response that reports them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class UserError(ValueError):
    """A request that cannot be carried out; the message has the reason and the remedy.

    `field` names the invalid setting, if there is one. `retryable`: the same request may succeed
    later. `code` identifies an error that the page handles in a special way. `details` are further
    fields of the response.
    """

    def __init__(
        self,
        message: str,
        field: str = "",
        retryable: bool = False,
        code: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.field = field
        self.retryable = retryable
        self.code = code
        self.details = dict(details or {})


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, of PyTorch or of its allocators is about memory."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "allocate memory" in text  # a RuntimeError of the CPU's allocator
        or "not enough memory" in text
    )


class BusyError(UserError):
    """A limit that holds for a short time: the same request succeeds later.

    Args:
        reason: what the server is doing, or which limit is reached.
        when: when the user should try again.
    """

    def __init__(self, reason: str, when: str = "in a moment") -> None:
        super().__init__(f"{reason}; try again {when}", retryable=True)


# The folders of an absolute path; the name of the file or of the last folder remains.
FOLDERS = re.compile(r"(?<![\w.:/\\~-])(?:[A-Za-z]:)?[/\\](?:[^/\\\s'\":;,()]+[/\\])+")


def error_text(error: BaseException) -> str:
    """Return the text of an error; files have their names, without the folders of this machine."""
    if not isinstance(error, OSError) or error.strerror is None:
        return FOLDERS.sub("", str(error))
    is_path = isinstance(error.filename, str | bytes | os.PathLike)
    name = Path(os.fsdecode(error.filename)).name if is_path else "a file"
    return f"{name} could not be read or written: {error.strerror}; try again"


def error_response(error: Exception) -> dict[str, Any]:
    """Return the JSON of an error: `error`, its details, and the other fields if they apply."""
    response: dict[str, Any] = dict(getattr(error, "details", {}))
    response["error"] = error_text(error) or "this took too long; try again"
    if field := getattr(error, "field", ""):
        response["field"] = field
    if getattr(error, "retryable", False):
        response["retryable"] = True
    if code := getattr(error, "code", ""):
        response["code"] = code
    return response


def raise_for_error(response: dict[str, Any]) -> dict[str, Any]:
    """Return the response of a process; raise its error, the inverse of `error_response`.

    Raises UserError if the response has an `error`.
    """
    if "error" not in response:
        return response
    details = dict(response)
    raise UserError(
        details.pop("error"),
        details.pop("field", ""),
        retryable=details.pop("retryable", False),
        code=details.pop("code", ""),
        details=details,
    )
