"""The job queue of the pretrained models: one heavy job at a time; jobs are private to an owner.

The process (process.py) starts with the first job. If a cancelled job does not end in time, or the
process dies, a new process runs the waiting jobs. Imports neither torch nor transformers.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playground.common.env import is_env_set
from playground.common.storage import checkpoints_root
from playground.compat import job_kind
from playground.errors import UserError
from playground.jobs.addresses import CLIENT_ADDRESS, max_per_address, uses_full_share
from playground.jobs.process import WorkerProcess

from .process import CONCURRENT_KINDS, ENTRY_POINTS, QUIET_ENV

log = logging.getLogger(__name__)

MAX_JOBS_PER_OWNER = 2
MAX_LIGHT_JOBS_PER_OWNER = 4
MAX_CONCURRENT_JOBS = 16
JOB_TTL_S = 900.0  # seconds for which the rows and the result of a finished job are stored
MAX_RETAINED_PER_OWNER = (
    8  # finished jobs per owner, heavy and light ones separately; the oldest goes first
)
MAX_RETAINED_TOTAL = 64
CANCEL_TIMEOUT_S = 20.0  # seconds for a cancelled job to end before its process is killed
SAVE_TIMEOUT_S = 300.0  # the same for a job that saves first: it ends its step and writes the model
SAVES_ON_CANCEL = ("finetune",)  # kinds that save their result when they are cancelled
UNPOLLED_TIMEOUT_S = 180.0  # seconds without a poll after which a job is dropped while others wait
# on a shared instance: seconds of work after which a heavy job ends if others wait
MAX_TURN_S = 300.0
IDLE_TIMEOUT_S = 1200.0  # seconds without a job after which the process ends and frees its memory
MAX_ROWS = 20_000  # per job
HOUSEKEEPING_INTERVAL_S = 0.5
TERMINAL_STATUSES = ("done", "failed", "cancelled")
# passed on explicitly, because the fork server may have started with other values
FORWARDED_ENV = (
    "HF_",
    "PLAYGROUND_",
    "TRANSFORMERS_",
    "OMP_",
    "SPACE_ID",
)


@dataclass
class Job:
    """A job with its status, progress and result."""

    id: str
    owner: str
    kind: str
    request: dict[str, Any]
    sequence: int
    status: str = "waiting"  # or working, done, failed, cancelled
    message: str = ""
    done: float = 0.0
    total: float = 0.0
    unit: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    retryable: bool = False
    polled_at: float = field(default_factory=time.monotonic)
    started_at: float = 0.0  # start of its work
    ended_at: float = 0.0  # also set by a cancellation while it still runs
    cancelled_at: float = 0.0  # time of the cancellation, for a job that saves before it ends
    cancel_reason: str = ""  # reason of that cancellation
    running: bool = False  # the process has it
    address: str = field(default_factory=CLIENT_ADDRESS.get)  # of the client that sent the request
    label: str = ""  # names from the request; the rest is dropped when the job is over

    @property
    def is_heavy(self) -> bool:
        return self.kind not in CONCURRENT_KINDS

    def finish(self, status: str, message: str = "", retryable: bool = False) -> None:
        if self.status not in TERMINAL_STATUSES:
            self.message, self.retryable, self.ended_at = message, retryable, time.monotonic()
            self.label, self.request = self.describe_request(), {}
            self.status = status  # last: `JobQueue.poll` reads without a lock

    def describe_request(self) -> str:
        """Return the names in the request, for a message about the end of the job."""
        if self.label:
            return self.label
        named = self.request.get("models", self.request.get("model", self.request.get("name", "")))
        names = [
            each
            for each in (named if isinstance(named, list) else [named])
            if isinstance(each, str) and each
        ]
        return ", ".join(name[:80] for name in names[:4]) or self.kind


class JobQueue:
    """The job queue of a server.

    Args:
        hosted: the instance is shared: local folders are not allowed as models, downloads are
            smaller, and a job has a time limit while others wait.
    """

    def __init__(self, hosted: bool = False) -> None:
        self.hosted = hosted
        self._jobs: dict[str, Job] = {}
        self._lock = threading.RLock()
        self._sequence = itertools.count()
        self._process: WorkerProcess | None = None
        self._last_used_at = time.monotonic()
        self._thread_running = False
        self._closed = False

    def submit(self, kind: str, request: dict[str, Any], owner: str) -> str:
        """Submit a job and return its id.

        Raises:
            UserError: for an unknown kind, or if the owner, the address or all users have too
                many jobs.
        """
        kind = job_kind(kind)
        if kind not in ENTRY_POINTS or not isinstance(request, dict):
            raise UserError(
                f"{str(kind)[:40]!r} is not a kind of job; choose one of {', '.join(ENTRY_POINTS)}"
            )
        with self._lock:
            active = [job for job in self._jobs.values() if job.status not in TERMINAL_STATUSES]
            same_weight = [
                job
                for job in active
                if job.owner == owner
                and (job.kind in CONCURRENT_KINDS) == (kind in CONCURRENT_KINDS)
            ]
            if len(same_weight) >= (
                MAX_LIGHT_JOBS_PER_OWNER if kind in CONCURRENT_KINDS else MAX_JOBS_PER_OWNER
            ):
                raise UserError(
                    f"{len(same_weight)} of your jobs are still queued or running; wait for one, "
                    "or cancel it",
                    retryable=True,
                )
            if uses_full_share((job.address for job in active), MAX_CONCURRENT_JOBS):
                limit = max_per_address(MAX_CONCURRENT_JOBS)
                raise UserError(
                    f"{limit} jobs from your address are still queued or running, the maximum; "
                    "wait for one, or cancel one",
                    retryable=True,
                )
            if len(active) >= MAX_CONCURRENT_JOBS:
                raise UserError("too many jobs are running; try again in a minute", retryable=True)
            # before the first job, which could not time out without it
            if not self._thread_running:
                try:
                    threading.Thread(
                        target=self._housekeeping_loop, name="comparer-housekeeping", daemon=True
                    ).start()
                except RuntimeError:
                    log.exception("The housekeeping thread of the job queue could not be started")
                    raise UserError(
                        "this machine has no free thread; try again in a minute", retryable=True
                    ) from None
                self._thread_running = True
            job = Job(secrets.token_urlsafe(12), owner, kind, request, next(self._sequence))
            self._jobs[job.id] = job
            self._prune()
            self._schedule()
            return job.id

    def poll(self, job: str, owner: str, cursor: int = 0) -> dict[str, Any]:
        """Return the status of a job and its rows from `cursor` on.

        `place` is the number of jobs before it in the queue.

        Raises:
            UserError: if this owner has no such job, or no longer.
        """
        # No lock, because this runs on the event loop and the lock may be held while a process
        # starts. The status is read before the other fields and written after them (`Job.end`),
        # so a response with a final status has all rows and the result.
        queued_job = self._find(job, owner)
        queued_job.polled_at = time.monotonic()
        status = queued_job.status
        start = min(max(cursor, 0), len(queued_job.rows)) if isinstance(cursor, int) else 0
        rows = queued_job.rows[start:]
        before = (
            [each for each in self._exclusive() if each.sequence < queued_job.sequence]
            if status == "waiting"
            else []
        )
        return {
            "status": status,
            "kind": queued_job.kind,
            "message": queued_job.message,
            "done": queued_job.done,
            "total": queued_job.total,
            "unit": queued_job.unit,
            "rows": rows,
            "cursor": start + len(rows),
            "result": queued_job.result,
            "again": queued_job.retryable,
            "queue_position": len(before),
        }

    def cancel(self, job: str, owner: str) -> None:
        """Cancel a job; its rows stay. A finished job does not change.

        Raises:
            UserError: if this owner has no such job.
        """
        with self._lock:
            self._cancel(self._find(job, owner), "cancelled; the results so far are available")

    def close(self) -> None:
        """End the process and all jobs."""
        with self._lock:
            self._closed = True
            for job in self._jobs.values():
                job.finish("cancelled", "the playground is shutting down")
            if self._process:
                self._process.kill()

    @property
    def process_id(self) -> int | None:
        """The id of the process, or None if it does not run."""
        with self._lock:
            return self._process.process.pid if self._process else None

    # With the lock held

    def _find(self, job: object, owner: str) -> Job:
        queued_job = self._jobs.get(job) if isinstance(job, str) else None
        if queued_job is None or not secrets.compare_digest(
            queued_job.owner.encode(), str(owner).encode("utf-8", "replace")
        ):
            raise UserError("this result is no longer stored; run the job again")
        return queued_job

    def _exclusive(self) -> list[Job]:
        """Return the heavy jobs that wait or run, oldest first.

        A cancelled one counts until the process has ended it.
        """
        return sorted(
            (
                job
                for job in list(self._jobs.values())
                if job.is_heavy and (job.running or job.status == "waiting")
            ),
            key=lambda job: job.sequence,
        )

    def _others_waiting(self, job: Job) -> bool:
        """Return whether another owner has a heavy job in the queue."""
        return any(
            other.status == "waiting" and other.owner != job.owner for other in self._exclusive()
        )

    def _cancel(self, job: Job, reason: str) -> None:
        if job.status in TERMINAL_STATUSES or job.cancelled_at:
            return
        if (
            job.running
            and job.kind in SAVES_ON_CANCEL
            and self._process
            and self._process.send("cancel", job.id)
        ):
            job.cancelled_at, job.cancel_reason, job.message = (
                time.monotonic(),
                reason,
                "cancelled; saving the model trained so far",
            )
            return
        job.finish("cancelled", reason)
        if job.running and self._process:
            self._process.send("cancel", job.id)
        self._schedule()

    def _prune(self) -> None:
        """Delete the oldest finished jobs above the limits per owner and in total."""
        over = [
            job
            for job in self._jobs.values()
            if job.status in TERMINAL_STATUSES and not job.running
        ]
        of_owner: Counter[tuple[str, bool]] = Counter()
        retained = 0
        for job in sorted(over, key=lambda job: (job.ended_at, job.sequence), reverse=True):
            of_owner[job.owner, job.is_heavy] += 1
            if (
                of_owner[job.owner, job.is_heavy] > MAX_RETAINED_PER_OWNER
                or retained == MAX_RETAINED_TOTAL
            ):
                del self._jobs[job.id]
            else:
                retained += 1

    def _schedule(self) -> None:
        """Send the jobs that may run now to the process, and start it if necessary."""
        busy = any(job.running for job in self._exclusive())
        for job in sorted(self._jobs.values(), key=lambda job: job.sequence):
            if self._closed or job.status != "waiting" or (job.is_heavy and busy):
                continue
            if self._process is None or self._process.exited.is_set():
                self._start()
                if self._process is None:
                    job.finish("failed", _exit_reason(None, job), retryable=True)
                    continue
            if self._process and self._process.send("begin", job.id, job.kind, job.request):
                job.status, job.running, self._last_used_at = "working", True, time.monotonic()
                job.started_at = self._last_used_at
                busy = busy or job.is_heavy

    def _start(self) -> None:
        """Start the process; `_process` stays None if the system cannot start one."""
        local = {"PLAYGROUND_LOCAL_MODELS": "0" if self.hosted else "1"}
        if self.hosted:  # the model cache of the machine's owner is private
            home = str(model_cache_dir())
            local |= {"PLAYGROUND_MODELS": home, "HF_HUB_CACHE": home}
        is_default = self.hosted and not is_env_set("MAX_MODEL_MB")
        environment = {"PLAYGROUND_MAX_MODEL_MB": "600"} if is_default else {}
        inherited = {
            name: value for name, value in os.environ.items() if name.startswith(FORWARDED_ENV)
        }
        settings = environment | inherited | local | QUIET_ENV | {"HF_TOKEN": ""}

        def take(word: str, job_id: str, *content: Any) -> None:
            with self._lock:
                self._on_message(word, self._jobs.get(job_id), content)

        def end(code: int | None) -> None:
            with self._lock:
                if self._process is child:
                    self._process = None
                lost = [job for job in self._jobs.values() if job.running]
                for job in lost:
                    job.running = False
                    job.finish("failed", _exit_reason(code, job), retryable=True)
                self._schedule()

        self._process = None
        try:
            child = WorkerProcess(
                "playground.comparison.process:main",
                "comparer",
                settings,
                on_message=take,
                on_exit=end,
            )
        except (OSError, RuntimeError):  # no thread or file descriptor is free
            log.exception("The process of the pretrained models could not be started")
            return
        self._process = child

    def _on_message(self, message_type: str, job: Job | None, content: tuple[Any, ...]) -> None:
        self._last_used_at = time.monotonic()
        if job is None:
            return
        if message_type in ("result", "failed", "cancelled"):
            job.running = False
        if job.status == "working":
            if message_type == "message" and not job.cancelled_at:
                job.message, job.done, job.total, job.unit = content[0], 0.0, 0.0, ""
            elif message_type == "progress":
                job.done, job.total, job.unit = content
            elif message_type == "row" and len(job.rows) < MAX_ROWS:
                job.rows.append(content[0])
            elif message_type == "result":
                job.result = content[0]
                # a job may have finished before the cancellation reached it
                early = job.cancelled_at and content[0].get("cancelled")
                job.finish("cancelled" if early else "done", job.cancel_reason if early else "")
            elif message_type == "failed":
                job.finish("failed", *content)
            elif message_type == "cancelled":
                job.finish(
                    "cancelled", job.cancel_reason or "cancelled; the results so far are available"
                )
        if not job.running:
            self._schedule()

    def _housekeeping_loop(self) -> None:
        failure = ""
        while not self._closed:
            time.sleep(HOUSEKEEPING_INTERVAL_S)
            try:
                with self._lock:
                    self._housekeep(time.monotonic())
            except Exception as error:  # without this thread no job would ever time out
                if repr(error) != failure:  # the same error would be logged twice a second
                    failure = repr(error)
                    log.exception("The housekeeping of the job queue failed")

    def _housekeep(self, now: float) -> None:
        waiting = any(job.status == "waiting" for job in self._jobs.values())
        for job in list(self._jobs.values()):
            if (
                job.status not in TERMINAL_STATUSES
                and waiting
                and now - job.polled_at > UNPOLLED_TIMEOUT_S
            ):
                self._cancel(
                    job,
                    "removed because its page no longer polls and other jobs wait; run it again",
                )
            elif (
                self.hosted
                and job.status == "working"
                and job.is_heavy
                and now - job.started_at > MAX_TURN_S
                and self._others_waiting(job)
            ):
                minutes = f"{MAX_TURN_S / 60:.0f} minutes"
                self._cancel(
                    job,
                    f"stopped after {minutes} because other jobs wait; the results so far are "
                    "available; request less to finish in time",
                )
            if (
                job.status in TERMINAL_STATUSES
                and not job.running
                and now - job.ended_at > JOB_TTL_S
            ):
                del self._jobs[job.id]
        self._prune()
        at_work = [job for job in self._jobs.values() if job.running]
        unresponsive = any(
            (job.status in TERMINAL_STATUSES and now - job.ended_at > CANCEL_TIMEOUT_S)
            or (job.cancelled_at and now - job.cancelled_at > SAVE_TIMEOUT_S)
            for job in at_work
        )
        if self._process and (
            unresponsive or (not at_work and now - self._last_used_at > IDLE_TIMEOUT_S)
        ):
            self._process.kill()


def model_cache_dir() -> Path:
    """Return the model cache of a shared instance.

    It is `PLAYGROUND_MODELS`, or a folder among the checkpoints.
    """
    return Path(os.environ.get("PLAYGROUND_MODELS") or checkpoints_root() / "models").absolute()


def _exit_reason(code: int | None, job: Job) -> str:
    """Describe why a job failed whose process has ended."""
    if code is None:
        return (
            f"{job.describe_request()}: no process could be started on this machine; end a run "
            "and try again"
        )
    killed = (
        " (killed, probably because the machine ran out of memory)"
        if code in (-9, 137)
        else f" (exit code {code})"
    )
    return (
        f"{job.describe_request()}: the process ended{killed}; the rows so far are available; try "
        "again, or use a smaller model"
    )
