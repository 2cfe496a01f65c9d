"""The page's side of the comparer: jobs wait in line here, one heavy one at a time, and each is found by its owner only.

The process (work.py) starts with the first job. A job that does not hear that it was cancelled, or whose process dies, costs that
process and no other job: those that wait go on in a new one. Imports neither torch nor transformers.
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
KEPT_FOR = 900.0  # seconds that the rows and the result of a job can be asked for
KEPT_AN_OWNER = 8  # jobs that are over, heavy and light ones apart; the oldest goes first
KEPT_IN_ALL = 64
DEAF_FOR = 20.0  # seconds that a cancelled job may take to end before its process is ended
SAVING_FOR = 300.0  # likewise of one that saves first: it takes its step to the end and writes the whole model
SAVED_FIRST = ("finetune",)  # kinds of which something is kept when they are cancelled
FORGOTTEN_AFTER = 180.0  # seconds without a poll after which a job is given up while others wait
TURN = 300.0  # where strangers share the machine: seconds of work after which a heavy job makes way for the others that wait
IDLE_FOR = 1200.0  # seconds without a job after which the process ends, and gives its memory back
MOST_ROWS = 20_000  # of one job
HOUSEKEEPING = 0.5
OVER = ("done", "failed", "cancelled")
PASSED_ON = (
    "HF_",
    "PLAYGROUND_",
    "TRANSFORMERS_",
    "OMP_",
    "SPACE_ID",
)  # a fork server may have started under others


@dataclass
class Job:
    """Something that the comparer does, or did."""

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
    began_at: float = 0.0  # its work
    ended_at: float = 0.0  # also when it was cancelled but is still at it
    left_at: float = 0.0  # when it was cancelled, of one that saves before it ends
    why: str = ""  # it was cancelled, likewise
    at_work: bool = False  # the process has it
    address: str = field(default_factory=CLIENT_ADDRESS.get)  # of the client that asked
    about: str = ""  # what was asked for, in a few names; the rest is not kept once it is over

    @property
    def heavy(self) -> bool:
        return self.kind not in LIGHT

    def end(self, status: str, sentence: str = "", again: bool = False) -> None:
        if self.status not in OVER:
            self.sentence, self.again, self.ended_at = sentence, again, time.monotonic()
            self.about, self.what = self.naming(), {}
            self.status = status  # last: `Comparer.poll` reads without a lock

    def naming(self) -> str:
        """What it was about, for a sentence about its end."""
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
    """All jobs of a server.

    Args:
        hosted: strangers come: folders of this machine are no models, downloads are smaller, and a job has a turn of so many seconds
            while others wait.
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
        """Put a job in line; its id.

        Raises:
            Refused: for a kind that there is not, or when the owner, the address or all have too many under way.
        """
        if kind not in KINDS or not isinstance(what, dict):
            raise Refused(
                f"{str(kind)[:40]!r} is nothing that is done here; choose one of {', '.join(KINDS)}"
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
                    f"{len(alike)} of your questions are still being answered; wait for one, or cancel it",
                    again=True,
                )
            if holds_share((job.address for job in going), JOBS_AT_ONCE):
                most = half_of(JOBS_AT_ONCE)
                raise Refused(f"{most} questions from your address are still being answered, as many as may be; wait for one, "
                              "or cancel one", again=True)  # fmt: skip
            if len(going) >= JOBS_AT_ONCE:
                raise Refused("many others are asking right now; try again in a minute", again=True)
            if not self._watching:  # before there is a job, which nothing would time out without it
                try:
                    threading.Thread(
                        target=self._keep_house, name="comparer-housekeeping", daemon=True
                    ).start()
                except RuntimeError:
                    log.exception("The housekeeping of the comparer could not be started")
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
        """How a job stands, with its rows from `cursor` on. `place`: how many are before it in line.

        Raises:
            Refused: when this owner has no such job, any more.
        """
        # Without the lock: this runs on the event loop, and who holds the lock may be starting a process. The status is read before the
        # rest and written after it (`Job.end`), so whoever reads that a job is over also reads all its rows and its result.
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
            "status": status, "kind": found.kind, "sentence": found.sentence,
            "done": found.done, "total": found.total, "unit": found.unit,
            "rows": rows, "cursor": start + len(rows), "result": found.result, "again": found.again,
            "place": len(before),
        }  # fmt: skip

    def cancel(self, job: str, owner: str) -> None:
        """End a job; the rows that it has told stay. One that is over stays as it is.

        Raises:
            Refused: when this owner has no such job.
        """
        with self._lock:
            self._cancel(self._find(job, owner), "cancelled; what had come before stays")

    def close(self) -> None:
        """End the process, and every job with it."""
        with self._lock:
            self._closed = True
            for job in self._jobs.values():
                job.end("cancelled", "the playground is ending")
            if self._child:
                self._child.kill()

    @property
    def process_id(self) -> int | None:
        """The process that does the work, while there is one."""
        with self._lock:
            return self._child.process.pid if self._child else None

    # With the lock held

    def _find(self, job: object, owner: str) -> Job:
        found = self._jobs.get(job) if isinstance(job, str) else None
        if found is None or not secrets.compare_digest(
            found.owner.encode(), str(owner).encode("utf-8", "replace")
        ):
            raise Refused("this answer is not kept any more; ask again")
        return found

    def _heavy(self) -> list[Job]:
        """The heavy jobs that wait or are at work, first come first; a cancelled one counts until the process is done with it."""
        return sorted(
            (
                job
                for job in list(self._jobs.values())
                if job.heavy and (job.at_work or job.status == "waiting")
            ),
            key=lambda job: job.number,
        )

    def _keeps_waiting(self, job: Job) -> bool:
        """Whether somebody else has a heavy job in line."""
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
                "cancelled; what it has learned is being saved",
            )
            return
        job.end("cancelled", sentence)
        if job.at_work and self._child:
            self._child.send("cancel", job.id)
        self._go_on()

    def _forget(self) -> None:
        """Drop the oldest jobs that are over, where an owner has too many of them, or all have."""
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
        """Send what may run now to the process, which is started where there is none."""
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
        """Start the process; `_child` is None where this machine cannot."""
        local = {"PLAYGROUND_LOCAL_MODELS": "0" if self.hosted else "1"}
        if self.hosted:  # the cache of whoever owns this machine is nobody else's
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
            log.exception("The process of the comparer could not be started")
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
                early = job.left_at and content[0].get("cancelled")  # it may have been done by then
                job.end("cancelled" if early else "done", job.why if early else "")
            elif word == "failed":
                job.end("failed", *content)
            elif word == "cancelled":
                job.end("cancelled", job.why or "cancelled; what had come before stays")
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
                if repr(error) != failure:  # the same one comes twice a second
                    failure = repr(error)
                    log.exception("The housekeeping of the comparer failed")

    def _look_after(self, now: float) -> None:
        waiting = any(job.status == "waiting" for job in self._jobs.values())
        for job in list(self._jobs.values()):
            if job.status not in OVER and waiting and now - job.polled_at > FORGOTTEN_AFTER:
                self._cancel(
                    job, "nobody asked for it any more, and others were waiting; ask again"
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
                    f"it had worked for {minutes} and others were waiting; what had come stays, and less fits into a turn",
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
    """Where models are kept that strangers had fetched: `PLAYGROUND_MODELS`, or a folder among the checkpoints."""
    root = os.environ.get("PLAYGROUND_CHECKPOINTS") or CHECKPOINTS_DIR
    return Path(os.environ.get("PLAYGROUND_MODELS") or Path(root) / "models").absolute()


def _ended(code: int | None, job: Job) -> str:
    """Why a job is lost whose process has died."""
    if code is None:
        return f"{job.naming()}: no process could be started for it on this machine; end a run and try again"
    killed = (
        " (killed, which is what a machine does that runs out of memory)"
        if code in (-9, 137)
        else f" (exit code {code})"
    )
    return f"{job.naming()}: the process that was at it ended{killed}; rows that had come stay; try again, or a smaller model"
