"""The server's side of a process that inspects models (inspector.py)."""

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
BUSY = "the model is still busy with earlier questions; ask again in a moment"


class Eyes:
    """An inspection process with a queue before it. Any thread may ask.

    One request at a time is at the process, which starts with the first request and again after it
    has ended. The other requests wait in a fair queue, where their future can be cancelled.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # never held while the disk works
        self._queue = InspectionQueue()
        self._child: Child | None = None
        self._current: InspectionRequest | None = None  # at the process now
        self._number = 0  # of the current request
        self._began = 0.0  # when the current request went to the process
        self._stopped = False

    def warm_up(self) -> None:
        """Start the process in the background, so that nobody waits for it later."""
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
        """Queue a request and return the future of its answer.

        The answer's `error` says what was wrong, and `again` that the same request may succeed
        soon. Cancelling the future takes the request out of the queue.

        Args:
            client: who the request counts for.
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
        """End the process where its current request has taken longer than its limit, or `seconds`."""
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
                "error": f"this took longer than {limit:g} s and was ended; take a smaller model or a shorter sequence"
            },
        )

    def close(self) -> None:
        """End the process and its current request. Waiting requests go to the next process."""
        if child := self._child:  # another thread may take it away
            child.kill()

    def stop(self) -> None:
        """End the process, answer all waiting requests, and accept no more."""
        with self._lock:
            self._stopped = True
            waiting = self._queue.clear()
        self.close()
        for request in waiting:
            resolve(request.future, passing("the server is stopping; ask again in a moment"))

    def _send_next(self) -> None:
        """Send the next request if the process is free. With the lock held."""
        while self._current is None and (request := self._queue.next()) is not None:
            if not request.future.set_running_or_notify_cancel():
                continue  # its client has gone
            if self._child is None:
                self._child = self._start()
            self._current, self._number, self._began = (
                request,
                next(self._numbers),
                time.monotonic(),
            )
            self._child.send(
                self._number, request.kind, request.what, request.text
            )  # if it has ended, _end answers

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
        """Answer the request that a process leaves behind when it ends, and go on with another process."""
        with self._lock:
            if started[0] is not self._child:
                return
            request, self._current, self._child = self._current, None, None
            self._send_next()
        if request:
            resolve(
                request.future,
                passing(f"{describe_end('the process that looks into models', code)}; ask again"),
            )


def passing(error: str) -> Answer:
    """An error that is about this moment, not about what was asked: a page asks `again` by itself."""
    return {"error": error, "again": True}


def resolve(future: Future[Answer], answer: Answer) -> None:
    """Give an answer to whoever still waits for it."""
    with suppress(InvalidStateError):
        future.set_result(answer)
