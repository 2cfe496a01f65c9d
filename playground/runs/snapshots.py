"""Snapshots, predictions and views of runs, from the inspection processes."""

import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from playground.errors import BusyError, UserError, error_response
from playground.jobs.admission import NO_CLIENT, Client, Policy, limit
from playground.jobs.entry import ResidentOptions
from playground.jobs.executors import ResidentProcess
from playground.jobs.job import Response
from playground.jobs.queue import JobQueue

from .access import Right
from .limits import RegistrySettings
from .state import Run

VIEWER_TTL_S = 5.0  # seconds after its last poll for which a page counts as open
MAX_SNAPSHOT_FAILURES = 3  # failed snapshots in a row after which a run that has ended gets no more
VIEW_TIMEOUT_S = 60.0  # seconds after which the inspection process is restarted
SLOW_VIEW_TIMEOUT_S = 300.0  # the same for views that measure on hundreds of sequences
BUSY_ERROR = BusyError("the model is busy with earlier requests")


class InspectorClient:
    """An inspection process with a fair queue. Safe to call from any thread.

    It handles one request at a time, and starts again after it has ended, also by a timeout.
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


class Snapshots:
    """The inspection processes of a registry, and the requests of its runs to them.

    Safe to call from any thread. No method takes the lock of a run with weight steps in memory.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings = settings
        self.inspector = InspectorClient(VIEW_TIMEOUT_S)
        # for views that take seconds, so that they do not delay fast ones
        self.slow_inspector = InspectorClient(SLOW_VIEW_TIMEOUT_S)
        # guards `snapshot_pending` and `pending_requests`; no other lock is taken inside
        self._lock = threading.Lock()

    def stop(self) -> None:
        """End the inspection processes."""
        for process in (self.inspector, self.slow_inspector):
            process.stop()

    def has_pending(self, run: Run) -> bool:
        with self._lock:
            return run.snapshot_pending or any(not future.done() for future in run.pending_requests)

    # Live snapshots

    def refresh(self, run: Run) -> None:
        """Request a snapshot of the latest weights, unless it exists or one is pending."""
        live = run.live
        step = live.latest_weights_step
        if step is None or (live.snapshot is not None and live.snapshot["step"] == step):
            return
        with self._lock:
            if run.snapshot_pending:
                return
            run.snapshot_pending = True
        try:
            future = self.inspector.request(
                "snapshot",
                self._weights_ref(run, step),
                client=run.viewer_client or Client(owner=run.owner),
                timeout_s=self.settings.limits.view_timeout_s,
            )
        except BaseException:
            run.snapshot_pending = False
            raise
        future.add_done_callback(lambda done: self._on_snapshot(run, step, done.result()))

    def _on_snapshot(self, run: Run, requested_step: int, response: Response) -> None:
        failed = "error" in response
        with run.lock:
            run.snapshot_pending = False
            # Newer weights may have arrived meanwhile, even the last ones of the run.
            is_last = run.live.latest_weights_step == requested_step and not run.has_worker
            if response.get("error") != str(BUSY_ERROR):  # a full queue is no failure of the run
                run.failed_snapshots = run.failed_snapshots + 1 if failed else 0
            if not failed:
                snapshot = response["snapshot"]
                run.update_live(
                    probe_info=response["probe_info"],
                    snapshot=snapshot,
                    snapshot_version=run.live.snapshot_version + 1,
                )
                if is_last:  # the nearest step with stored weights
                    run.update_live(latest_weights_step=snapshot["step"])
            elif is_last and (
                not response.get("retryable") or run.failed_snapshots >= MAX_SNAPSHOT_FAILURES
            ):
                # Another request would fail, too.
                run.update_live(latest_weights_step=None)
                run.update(message=run.message or response["error"])
        if not failed and is_viewed(run):
            self.refresh(run)

    # Requests of the page

    @staticmethod
    def _weights_ref(run: Run, step: int) -> dict[str, Any]:
        return {"run": str(run.folder), "fields": run.config.to_flat(), "step": step}

    def request(
        self,
        kind: str,
        model: Run | Path,
        argument: str = "",
        step: int | None = None,
        *,
        slow: bool = False,
        client: Client | None = None,
        right: Right = Right.OWN,
        process: InspectorClient | None = None,
    ) -> Future[Response]:
        """Request a snapshot, a prediction, a view or scores (`inspector_process.py`) of a model.

        `step`: of a run; the nearest one with stored weights counts, and None is the latest.
        `slow`: whether it takes seconds, so that a separate process computes it.
        `right`: the right of the requester on the model; it decides which rows a view shows.
        `process`: another one, without the time limits of the page.
        """
        limits = self.settings.limits
        limit_s = limits.slow_view_timeout_s if slow else limits.view_timeout_s
        if process is not None:
            limit_s = 0.0
        process = process or (self.slow_inspector if slow else self.inspector)
        if isinstance(model, Path):
            checkpoint = {"checkpoint": str(model), "right": right}
            return process.request(kind, checkpoint, argument, client=client or NO_CLIENT)
        model.load_weight_steps()
        step = model.live.latest_weights_step if step is None else step
        if step is None:
            no_weights = Future[Response]()
            no_weights.set_result(error_response(BusyError("this run has no weights yet")))
            return no_weights
        placeholder = Future[Response]()  # keeps the weights until the request is queued
        with self._lock:
            pending = {each for each in model.pending_requests if not each.done()}
            model.pending_requests = pending | {placeholder}
        try:
            future = process.request(
                kind,
                self._weights_ref(model, step) | {"right": right},
                argument,
                client=client or Client(owner=model.owner),
                timeout_s=limit_s,
            )
            with self._lock:
                model.pending_requests.add(future)
            return future
        finally:
            with self._lock:
                model.pending_requests.discard(placeholder)


def is_viewed(run: Run) -> bool:
    """Return whether a page shows this run."""
    return time.monotonic() - run.last_viewed_at < VIEWER_TTL_S
