"""One call in a process of its own, such as a report, a figure or a dataset to read."""

from __future__ import annotations

import logging
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from .process import WorkerProcess, describe_exit

log = logging.getLogger(__name__)
Response = dict[str, Any]


class ProcessCall:
    """A call of `module:function(*arguments)` in a process of its own.

    `future` gets the response, or one with `error` if the process does not start or ends early.
    """

    def __init__(self, target: str, *arguments: Any, name: str, description: str) -> None:
        self.future: Future[Response] = Future()
        self._process: WorkerProcess | None = None

        def on_exit(code: int | None) -> None:
            error = f"{describe_exit(description, code)}; try again"
            set_result_if_pending(self.future, {"error": error, "again": True})

        try:
            self._process = WorkerProcess(
                "playground.jobs.entry:run_call",
                name,
                target,
                arguments,
                on_message=lambda response: set_result_if_pending(self.future, response),
                on_exit=on_exit,
            )
        except (OSError, RuntimeError):  # no thread or file descriptor is free
            log.exception("%s could not be started", name)
            on_exit(None)

    def kill(self) -> None:
        """End the process, if it runs."""
        if self._process is not None:
            self._process.kill()


def set_result_if_pending(future: Future[Response], response: Response) -> None:
    """Set the result of a future, unless it is already cancelled or resolved."""
    with suppress(InvalidStateError):
        future.set_result(response)
