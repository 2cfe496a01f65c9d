"""The faults of the fake Hub."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

from .wire import HubError, Request, Response, error_response


@dataclass
class Fault:
    """A fault of the requests that match `pattern` and `method`, at most `times` times.

    As a context manager, it ends with the block. `FakeHub.fault` describes the kinds.
    """

    pattern: re.Pattern[str]
    kind: int | str
    times: int | None = None
    method: str = ""
    retry_after: int | None = None
    message: str = ""
    page: bool = False
    hits: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()

    def matches(self, request: Request) -> bool:
        is_active = not self.ended.is_set() and (self.times is None or self.hits < self.times)
        is_of_method = self.method in ("", request.method)
        return is_active and is_of_method and bool(self.pattern.search(request.path))

    def response(self, request: Request) -> Response:
        """Return the response of a fault whose kind is a status."""
        status = int(self.kind)
        response = error_response(request, HubError(status, self.message))
        if self.page:
            text = f"<html><head><title>{status}</title></head><body></body></html>"
            response = Response(status, text.encode(), {"Content-Type": "text/html"})
        wait = 86400 if self.retry_after is None and status == 429 else self.retry_after
        if wait:
            response.headers["Retry-After"] = str(wait)
        return response
