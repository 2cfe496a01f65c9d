"""Client of an inspection process (`inspector_process.py`), on the server's side."""

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from playground.errors import BusyError, UserError, error_response
from playground.jobs.admission import NO_CLIENT, Client, limit
from playground.jobs.entry import ResidentOptions
from playground.jobs.executors import ResidentProcess
from playground.jobs.job import Response
from playground.jobs.policy import Policy
from playground.jobs.queue import JobQueue

BUSY_ERROR = BusyError("the model is busy with earlier requests")
BUSY_MESSAGE = str(BUSY_ERROR)


class InspectorClient:
    """An inspection process with a queue. Safe to call from any thread.

    The process handles one request at a time. It starts with the first request, and again after it
    has ended, also by a timeout. The other requests wait in a fair queue.
    """

    def __init__(self, timeout_s: float | None = None) -> None:
        self.process = ResidentProcess(
            "playground.runs.inspector_process:create_handler",
            name="inspector",
            # priority: the server, then inspection, then training
            options=lambda: ResidentOptions(nice=5),
        )
        self.queue = JobQueue(
            self.process,
            Policy(
                process="the inspection process",
                admission=limit("inspections"),
                run_timeout_s=timeout_s,
                timeout_advice="use a smaller model or a shorter sequence",
            ),
        )

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
        """Queue a request of a client and return the future of its response.

        The response's `error` states the failure. Its `retryable` means that the same request may
        succeed soon. Cancelling the future removes the request from the queue.
        """
        model_ref = {"checkpoint": str(model_ref)} if isinstance(model_ref, Path) else model_ref
        try:
            return self.queue.submit(
                method,
                model_ref,
                argument,
                owner=f"{client.owner}@{client.address}",  # viewers share the name VIEWER
                address=client.address,
                timeout_s=timeout_s or None,
            ).future
        except UserError:
            future = Future[Response]()
            future.set_result(error_response(BUSY_ERROR))
            return future

    def stop(self) -> None:
        """End the process, fail all requests, and accept no more."""
        self.queue.close()
