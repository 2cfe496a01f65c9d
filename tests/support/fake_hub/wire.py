"""Requests and responses of the fake Hub.

The client treats some errors differently over https (a 401 for a repository is a
RepositoryNotFoundError); for these, the fake Hub sends the `X-Error-Code` with the same effect.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

INVALID_TOKEN_MESSAGE = "Invalid credentials in Authorization header"
MESSAGE_BY_STATUS = {
    401: "Invalid username or password.",
    403: "Forbidden: you must use a write token to upload to a repository.",
    404: "Repository not found",
    409: "Another operation is in progress",
    412: "A commit has happened since. Please refresh and try again.",
    429: "We had to rate limit your IP. To continue using our service, create a HF account or "
    "login.",
    500: "Internal Error - We're working hard to fix this as soon as possible!",
    503: "Service Unavailable",
}
# paths where a 401 means that the repository is missing
_REPO_PATH = re.compile(r"/api/(models|datasets|spaces)/|/resolve/")


@dataclass
class Response:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class HubError(Exception):
    """An error response, with the message and the code that the client reads."""

    def __init__(self, status: int, message: str = "", code: str = "", **fields: object) -> None:
        self.message = message or MESSAGE_BY_STATUS.get(status, "Error")
        super().__init__(self.message)
        self.status, self.code, self.fields = status, code, fields


@dataclass
class Request:
    """A received request.

    `path` is unquoted and has no query; `status` is 0 until the response.
    """

    method: str
    path: str
    query: dict[str, list[str]]
    host: str
    headers: dict[str, str]
    body: bytes = b""
    status: int = 0

    @property
    def authorization(self) -> str:
        return self.headers.get("authorization", "")

    @property
    def token(self) -> str:
        """Return the token of the request, or an empty string."""
        return self.authorization.removeprefix("Bearer ").strip()

    def first(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[0]

    def is_set(self, name: str) -> bool:
        return self.first(name).lower() in ("1", "true")

    def json(self) -> dict:
        """Return the JSON object of the body."""
        try:
            body = json.loads(self.body)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise HubError(400, "The body must be a JSON object")
        return body

    def __contains__(self, text: str) -> bool:
        """Return whether `text` is anywhere in the request."""
        values = [value for values in self.query.values() for value in values]
        parts = [self.path, self.host, *self.headers, *self.headers.values(), *values]
        return any(text in part for part in parts) or text.encode() in self.body


def json_response(value: object, status: int = 200) -> Response:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return Response(status, json.dumps(value, default=str).encode(), headers)


def error_response(request: Request, error: HubError) -> Response:
    """Return an error in the format of the Hub: in the body and in two headers."""
    is_invalid_token = error.message == INVALID_TOKEN_MESSAGE
    is_missing = error.status == 401 and not is_invalid_token and _REPO_PATH.search(request.path)
    # the client assumes this code over https only
    code = error.code or ("RepoNotFound" if is_missing else "")
    response = json_response({"error": error.message} | error.fields, error.status)
    response.headers["X-Error-Message"] = error.message
    if code:
        response.headers["X-Error-Code"] = code
    return response


def range_response(request: Request, data: bytes, headers: dict[str, str]) -> Response:
    """Return a file, or the requested range of it."""
    headers |= {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
    if not match or not any(match.groups()):
        return Response(200, data, headers)
    size, (first, last) = len(data), match.groups()
    start = int(first) if first else max(size - int(last), 0)
    end = min(int(last), size - 1) if first and last else size - 1
    if start > end:
        return Response(416, b"", headers | {"Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{end}/{size}"
    return Response(206, data[start : end + 1], headers)
