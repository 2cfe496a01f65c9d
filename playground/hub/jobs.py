"""Run Hub jobs on the server, and publish runs during training.

The number of jobs is limited. Each job runs in its own process, which is ended if it sends no
message for too long, and only its owner can find it. The module imports neither torch nor
huggingface_hub.

A run can be published during training: at a regular interval its latest checkpoint becomes a commit
on a branch, so a machine without persistent storage loses little. Its token is kept in memory until
the run ends.
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

SILENT_FOR = 100.0  # timeout without a message, in seconds; longer than the retries of the client
ERRANDS_AT_ONCE = 4
ERRANDS_AN_OWNER = 2
MOST_KEPT = 100  # finished jobs in memory
KEPT_FOR = 900.0  # seconds for which a result stays available
HOUSEKEEPING = 0.5  # interval in seconds
LISTED_FOR = 30.0  # lifetime of a cached gallery, in seconds
EVERY = (1, 120)  # accepted minutes between two pushes during training
BRANCH = "while-training"

log = logging.getLogger(__name__)


class Busy(Refused):
    """An error for too many running jobs; a retry may succeed soon."""


@dataclass
class Job:
    """A running or finished Hub job."""

    id: str
    owner: str
    errand: Errand
    status: str = "working"  # or done, failed
    sentence: str = "Starting"
    again: bool = False
    result: dict[str, Any] | None = None
    heard_at: float = field(default_factory=time.monotonic)
    patience: float = SILENT_FOR + LOADING_FOR  # the first message follows the imports
    phase: Phase = Phase.READING
    shared: bool = False  # a public gallery, which every owner may read
    address: str = field(default_factory=CLIENT_ADDRESS.get)  # of the client that started it
    child: Child | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def told(self) -> dict[str, Any]:
        """Return the status for the page.

        The job counts as working until `on_done` has returned, because that may import a run.
        """
        over = self.over.is_set()
        return {
            "status": self.status if over else "working",
            "sentence": self.sentence,
            "again": self.again,
            "result": self.result if over else None,
            "kind": self.errand.kind,
        }


def begin(
    errand: Errand,
    owner: str = "",
    on_say: Callable[[str], None] = lambda _: None,
    on_done: Callable[[Job], None] = lambda _: None,
    fresh: bool = False,
) -> Job:
    """Start a job; the event `job.over` is set after its end."""
    # `end` removes the folder, because a killed process cannot.
    scratch = tempfile.mkdtemp(prefix="playground-")
    job = Job(
        secrets.token_urlsafe(12),
        owner,
        replace(errand, endpoint=errand.endpoint or os.environ.get("HF_ENDPOINT", "")),
    )

    def take(kind: str, *content: Any) -> None:
        if job.status != "working":  # a late message of a cancelled job
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
                f"the job ended early (exit code {code}) during: {job.sentence}; try again"
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
    """Cancel a job that has sent no message for too long."""
    if job.status == "working" and time.monotonic() - job.heard_at > job.patience:
        cancel(job, f"the job sent no message for {job.patience:.0f} s")


def cancel(job: Job, why: str = "cancelled") -> None:
    """Cancel a job; its message says what may exist on the Hub."""
    if job.status != "working" or not job.child:
        return
    if job.errand.kind not in ("push", "deploy"):
        left = "nothing was written"
    elif job.phase is Phase.COMMITTING:
        left = "the commit may exist: check the repository before you publish again"
    elif job.phase is Phase.WRITING:
        new = "model" if job.errand.kind == "push" else "file"
        left = (
            "existing content is unchanged; a new repository or branch may exist, "
            f"without any new {new}"
        )
        left += "; its training set may exist" if job.errand.with_data else ""
    else:
        left = "nothing was written"
    job.status, job.sentence, job.again = "failed", f"{why}; {left}", True
    job.child.kill()


@dataclass
class Kept:
    """A run that is published during training."""

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
    last: bool = False  # the run has ended, and this is the final push
    trouble: str = ""
    over: bool = False  # the final push has failed, and a retry would fail, too
    over_at: float = field(default_factory=time.monotonic)

    def told(self) -> dict[str, Any]:
        now = time.monotonic()
        return {
            "repo": self.repo,
            "branch": "main" if self.last else BRANCH,
            "minutes": self.minutes,
            "pushed": self.pushed,
            "trouble": self.trouble,
            "ago": round(now - self.pushed_at) if self.pushed is not None else None,
            "in": 0 if self.over else max(0, round(self.due - now)),
            "now": self.job is not None and self.job.status == "working",
        }


class Jobs:
    """All Hub jobs of a server."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._jobs: dict[str, Job] = {}
        self._kept: dict[str, Kept] = {}  # by run id
        self._lock = threading.Lock()
        self._gallery: tuple[float, Job] | None = None  # public, with its start time
        self._watching: threading.Thread | None = None

    def start(
        self,
        errand: Errand,
        owner: str,
        on_done: Callable[[Job], None] = lambda _: None,
        anew: bool = False,
    ) -> Job:
        """Start a job for an owner; without `anew`, a recent public gallery is returned again.

        Raises:
            Busy: if the owner, the address or the server has too many running jobs.
        """
        with self._lock:
            listing = errand.kind == "gallery"
            shared = listing and not errand.token  # equal for all owners
            if shared and self._gallery:
                at, job = self._gallery
                if not anew and job.status != "failed" and time.monotonic() - at < LISTED_FOR:
                    return job
            working = [job for job in self._jobs.values() if not job.over.is_set()]
            # Galleries have their own slots.
            others = [job for job in working if (job.errand.kind == "gallery") == listing]
            if len(others) >= ERRANDS_AT_ONCE or (
                not shared and sum(job.owner == owner for job in others) >= ERRANDS_AN_OWNER
            ):
                raise Busy("other Hub jobs are still running; try again in a moment")
            # A local instance has one user, who may use every slot.
            is_local = bool(getattr(self.registry, "local_owner", ""))
            if not is_local and holds_share((job.address for job in others), ERRANDS_AT_ONCE):
                most = half_of(ERRANDS_AT_ONCE)
                raise Busy(
                    f"{most} Hub jobs from your address are still running, which is the limit; "
                    "try again in a moment"
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
        """Start the housekeeping thread if it does not run. The caller holds the lock."""
        if self._watching is None:
            self._watching = threading.Thread(
                target=self._keep_house, name="hub-housekeeping", daemon=True
            )
            self._watching.start()

    def _done(self, job: Job, on_done: Callable[[Job], None]) -> None:
        if job.errand.kind == "push":
            self._gallery = None  # the published model is missing in it
        # An imported run counts for the address that started the job.
        before = CLIENT_ADDRESS.set(job.address)
        try:
            on_done(job)
        finally:
            CLIENT_ADDRESS.reset(before)

    def find(self, job_id: object, owner: str) -> Job | None:
        """Return a job of this owner or a public gallery; None if there is none."""
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

    # Publishing during training

    def keep_pushing(
        self,
        run: Run,
        owner: str,
        repo: str,
        token: str,
        *,
        private: bool,
        minutes: float,
        license: str = "",
    ) -> None:
        """Push the latest checkpoint of a run at an interval to a branch, and the last one to main.

        Raises:
            Refused: if the name or the interval is not valid, or the run has ended.
        """
        if not is_repo(repo):
            raise Refused("enter the name of the repository first, as user/name")
        if (
            not isinstance(minutes, int | float)
            or isinstance(minutes, bool)
            or not EVERY[0] <= minutes <= EVERY[1]
        ):
            raise Refused(f"enter {EVERY[0]} to {EVERY[1]} minutes between two pushes")
        if run.status not in (*WORKING, "waiting", "paused"):
            raise Refused("this run has ended: publish its checkpoint above")
        with self._lock:
            self._kept[run.id] = Kept(run, owner, repo, private, minutes, token, license)
            self._watch()

    def stop_pushing(self, run: Run) -> None:
        """Stop publishing a run; a running push continues to its end."""
        with self._lock:
            self._kept.pop(run.id, None)

    def kept(self, run: Run) -> dict[str, Any] | None:
        """Return the state of publishing a run during training; None if it is off."""
        kept = self._kept.get(run.id)
        return kept.told() if kept else None

    def _push_again(self, kept: Kept) -> None:
        """Process the result of the last push, and start the next one when it is due."""
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
                # There is no further push, but the owner can read the reason.
                kept.token, kept.over, kept.over_at = "", True, now
        if run.deleted_at is not None or (kept.over and now - kept.over_at > KEPT_FOR):
            self.stop_pushing(run)
            return
        if kept.over:
            return
        # The status is read before the checkpoints, so that an ended run has its last checkpoint.
        ended = run.status not in (*WORKING, "waiting", "paused")
        found = run.checkpoints()
        # The last checkpoint is pushed to main, even if it was pushed to the branch before.
        new = bool(found) and (ended or found[0][1].step != kept.pushed)
        if ended and not new:
            self.stop_pushing(run)
        elif new and (now >= kept.due or (ended and not kept.last)):
            errand = Errand(
                "push",
                kept.repo,
                kept.token,
                revision="main" if ended else BRANCH,
                private=kept.private,
                license=kept.license,
                checkpoint=str(found[0][0]),
                run=str(run.folder),
            )
            try:
                kept.job, kept.last = self.start(errand, kept.owner), ended
            except Refused as error:  # retried at the next housekeeping
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
                except Exception:  # an error of one job must not stop the supervision of others
                    log.exception("supervision of the Hub job %s failed", job.errand.kind)
            for kept in list(self._kept.values()):
                try:
                    self._push_again(kept)
                except Exception:
                    log.exception("publishing a run while it trains failed")
