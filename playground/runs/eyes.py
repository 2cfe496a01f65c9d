"""Client of an inspection process (`inspector.py`), on the server's side."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Any

from .inspection_queue import NO_CLIENT, Client, InspectionQueue, InspectionRequest
from .processes import Child, describe_end

Answer = dict[str, Any]
BUSY = "the model is busy with earlier requests; try again in a moment"


class Eyes:
    """An inspection process and its request queue. Safe to call from any thread.

    The process handles one request at a time. It starts with the first request, and again after it
    has ended. The other requests wait in a fair queue, where their future can be cancelled.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # never held during disk access
        self._queue = InspectionQueue()
        self._child: Child | None = None
        self._current: InspectionRequest | None = None  # in the process now
        self._number = 0  # of the current request
        self._began = 0.0  # when the current request went to the process
        self._stopped = False

    def warm_up(self) -> None:
        """Start the process in the background, before the first request needs it."""
        threading.Thread(target=self.ask, args=("warm", {}), name="warm-eyes", daemon=True).start()

    def ask(
        self,
        kind: str,
        what: dict[str, Any] | Path,
        text: str = "",
        *,
        client: Client = NO_CLIENT,
        time_limit: float = 0.0,
    ) -> Future[Answer]:
        """Queue a request and return the future of its response.

        The response's `error` states the failure. Its `again` means that the same request may
        succeed soon. Cancelling the future removes the request from the queue.

        Args:
            client: the client whose quota the request uses.
            time_limit: seconds that the process may take; 0 for the limit of `supervise`.
        """
        what = {"checkpoint": str(what)} if isinstance(what, Path) else what
        request = InspectionRequest(kind, what, text, client, time_limit)
        with self._lock:
            accepted = not self._stopped and self._queue.put(request)
            self._send_next()
        if not accepted:
            resolve(request.future, passing(BUSY))
        return request.future

    def supervise(self, seconds: float) -> None:
        """End the process if its current request exceeds its limit, or else `seconds`."""
        with self._lock:
            request, child = self._current, self._child
            if request is None or child is None:
                return
            limit = request.time_limit or seconds
            if time.monotonic() - self._began <= limit:
                return
            self._current = self._child = None
            self._send_next()
        child.kill()
        resolve(
            request.future,
            {
                "error": f"this took longer than {limit:g} s and was ended; "
                "use a smaller model or a shorter sequence"
            },
        )

    def close(self) -> None:
        """End the process and its current request. Waiting requests go to the next process."""
        if child := self._child:  # another thread may clear it
            child.kill()

    def stop(self) -> None:
        """End the process, fail all waiting requests, and accept no more."""
        with self._lock:
            self._stopped = True
            waiting = self._queue.clear()
        self.close()
        for request in waiting:
            resolve(request.future, passing("the server is stopping; try again in a moment"))

    def _send_next(self) -> None:
        """Send the next request if the process is free. The caller holds the lock."""
        while self._current is None and (request := self._queue.next()) is not None:
            if not request.future.set_running_or_notify_cancel():
                continue  # its client has disconnected
            if self._child is None:
                self._child = self._start()
            self._current, self._number = request, next(self._numbers)
            self._began = time.monotonic()
            # If the process has ended, `_end` resolves the request.
            self._child.send(self._number, request.kind, request.what, request.text)

    def _start(self) -> Child:
        started: list[Child] = []
        child = Child(
            "playground.runs.inspector:inspect",
            "inspector",
            on_message=self._receive,
            on_end=lambda code: self._end(started, code),
        )
        started.append(child)
        return child

    def _receive(self, number: int, answer: Answer) -> None:
        with self._lock:
            request = self._current
            if request is None or number != self._number:
                return
            self._current = None
            self._send_next()
        resolve(request.future, answer)

    def _end(self, started: list[Child], code: int | None) -> None:
        """Fail the current request of an ended process, and continue in a new process."""
        with self._lock:
            if started[0] is not self._child:
                return
            request, self._current, self._child = self._current, None, None
            self._send_next()
        if request:
            resolve(
                request.future,
                passing(f"{describe_end('the inspection process', code)}; try again"),
            )


def passing(error: str) -> Answer:
    """Return a temporary error. The page repeats the request by itself."""
    return {"error": error, "again": True}


def resolve(future: Future[Answer], answer: Answer) -> None:
    """Set the result of a future, unless it is already cancelled or resolved."""
    with suppress(InvalidStateError):
        future.set_result(answer)
