"""The server's side of errands on the Hub: at most so many at a time, each in a process of its own that is ended when it says
nothing for too long, each found by its owner only. Imports neither torch nor huggingface_hub.

A run can also be published as it goes on: every so many minutes its latest checkpoint becomes a commit on a branch, so that a
machine whose disk does not last loses nothing. The token for that stays in memory, and only as long as the run goes on.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from playground.runs.addresses import CLIENT_ADDRESS, half_of, holds_share
from playground.runs.processes import Child
from playground.runs.registry import Registry
from playground.runs.run import WORKING, Refused, Run

from .names import Phase, is_repo
from .work import LOADING_FOR, Errand

SILENT_FOR = 100.0  # seconds without a word after which an errand is given up; the client's own retries end before
ERRANDS_AT_ONCE = 4
ERRANDS_AN_OWNER = 2
MOST_KEPT = 100  # results
KEPT_FOR = 900.0  # seconds that the result of an errand can be asked for
HOUSEKEEPING = 0.5
LISTED_FOR = 30.0  # seconds that a gallery is as good as new
EVERY = (1, 120)  # minutes between two pushes of a run that goes on
BRANCH = "while-training"

log = logging.getLogger(__name__)


class Busy(Refused):
    """Too many errands are under way; the same one may begin in a moment."""


@dataclass
class Job:
    """An errand under way, or over."""

    id: str
    owner: str
    errand: Errand
    status: str = "working"  # or done, failed
    sentence: str = "Starting"
    again: bool = False
    result: dict[str, Any] | None = None
    heard_at: float = field(default_factory=time.monotonic)
    patience: float = (
        SILENT_FOR + LOADING_FOR
    )  # until the first message: the process imports what it needs
    phase: Phase = Phase.READING
    shared: bool = False  # a gallery, which is everybody's
    address: str = field(default_factory=CLIENT_ADDRESS.get)  # of the client that began it
    child: Child | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def told(self) -> dict[str, Any]:
        """What a page shows of it. Until it is over, what follows its result, such as a run made of it, is yet to come."""
        over = self.over.is_set()
        return {"status": self.status if over else "working", "sentence": self.sentence, "again": self.again,
                "result": self.result if over else None, "kind": self.errand.kind}  # fmt: skip


def begin(
    errand: Errand,
    owner: str = "",
    on_say: Callable[[str], None] = lambda _: None,
    on_done: Callable[[Job], None] = lambda _: None,
    fresh: bool = False,
) -> Job:
    """Start an errand; `job.over` is set when it has ended, one way or another."""
    scratch = tempfile.mkdtemp(
        prefix="playground-"
    )  # taken away here: whoever is killed takes nothing away
    job = Job(
        secrets.token_urlsafe(12),
        owner,
        replace(errand, endpoint=errand.endpoint or os.environ.get("HF_ENDPOINT", "")),
    )

    def take(kind: str, *content: Any) -> None:
        if job.status != "working":  # cancelled: what still comes is too late
            return
        job.heard_at = time.monotonic()
        if kind == "say":
            job.sentence, job.patience, job.phase = content[0], SILENT_FOR + content[1], content[2]
            on_say(content[0])
        elif kind == "result":
            job.result, job.status, job.sentence = content[0], "done", ""
        else:
            job.status, job.sentence, job.again = "failed", content[0], content[1]

    def end(code: int | None) -> None:
        if job.status == "working":
            job.status, job.again = "failed", True
            job.sentence = (
                f"it ended before it was done (exit code {code}), while: {job.sentence}; try again"
            )
        job.errand = replace(job.errand, token="")
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            on_done(job)
        finally:
            job.over.set()

    job.child = Child(
        "playground.hub.work:work",
        f"hub-{errand.kind}",
        job.errand,
        scratch,
        on_message=take,
        on_end=end,
        fresh=fresh,
    )
    return job


def supervise(job: Job) -> None:
    """End an errand that has been silent for too long."""
    if job.status == "working" and time.monotonic() - job.heard_at > job.patience:
        cancel(job, f"nothing was heard for {job.patience:.0f} s")


def cancel(job: Job, why: str = "cancelled") -> None:
    """End an errand, and say what may be there all the same."""
    if job.status != "working" or not job.child:
        return
    if job.errand.kind not in ("push", "deploy"):
        left = "nothing was written"
    elif job.phase is Phase.COMMITTING:
        left = "the commit was on its way: look whether it is there before you publish again"
    elif job.phase is Phase.WRITING:
        left = "what was on the Hub is as it was; a repository or a branch that was not there may have been made, without any new "
        left += "model" if job.errand.kind == "push" else "file"
        left += "; its training set may be there" if job.errand.with_data else ""
    else:
        left = "nothing was written"
    job.status, job.sentence, job.again = "failed", f"{why}; {left}", True
    job.child.kill()


@dataclass
class Kept:
    """A run that is published as it goes on."""

    run: Run
    owner: str
    repo: str
    private: bool
    minutes: float
    token: str = field(repr=False)
    license: str = ""
    due: float = 0.0
    job: Job | None = None
    pushed: int | None = None  # the step of the last push
    pushed_at: float = 0.0
    last: bool = False  # the run has ended, this push is the final one
    trouble: str = ""
    over: bool = False  # the final push has failed, and trying again would not help
    over_at: float = field(default_factory=time.monotonic)

    def told(self) -> dict[str, Any]:
        now = time.monotonic()
        return {
            "repo": self.repo, "branch": "main" if self.last else BRANCH, "minutes": self.minutes,
            "pushed": self.pushed, "trouble": self.trouble,
            "ago": round(now - self.pushed_at) if self.pushed is not None else None,
            "in": 0 if self.over else max(0, round(self.due - now)),
            "now": self.job is not None and self.job.status == "working",
        }  # fmt: skip


class Jobs:
    """All errands of a server."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._jobs: dict[str, Job] = {}
        self._kept: dict[str, Kept] = {}  # by the run's id
        self._lock = threading.Lock()
        self._gallery: tuple[float, Job] | None = None  # everybody's, and when it was asked for
        self._watching: threading.Thread | None = None

    def start(
        self,
        errand: Errand,
        owner: str,
        on_done: Callable[[Job], None] = lambda _: None,
        anew: bool = False,
    ) -> Job:
        """Begin an errand for an owner; a gallery that is not wanted `anew` may be another owner's of a moment ago.

        Raises:
            Busy: when the owner, the address or all have too many under way.
        """
        with self._lock:
            listing = errand.kind == "gallery"
            shared = listing and not errand.token  # the same for everybody
            if shared and self._gallery:
                at, job = self._gallery
                if not anew and job.status != "failed" and time.monotonic() - at < LISTED_FOR:
                    return job
            working = [job for job in self._jobs.values() if not job.over.is_set()]
            others = [
                job for job in working if (job.errand.kind == "gallery") == listing
            ]  # lists have places of their own
            if len(others) >= ERRANDS_AT_ONCE or (
                not shared and sum(job.owner == owner for job in others) >= ERRANDS_AN_OWNER
            ):
                raise Busy("other errands to the Hub are still under way; try again in a moment")
            is_local = bool(
                getattr(self.registry, "local_owner", "")
            )  # a person alone may ask for every list
            if not is_local and holds_share((job.address for job in others), ERRANDS_AT_ONCE):
                most = half_of(ERRANDS_AT_ONCE)
                raise Busy(
                    f"{most} errands to the Hub from your address are still under way, as many as may be; try again in a moment"
                )
            over = [job for job in self._jobs.values() if job.over.is_set()]
            for job in over[: max(0, len(over) - MOST_KEPT)]:
                self._jobs.pop(job.id, None)
            job = begin(errand, owner, on_done=lambda job: self._done(job, on_done))
            job.shared = shared
            self._jobs[job.id] = job
            if shared:
                self._gallery = (time.monotonic(), job)
            self._watch()
            return job

    def _watch(self) -> None:
        """See to it that somebody keeps house. With the lock held."""
        if self._watching is None:
            self._watching = threading.Thread(
                target=self._keep_house, name="hub-housekeeping", daemon=True
            )
            self._watching.start()

    def _done(self, job: Job, on_done: Callable[[Job], None]) -> None:
        if job.errand.kind == "push":
            self._gallery = None  # it lacks what has just been published
        before = CLIENT_ADDRESS.set(
            job.address
        )  # a run that is made of what was fetched counts for it
        try:
            on_done(job)
        finally:
            CLIENT_ADDRESS.reset(before)

    def find(self, job_id: object, owner: str) -> Job | None:
        """An owner's errand, or a gallery, which is everybody's."""
        job = self._jobs.get(job_id) if isinstance(job_id, str) else None
        return (
            job
            if job
            and (
                job.shared
                or (
                    owner
                    and secrets.compare_digest(job.owner.encode(), owner.encode("utf-8", "replace"))
                )
            )
            else None
        )

    # Publishing as it goes on

    def keep_pushing(
        self, run: Run, owner: str, repo: str, token: str, *, private: bool, minutes: float, license: str = ""
    ) -> None:  # fmt: skip
        """Push the run's latest checkpoint every so many minutes to a branch of its own, and the final one to main.

        Raises:
            Refused: for an odd number of minutes, an odd name, or a run that is over.
        """
        if not is_repo(repo):
            raise Refused("name the repository first, as user/name")
        if (
            not isinstance(minutes, int | float)
            or isinstance(minutes, bool)
            or not EVERY[0] <= minutes <= EVERY[1]
        ):
            raise Refused(f"give {EVERY[0]} to {EVERY[1]} minutes between two pushes")
        if run.status not in (*WORKING, "waiting", "paused"):
            raise Refused("this run has ended: publish it once, above")
        with self._lock:
            self._kept[run.id] = Kept(run, owner, repo, private, minutes, token, license)
            self._watch()

    def stop_pushing(self, run: Run) -> None:
        """Publish a run no more; a push that is under way ends by itself."""
        with self._lock:
            self._kept.pop(run.id, None)

    def kept(self, run: Run) -> dict[str, Any] | None:
        """How publishing a run as it goes on stands; None when nobody asked for it."""
        kept = self._kept.get(run.id)
        return kept.told() if kept else None

    def _push_again(self, kept: Kept) -> None:
        """Take in how the last push ended, and begin the next one when it is due."""
        now, run = time.monotonic(), kept.run
        if kept.job is not None:
            if not kept.job.over.is_set():
                return
            job, kept.job = kept.job, None
            if job.status == "done" and job.result:
                kept.pushed, kept.pushed_at, kept.trouble = job.result["step"], now, ""
            else:
                kept.trouble = job.sentence
            kept.due = now + 60 * kept.minutes
            if kept.last and job.status == "done":
                self.stop_pushing(run)
                return
            if kept.last and not job.again:
                kept.token, kept.over, kept.over_at = (
                    "",
                    True,
                    now,
                )  # no further push, but its owner is to read why
        if run.deleted_at is not None or (kept.over and now - kept.over_at > KEPT_FOR):
            self.stop_pushing(run)
            return
        if kept.over:
            return
        ended = run.status not in (
            *WORKING,
            "waiting",
            "paused",
        )  # before its checkpoints are listed: the last one is there by then
        found = run.checkpoints()
        new = bool(found) and (
            ended or found[0][1].step != kept.pushed
        )  # the final checkpoint goes to main, pushed before or not
        if ended and not new:
            self.stop_pushing(run)
        elif new and (now >= kept.due or (ended and not kept.last)):
            errand = Errand("push", kept.repo, kept.token, revision="main" if ended else BRANCH, private=kept.private, license=kept.license,
                            checkpoint=str(found[0][0]), run=str(run.folder))  # fmt: skip
            try:
                kept.job, kept.last = self.start(errand, kept.owner), ended
            except Refused as error:  # at the next look again
                kept.trouble = str(error)

    def _keep_house(self) -> None:
        while True:
            time.sleep(HOUSEKEEPING)
            now = time.monotonic()
            for job in list(self._jobs.values()):
                try:
                    supervise(job)
                    if job.over.is_set() and now - job.heard_at > KEPT_FOR:
                        self._jobs.pop(job.id, None)
                except Exception:  # one job must not end the supervision of the others
                    log.exception("supervision of the Hub job %s failed", job.errand.kind)
            for kept in list(self._kept.values()):
                try:
                    self._push_again(kept)
                except Exception:
                    log.exception("publishing a run while it trains failed")
