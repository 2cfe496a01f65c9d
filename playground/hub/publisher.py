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

from playground.errors import UserError
from playground.jobs.addresses import CLIENT_ADDRESS, max_per_address, uses_full_share
from playground.jobs.process import WorkerProcess
from playground.runs.registry import Registry
from playground.runs.run import ACTIVE_STATUSES, Run

from .repo_ids import Phase, is_repo
from .tasks import LOADING_TIMEOUT_S, HubTask

SILENCE_TIMEOUT_S = (
    100.0  # timeout without a message, in seconds; longer than the retries of the client
)
MAX_CONCURRENT_TASKS = 4
MAX_TASKS_PER_OWNER = 2
MAX_FINISHED_JOBS = 100  # finished jobs in memory
JOB_TTL_S = 900.0  # seconds for which a result stays available
HOUSEKEEPING_INTERVAL_S = 0.5  # interval in seconds
LISTING_TTL_S = 30.0  # lifetime of a cached gallery, in seconds
INTERVAL_RANGE_MIN = (1, 120)  # accepted minutes between two pushes during training
AUTO_BRANCH = "while-training"

log = logging.getLogger(__name__)


@dataclass
class Job:
    """A running or finished Hub job."""

    id: str
    owner: str
    task: HubTask
    status: str = "working"  # or done, failed
    message: str = "Starting"
    retryable: bool = False
    result: dict[str, Any] | None = None
    last_message_at: float = field(default_factory=time.monotonic)
    # the first message follows the imports
    silence_timeout_s: float = SILENCE_TIMEOUT_S + LOADING_TIMEOUT_S
    phase: Phase = Phase.READING
    shared: bool = False  # a public gallery, which every owner may read
    address: str = field(default_factory=CLIENT_ADDRESS.get)  # of the client that started it
    process: WorkerProcess | None = None
    finished: threading.Event = field(default_factory=threading.Event)

    def to_json(self) -> dict[str, Any]:
        """Return the status for the page.

        The job counts as working until `on_done` has returned, because that may import a run.
        """
        is_finished = self.finished.is_set()
        return {
            "status": self.status if is_finished else "working",
            "message": self.message,
            "again": self.retryable,
            "result": self.result if is_finished else None,
            "kind": self.task.kind,
        }


def start_job(
    task: HubTask,
    owner: str = "",
    on_progress: Callable[[str], None] = lambda _: None,
    on_done: Callable[[Job], None] = lambda _: None,
    fresh: bool = False,
) -> Job:
    """Start a job; the event `job.over` is set after its end."""
    # `end` removes the folder, because a killed process cannot.
    scratch = tempfile.mkdtemp(prefix="playground-")
    job = Job(
        secrets.token_urlsafe(12),
        owner,
        replace(task, endpoint=task.endpoint or os.environ.get("HF_ENDPOINT", "")),
    )

    def handle_message(kind: str, *content: Any) -> None:
        if job.status != "working":  # a late message of a cancelled job
            return
        job.last_message_at = time.monotonic()
        if kind == "progress":
            job.message, job.silence_timeout_s, job.phase = (
                content[0],
                SILENCE_TIMEOUT_S + content[1],
                content[2],
            )
            on_progress(content[0])
        elif kind == "result":
            job.result, job.status, job.message = content[0], "done", ""
        else:
            job.status, job.message, job.retryable = "failed", content[0], content[1]

    def handle_exit(code: int | None) -> None:
        if job.status == "working":
            job.status, job.retryable = "failed", True
            job.message = f"the job ended early (exit code {code}) during: {job.message}; try again"
        job.task = replace(job.task, token="")
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            on_done(job)
        finally:
            job.finished.set()

    job.process = WorkerProcess(
        "playground.hub.tasks:main",
        f"hub-{task.kind}",
        job.task,
        scratch,
        on_message=handle_message,
        on_exit=handle_exit,
        fresh=fresh,
    )
    return job


def check_timeouts(job: Job) -> None:
    """Cancel a job that has sent no message for too long."""
    if job.status == "working" and time.monotonic() - job.last_message_at > job.silence_timeout_s:
        cancel(job, f"the job sent no message for {job.silence_timeout_s:.0f} s")


def cancel(job: Job, reason: str = "cancelled") -> None:
    """Cancel a job; its message states what may exist on the Hub."""
    if job.status != "working" or not job.process:
        return
    if job.task.kind not in ("push", "deploy"):
        exited_in_time = "nothing was written"
    elif job.phase is Phase.COMMITTING:
        exited_in_time = "the commit may exist: check the repository before you publish again"
    elif job.phase is Phase.WRITING:
        new = "model" if job.task.kind == "push" else "file"
        exited_in_time = (
            "existing content is unchanged; a new repository or branch may exist, "
            f"without any new {new}"
        )
        exited_in_time += "; its training set may exist" if job.task.include_dataset else ""
    else:
        exited_in_time = "nothing was written"
    job.status, job.message, job.retryable = "failed", f"{reason}; {exited_in_time}", True
    job.process.kill()


@dataclass
class AutoPublish:
    """A run that is published during training."""

    run: Run
    owner: str
    repo: str
    private: bool
    interval_minutes: float
    token: str = field(repr=False)
    license: str = ""
    next_push_at: float = 0.0
    job: Job | None = None
    pushed_step: int | None = None  # the step of the last push
    pushed_at: float = 0.0
    is_final: bool = False  # the run has ended, and this is the final push
    error: str = ""
    failed: bool = False  # the final push has failed, and a retry would fail, too
    failed_at: float = field(default_factory=time.monotonic)

    def to_json(self) -> dict[str, Any]:
        now = time.monotonic()
        return {
            "repo": self.repo,
            "branch": "main" if self.is_final else AUTO_BRANCH,
            "minutes": self.interval_minutes,
            "pushed": self.pushed_step,
            "trouble": self.error,
            "ago": round(now - self.pushed_at) if self.pushed_step is not None else None,
            "in": 0 if self.failed else max(0, round(self.next_push_at - now)),
            "now": self.job is not None and self.job.status == "working",
        }


class AutoPublisher:
    """All Hub jobs of a server."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._jobs: dict[str, Job] = {}
        self._auto_publishes: dict[str, AutoPublish] = {}  # by run id
        self._lock = threading.Lock()
        self._gallery: tuple[float, Job] | None = None  # public, with its start time
        self._thread: threading.Thread | None = None

    def start(
        self,
        task: HubTask,
        owner: str,
        on_done: Callable[[Job], None] = lambda _: None,
        refresh: bool = False,
    ) -> Job:
        """Start a job for an owner; without `refresh`, a recent public gallery is returned again.

        Raises:
            UserError: if the owner, the address or the server has too many running jobs.
        """
        with self._lock:
            listing = task.kind == "gallery"
            shared = listing and not task.token  # equal for all owners
            if shared and self._gallery:
                at, job = self._gallery
                if not refresh and job.status != "failed" and time.monotonic() - at < LISTING_TTL_S:
                    return job
            active_jobs = [job for job in self._jobs.values() if not job.finished.is_set()]
            # Galleries have their own slots.
            jobs_of_owner = [job for job in active_jobs if (job.task.kind == "gallery") == listing]
            if len(jobs_of_owner) >= MAX_CONCURRENT_TASKS or (
                not shared
                and sum(job.owner == owner for job in jobs_of_owner) >= MAX_TASKS_PER_OWNER
            ):
                raise UserError(
                    "other Hub jobs are still running; try again in a moment", retryable=True
                )
            # A local instance has one user, who may use every slot.
            is_local = bool(getattr(self.registry, "single_owner", ""))
            if not is_local and uses_full_share(
                (job.address for job in jobs_of_owner), MAX_CONCURRENT_TASKS
            ):
                limit = max_per_address(MAX_CONCURRENT_TASKS)
                raise UserError(
                    f"{limit} Hub jobs from your address are still running, which is the limit; "
                    "try again in a moment",
                    retryable=True,
                )
            finished = [job for job in self._jobs.values() if job.finished.is_set()]
            for job in finished[: max(0, len(finished) - MAX_FINISHED_JOBS)]:
                self._jobs.pop(job.id, None)
            job = start_job(task, owner, on_done=lambda job: self._on_done(job, on_done))
            job.shared = shared
            self._jobs[job.id] = job
            if shared:
                self._gallery = (time.monotonic(), job)
            self._ensure_thread()
            return job

    def _ensure_thread(self) -> None:
        """Start the housekeeping thread if it does not run. The caller holds the lock."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="hub-housekeeping", daemon=True)
            self._thread.start()

    def _on_done(self, job: Job, on_done: Callable[[Job], None]) -> None:
        if job.task.kind == "push":
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

    def enable_auto_publish(
        self,
        run: Run,
        owner: str,
        repo: str,
        token: str,
        *,
        private: bool,
        interval_minutes: float,
        license: str = "",
    ) -> None:
        """Push the latest checkpoint of a run at an interval to a branch, and the last one to main.

        Raises:
            UserError: if the name or the interval is not valid, or the run has ended.
        """
        if not is_repo(repo):
            raise UserError("enter the name of the repository first, as user/name")
        if (
            not isinstance(interval_minutes, int | float)
            or isinstance(interval_minutes, bool)
            or not INTERVAL_RANGE_MIN[0] <= interval_minutes <= INTERVAL_RANGE_MIN[1]
        ):
            raise UserError(
                f"enter {INTERVAL_RANGE_MIN[0]} to {INTERVAL_RANGE_MIN[1]} minutes between two "
                "pushes"
            )
        if run.status not in (*ACTIVE_STATUSES, "waiting", "paused"):
            raise UserError("this run has ended: publish its checkpoint above")
        with self._lock:
            self._auto_publishes[run.id] = AutoPublish(
                run, owner, repo, private, interval_minutes, token, license
            )
            self._ensure_thread()

    def disable_auto_publish(self, run: Run) -> None:
        """Stop publishing a run; a running push continues to its end."""
        with self._lock:
            self._auto_publishes.pop(run.id, None)

    def auto_publish_status(self, run: Run) -> dict[str, Any] | None:
        """Return the state of publishing a run during training; None if it is off."""
        auto_publish = self._auto_publishes.get(run.id)
        return auto_publish.to_json() if auto_publish else None

    def _push_if_due(self, schedule: AutoPublish) -> None:
        """Process the result of the last push, and start the next one when it is due."""
        now, run = time.monotonic(), schedule.run
        if schedule.job is not None:
            if not schedule.job.finished.is_set():
                return
            job, schedule.job = schedule.job, None
            if job.status == "done" and job.result:
                schedule.pushed_step, schedule.pushed_at, schedule.error = (
                    job.result["step"],
                    now,
                    "",
                )
            else:
                schedule.error = job.message
            schedule.next_push_at = now + 60 * schedule.interval_minutes
            if schedule.is_final and job.status == "done":
                self.disable_auto_publish(run)
                return
            if schedule.is_final and not job.retryable:
                # There is no further push, but the owner can read the reason.
                schedule.token, schedule.failed, schedule.failed_at = "", True, now
        if run.deleted_at is not None or (schedule.failed and now - schedule.failed_at > JOB_TTL_S):
            self.disable_auto_publish(run)
            return
        if schedule.failed:
            return
        # The status is read before the checkpoints, so that an ended run has its last checkpoint.
        ended = run.status not in (*ACTIVE_STATUSES, "waiting", "paused")
        checkpoints = run.checkpoints()
        # The last checkpoint is pushed to main, even if it was pushed to the branch before.
        new = bool(checkpoints) and (ended or checkpoints[0][1].step != schedule.pushed_step)
        if ended and not new:
            self.disable_auto_publish(run)
        elif new and (now >= schedule.next_push_at or (ended and not schedule.is_final)):
            task = HubTask(
                "push",
                schedule.repo,
                schedule.token,
                revision="main" if ended else AUTO_BRANCH,
                private=schedule.private,
                license=schedule.license,
                checkpoint=str(checkpoints[0][0]),
                run_folder=str(run.folder),
            )
            try:
                schedule.job, schedule.is_final = self.start(task, schedule.owner), ended
            except UserError as error:  # retried at the next housekeeping
                schedule.error = str(error)

    def _loop(self) -> None:
        while True:
            time.sleep(HOUSEKEEPING_INTERVAL_S)
            now = time.monotonic()
            for job in list(self._jobs.values()):
                try:
                    check_timeouts(job)
                    if job.finished.is_set() and now - job.last_message_at > JOB_TTL_S:
                        self._jobs.pop(job.id, None)
                except Exception:  # an error of one job must not stop the supervision of others
                    log.exception("supervision of the Hub job %s failed", job.task.kind)
            for auto_publish in list(self._auto_publishes.values()):
                try:
                    self._push_if_due(auto_publish)
                except Exception:
                    log.exception("publishing a run while it trains failed")
