"""The job queue of the pretrained models: one heavy job at a time; jobs are private to an owner.

The process (work.py) starts with the first job. If a cancelled job does not end in time, or the
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

from playground import CHECKPOINTS_DIR
from playground.runs.addresses import CLIENT_ADDRESS, half_of, holds_share
from playground.runs.processes import Child
from playground.training.environment import is_env_set

from .work import KINDS, LIGHT, QUIET, Refused

log = logging.getLogger(__name__)

JOBS_AN_OWNER = 2
LIGHT_JOBS_AN_OWNER = 4
JOBS_AT_ONCE = 16
KEPT_FOR = 900.0  # seconds for which the rows and the result of a finished job are stored
KEPT_AN_OWNER = 8  # finished jobs per owner, heavy and light ones separately; the oldest goes first
KEPT_IN_ALL = 64
DEAF_FOR = 20.0  # seconds for a cancelled job to end before its process is killed
SAVING_FOR = 300.0  # the same for a job that saves first: it ends its step and writes the model
SAVED_FIRST = ("finetune",)  # kinds that save their result when they are cancelled
FORGOTTEN_AFTER = 180.0  # seconds without a poll after which a job is dropped while others wait
# on a shared instance: seconds of work after which a heavy job ends if others wait
TURN = 300.0
IDLE_FOR = 1200.0  # seconds without a job after which the process ends and frees its memory
MOST_ROWS = 20_000  # per job
HOUSEKEEPING = 0.5
OVER = ("done", "failed", "cancelled")
# passed on explicitly, because the fork server may have started with other values
PASSED_ON = (
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
    what: dict[str, Any]
    number: int
    status: str = "waiting"  # or working, done, failed, cancelled
    sentence: str = ""
    done: float = 0.0
    total: float = 0.0
    unit: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    again: bool = False
    polled_at: float = field(default_factory=time.monotonic)
    began_at: float = 0.0  # start of its work
    ended_at: float = 0.0  # also set by a cancellation while it still runs
    left_at: float = 0.0  # time of the cancellation, for a job that saves before it ends
    why: str = ""  # reason of that cancellation
    at_work: bool = False  # the process has it
    address: str = field(default_factory=CLIENT_ADDRESS.get)  # of the client that sent the request
    about: str = ""  # names from the request; the rest is dropped when the job is over

    @property
    def heavy(self) -> bool:
        return self.kind not in LIGHT

    def end(self, status: str, sentence: str = "", again: bool = False) -> None:
        if self.status not in OVER:
            self.sentence, self.again, self.ended_at = sentence, again, time.monotonic()
            self.about, self.what = self.naming(), {}
            self.status = status  # last: `Comparer.poll` reads without a lock

    def naming(self) -> str:
        """Return the names in the request, for a message about the end of the job."""
        if self.about:
            return self.about
        named = self.what.get("models", self.what.get("model", self.what.get("name", "")))
        names = [
            each
            for each in (named if isinstance(named, list) else [named])
            if isinstance(each, str) and each
        ]
        return ", ".join(name[:80] for name in names[:4]) or self.kind


class Comparer:
    """The job queue of a server.

    Args:
        hosted: the instance is shared: local folders are not allowed as models, downloads are
            smaller, and a job has a time limit while others wait.
    """

    def __init__(self, hosted: bool = False) -> None:
        self.hosted = hosted
        self._jobs: dict[str, Job] = {}
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._child: Child | None = None
        self._used_at = time.monotonic()
        self._watching = False
        self._closed = False

    def begin(self, kind: str, what: dict[str, Any], owner: str) -> str:
        """Submit a job and return its id.

        Raises:
            Refused: for an unknown kind, or if the owner, the address or all users have too
                many jobs.
        """
        if kind not in KINDS or not isinstance(what, dict):
            raise Refused(
                f"{str(kind)[:40]!r} is not a kind of job; choose one of {', '.join(KINDS)}"
            )
        with self._lock:
            going = [job for job in self._jobs.values() if job.status not in OVER]
            alike = [
                job
                for job in going
                if job.owner == owner and (job.kind in LIGHT) == (kind in LIGHT)
            ]
            if len(alike) >= (LIGHT_JOBS_AN_OWNER if kind in LIGHT else JOBS_AN_OWNER):
                raise Refused(
                    f"{len(alike)} of your jobs are still queued or running; wait for one, or "
                    "cancel it",
                    again=True,
                )
            if holds_share((job.address for job in going), JOBS_AT_ONCE):
                most = half_of(JOBS_AT_ONCE)
                raise Refused(
                    f"{most} jobs from your address are still queued or running, the maximum; "
                    "wait for one, or cancel one",
                    again=True,
                )
            if len(going) >= JOBS_AT_ONCE:
                raise Refused("too many jobs are running; try again in a minute", again=True)
            if not self._watching:  # before the first job, which could not time out without it
                try:
                    threading.Thread(
                        target=self._keep_house, name="comparer-housekeeping", daemon=True
                    ).start()
                except RuntimeError:
                    log.exception("The housekeeping thread of the job queue could not be started")
                    raise Refused(
                        "this machine has no free thread; try again in a minute", again=True
                    ) from None
                self._watching = True
            job = Job(secrets.token_urlsafe(12), owner, kind, what, next(self._numbers))
            self._jobs[job.id] = job
            self._forget()
            self._go_on()
            return job.id

    def poll(self, job: str, owner: str, cursor: int = 0) -> dict[str, Any]:
        """Return the status of a job and its rows from `cursor` on.

        `place` is the number of jobs before it in the queue.

        Raises:
            Refused: if this owner has no such job, or no longer.
        """
        # No lock, because this runs on the event loop and the lock may be held while a process
        # starts. The status is read before the other fields and written after them (`Job.end`),
        # so a response with a final status has all rows and the result.
        found = self._find(job, owner)
        found.polled_at = time.monotonic()
        status = found.status
        start = min(max(cursor, 0), len(found.rows)) if isinstance(cursor, int) else 0
        rows = found.rows[start:]
        before = (
            [each for each in self._heavy() if each.number < found.number]
            if status == "waiting"
            else []
        )
        return {
            "status": status,
            "kind": found.kind,
            "sentence": found.sentence,
            "done": found.done,
            "total": found.total,
            "unit": found.unit,
            "rows": rows,
            "cursor": start + len(rows),
            "result": found.result,
            "again": found.again,
            "place": len(before),
        }

    def cancel(self, job: str, owner: str) -> None:
        """Cancel a job; its rows stay. A finished job does not change.

        Raises:
            Refused: if this owner has no such job.
        """
        with self._lock:
            self._cancel(self._find(job, owner), "cancelled; the results so far are available")

    def close(self) -> None:
        """End the process and all jobs."""
        with self._lock:
            self._closed = True
            for job in self._jobs.values():
                job.end("cancelled", "the playground is shutting down")
            if self._child:
                self._child.kill()

    @property
    def process_id(self) -> int | None:
        """The id of the process, or None if it does not run."""
        with self._lock:
            return self._child.process.pid if self._child else None

    # With the lock held

    def _find(self, job: object, owner: str) -> Job:
        found = self._jobs.get(job) if isinstance(job, str) else None
        if found is None or not secrets.compare_digest(
            found.owner.encode(), str(owner).encode("utf-8", "replace")
        ):
            raise Refused("this result is no longer stored; run the job again")
        return found

    def _heavy(self) -> list[Job]:
        """Return the heavy jobs that wait or run, oldest first.

        A cancelled one counts until the process has ended it.
        """
        return sorted(
            (
                job
                for job in list(self._jobs.values())
                if job.heavy and (job.at_work or job.status == "waiting")
            ),
            key=lambda job: job.number,
        )

    def _keeps_waiting(self, job: Job) -> bool:
        """Return whether another owner has a heavy job in the queue."""
        return any(
            other.status == "waiting" and other.owner != job.owner for other in self._heavy()
        )

    def _cancel(self, job: Job, sentence: str) -> None:
        if job.status in OVER or job.left_at:
            return
        if (
            job.at_work
            and job.kind in SAVED_FIRST
            and self._child
            and self._child.send("cancel", job.id)
        ):
            job.left_at, job.why, job.sentence = (
                time.monotonic(),
                sentence,
                "cancelled; saving the model trained so far",
            )
            return
        job.end("cancelled", sentence)
        if job.at_work and self._child:
            self._child.send("cancel", job.id)
        self._go_on()

    def _forget(self) -> None:
        """Delete the oldest finished jobs above the limits per owner and in total."""
        over = [job for job in self._jobs.values() if job.status in OVER and not job.at_work]
        of_owner: Counter[tuple[str, bool]] = Counter()
        kept = 0
        for job in sorted(over, key=lambda job: (job.ended_at, job.number), reverse=True):
            of_owner[job.owner, job.heavy] += 1
            if of_owner[job.owner, job.heavy] > KEPT_AN_OWNER or kept == KEPT_IN_ALL:
                del self._jobs[job.id]
            else:
                kept += 1

    def _go_on(self) -> None:
        """Send the jobs that may run now to the process, and start it if necessary."""
        busy = any(job.at_work for job in self._heavy())
        for job in sorted(self._jobs.values(), key=lambda job: job.number):
            if self._closed or job.status != "waiting" or (job.heavy and busy):
                continue
            if self._child is None or self._child.ended.is_set():
                self._start()
                if self._child is None:
                    job.end("failed", _ended(None, job), again=True)
                    continue
            if self._child and self._child.send("begin", job.id, job.kind, job.what):
                job.status, job.at_work, self._used_at = "working", True, time.monotonic()
                job.began_at = self._used_at
                busy = busy or job.heavy

    def _start(self) -> None:
        """Start the process; `_child` stays None if the system cannot start one."""
        local = {"PLAYGROUND_LOCAL_MODELS": "0" if self.hosted else "1"}
        if self.hosted:  # the model cache of the machine's owner is private
            home = str(models_home())
            local |= {"PLAYGROUND_MODELS": home, "HF_HUB_CACHE": home}
        is_default = self.hosted and not is_env_set("MAX_MODEL_MB")
        usual = {"PLAYGROUND_MAX_MODEL_MB": "600"} if is_default else {}
        inherited = {
            name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)
        }
        settings = usual | inherited | local | QUIET | {"HF_TOKEN": ""}

        def take(word: str, job_id: str, *content: Any) -> None:
            with self._lock:
                self._take(word, self._jobs.get(job_id), content)

        def end(code: int | None) -> None:
            with self._lock:
                if self._child is child:
                    self._child = None
                lost = [job for job in self._jobs.values() if job.at_work]
                for job in lost:
                    job.at_work = False
                    job.end("failed", _ended(code, job), again=True)
                self._go_on()

        self._child = None
        try:
            child = Child(
                "playground.comparison.work:serve",
                "comparer",
                settings,
                on_message=take,
                on_end=end,
            )
        except (OSError, RuntimeError):  # no thread or file descriptor is free
            log.exception("The process of the pretrained models could not be started")
            return
        self._child = child

    def _take(self, word: str, job: Job | None, content: tuple[Any, ...]) -> None:
        self._used_at = time.monotonic()
        if job is None:
            return
        if word in ("result", "failed", "cancelled"):
            job.at_work = False
        if job.status == "working":
            if word == "say" and not job.left_at:
                job.sentence, job.done, job.total, job.unit = content[0], 0.0, 0.0, ""
            elif word == "share":
                job.done, job.total, job.unit = content
            elif word == "row" and len(job.rows) < MOST_ROWS:
                job.rows.append(content[0])
            elif word == "result":
                job.result = content[0]
                # a job may have finished before the cancellation reached it
                early = job.left_at and content[0].get("cancelled")
                job.end("cancelled" if early else "done", job.why if early else "")
            elif word == "failed":
                job.end("failed", *content)
            elif word == "cancelled":
                job.end("cancelled", job.why or "cancelled; the results so far are available")
        if not job.at_work:
            self._go_on()

    def _keep_house(self) -> None:
        failure = ""
        while not self._closed:
            time.sleep(HOUSEKEEPING)
            try:
                with self._lock:
                    self._look_after(time.monotonic())
            except Exception as error:  # without this thread no job would ever time out
                if repr(error) != failure:  # the same error would be logged twice a second
                    failure = repr(error)
                    log.exception("The housekeeping of the job queue failed")

    def _look_after(self, now: float) -> None:
        waiting = any(job.status == "waiting" for job in self._jobs.values())
        for job in list(self._jobs.values()):
            if job.status not in OVER and waiting and now - job.polled_at > FORGOTTEN_AFTER:
                self._cancel(
                    job,
                    "removed because its page no longer polls and other jobs wait; run it again",
                )
            elif (
                self.hosted
                and job.status == "working"
                and job.heavy
                and now - job.began_at > TURN
                and self._keeps_waiting(job)
            ):
                minutes = f"{TURN / 60:.0f} minutes"
                self._cancel(
                    job,
                    f"stopped after {minutes} because other jobs wait; the results so far are "
                    "available; request less to finish in time",
                )
            if job.status in OVER and not job.at_work and now - job.ended_at > KEPT_FOR:
                del self._jobs[job.id]
        self._forget()
        at_work = [job for job in self._jobs.values() if job.at_work]
        deaf = any(
            (job.status in OVER and now - job.ended_at > DEAF_FOR)
            or (job.left_at and now - job.left_at > SAVING_FOR)
            for job in at_work
        )
        if self._child and (deaf or (not at_work and now - self._used_at > IDLE_FOR)):
            self._child.kill()


def models_home() -> Path:
    """Return the model cache of a shared instance.

    It is `PLAYGROUND_MODELS`, or a folder among the checkpoints.
    """
    root = os.environ.get("PLAYGROUND_CHECKPOINTS") or CHECKPOINTS_DIR
    return Path(os.environ.get("PLAYGROUND_MODELS") or Path(root) / "models").absolute()


def _ended(code: int | None, job: Job) -> str:
    """Describe why a job failed whose process has ended."""
    if code is None:
        return (
            f"{job.naming()}: no process could be started on this machine; end a run and try again"
        )
    killed = (
        " (killed, probably because the machine ran out of memory)"
        if code in (-9, 137)
        else f" (exit code {code})"
    )
    return (
        f"{job.naming()}: the process ended{killed}; the rows so far are available; try again, "
        "or use a smaller model"
    )
