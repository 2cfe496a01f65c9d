"""A job: work in the background, with a status, progress and a result."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from .admission import CLIENT_ADDRESS

Response = dict[str, Any]


class JobStatus(StrEnum):
    """The status of a job; the HTTP API uses these values."""

    QUEUED = "waiting"
    RUNNING = "working"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL_STATUSES = (JobStatus.DONE, JobStatus.FAILED, JobStatus.CANCELLED)


class Progress(NamedTuple):
    """How much of a job is done."""

    done: float = 0.0
    total: float = 0.0
    unit: str = ""


NO_PROGRESS = Progress()


@dataclass(eq=False)
class Job:
    """One call of a function in another process.

    `future` gets the response of the job: its result, or a dictionary with `error`.
    """

    kind: str
    arguments: tuple[Any, ...] = field(default=(), repr=False)  # dropped at the end of the job
    owner: str = ""
    address: str = field(default_factory=CLIENT_ADDRESS.get)  # of the client that requested it
    label: str = ""  # a name for messages about the job, such as that of its model
    timeout_s: float | None = None  # instead of that of the policy
    shared: bool = False  # every owner may read it
    may_read: Callable[[], bool] | None = None  # whether its owner still may read it
    on_progress: Callable[[Job], None] | None = None
    # Converts the result before the job is done; a UserError makes the job fail.
    on_result: Callable[[Response], Response] | None = None
    is_ready: bool = True  # False until `JobQueue.release`: it waits for other work
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))

    status: JobStatus = JobStatus.QUEUED
    message: str = ""
    phase: Any = None  # the phase of the work, as the job reports it
    progress: Progress = NO_PROGRESS
    rows: list[dict[str, Any]] = field(default_factory=list)  # results so far, in order
    partial: dict[str, Any] = field(default_factory=dict)  # the latest result so far
    result: Response | None = None
    error: Response = field(default_factory=dict)  # why an ended job has no result
    queue_position: int = 0  # number of jobs before it
    future: Future[Response] = field(default_factory=Future, repr=False)
    released: threading.Event = field(default_factory=threading.Event, repr=False)

    created_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    polled_at: float = 0.0
    last_message_at: float = 0.0
    extra_silence_s: float = 0.0  # seconds that the current operation may take without a message
    is_converting: bool = False  # its process has ended, and `on_result` handles the result
    cancelled_at: float | None = None
    cancel_reason: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the job is queued or running."""
        return self.status not in TERMINAL_STATUSES

    def response(self) -> Response:
        """Return the result, or the error of a job that has none."""
        if self.status is JobStatus.DONE:
            return self.result or {}
        return self.error

    def to_json(self, cursor: int = 0) -> Response:
        """Return the state of the job, with its rows from `cursor` on."""
        # The status is read before the other fields, and the queue writes it after them. A
        # response with a final status therefore has all rows and the result.
        status = self.status
        start = min(max(cursor, 0), len(self.rows)) if isinstance(cursor, int) else 0
        rows = self.rows[start:]
        done, total, unit = self.progress
        return {
            "status": status.value,
            "kind": self.kind,
            "message": self.message,
            "done": done,
            "total": total,
            "unit": unit,
            "rows": rows,
            "cursor": start + len(rows),
            "partial": self.partial,
            "result": self.result,
            "retryable": self.error.get("retryable", False),
            "code": self.error.get("code", ""),
            "queue_position": self.queue_position if status is JobStatus.QUEUED else 0,
        }
