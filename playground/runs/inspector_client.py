"""Client of an inspection process (`inspector_process.py`), on the server's side."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from playground.jobs.call import Response, set_result_if_pending
from playground.jobs.fair_queue import NO_CLIENT, Client, InspectionQueue, InspectionRequest
from playground.jobs.process import WorkerProcess, describe_exit

BUSY_MESSAGE = "the model is busy with earlier requests; try again in a moment"


class InspectorClient:
    """An inspection process and its request queue. Safe to call from any thread.

    The process handles one request at a time. It starts with the first request, and again after it
    has ended. The other requests wait in a fair queue, where their future can be cancelled.
    """

    def __init__(self) -> None:
        self._request_ids = itertools.count(1)
        self._lock = threading.Lock()  # never held during disk access
        self._queue = InspectionQueue()
        self._process: WorkerProcess | None = None
        self._current: InspectionRequest | None = None  # in the process now
        self._current_id = 0  # of the current request
        self._started_at = 0.0  # when the current request went to the process
        self._stopped = False

    def warm_up(self) -> None:
        """Start the process in the background, before the first request needs it."""
        threading.Thread(
            target=self.request, args=("warm", {}), name="warm-inspector", daemon=True
        ).start()

    def request(
        self,
        method: str,
        model_ref: dict[str, Any] | Path,
        argument: str = "",
        *,
        client: Client = NO_CLIENT,
        timeout_s: float = 0.0,
    ) -> Future[Response]:
        """Queue a request and return the future of its response.

        The response's `error` states the failure. Its `again` means that the same request may
        succeed soon. Cancelling the future removes the request from the queue.

        Args:
            client: the client whose quota the request uses.
            timeout_s: seconds that the process may take; 0 for the limit of `check_timeout`.
        """
        model_ref = {"checkpoint": str(model_ref)} if isinstance(model_ref, Path) else model_ref
        request = InspectionRequest(method, model_ref, argument, client, timeout_s)
        with self._lock:
            accepted = not self._stopped and self._queue.put(request)
            self._send_next()
        if not accepted:
            set_result_if_pending(request.future, retryable(BUSY_MESSAGE))
        return request.future

    def check_timeout(self, timeout_s: float) -> None:
        """End the process if its current request exceeds its limit, or else `timeout_s`."""
        with self._lock:
            request, child = self._current, self._process
            if request is None or child is None:
                return
            limit = request.timeout_s or timeout_s
            if time.monotonic() - self._started_at <= limit:
                return
            self._current = self._process = None
            self._send_next()
        child.kill()
        set_result_if_pending(
            request.future,
            {
                "error": f"this took longer than {limit:g} s and was ended; "
                "use a smaller model or a shorter sequence"
            },
        )

    def close(self) -> None:
        """End the process and its current request. Waiting requests go to the next process."""
        if child := self._process:  # another thread may clear it
            child.kill()

    def stop(self) -> None:
        """End the process, fail all waiting requests, and accept no more."""
        with self._lock:
            self._stopped = True
            waiting = self._queue.clear()
        self.close()
        for request in waiting:
            set_result_if_pending(
                request.future, retryable("the server is stopping; try again in a moment")
            )

    def _send_next(self) -> None:
        """Send the next request if the process is free. The caller holds the lock."""
        while self._current is None and (request := self._queue.next()) is not None:
            if not request.future.set_running_or_notify_cancel():
                continue  # its client has disconnected
            if self._process is None:
                self._process = self._start()
            self._current, self._current_id = request, next(self._request_ids)
            self._started_at = time.monotonic()
            # If the process has ended, `_on_exit` resolves the request.
            self._process.send(
                self._current_id, request.method, request.model_ref, request.argument
            )

    def _start(self) -> WorkerProcess:
        started: list[WorkerProcess] = []
        child = WorkerProcess(
            "playground.runs.inspector_process:main",
            "inspector",
            on_message=self._on_response,
            on_exit=lambda code: self._on_exit(started, code),
        )
        started.append(child)
        return child

    def _on_response(self, request_id: int, response: Response) -> None:
        with self._lock:
            request = self._current
            if request is None or request_id != self._current_id:
                return
            self._current = None
            self._send_next()
        set_result_if_pending(request.future, response)

    def _on_exit(self, started: list[WorkerProcess], code: int | None) -> None:
        """Fail the current request of an ended process, and continue in a new process."""
        with self._lock:
            if started[0] is not self._process:
                return
            request, self._current, self._process = self._current, None, None
            self._send_next()
        if request:
            set_result_if_pending(
                request.future,
                retryable(f"{describe_exit('the inspection process', code)}; try again"),
            )


def retryable(error: str) -> Response:
    """Return a temporary error. The page repeats the request by itself."""
    return {"error": error, "again": True}
