"""Run Hub jobs on the server, and publish runs during training.

Each job runs in its own process, which is ended if it sends no message for too long. The module
imports neither torch nor huggingface_hub.

A run can be published during training: at a regular interval its latest checkpoint becomes a commit
on a branch, so a machine without persistent storage loses little. Its token is kept in memory until
the run ends.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from playground.errors import UserError
from playground.jobs.executors import ProcessPerJob
from playground.jobs.housekeeping import HOUSEKEEPER
from playground.jobs.job import Job, JobStatus, Response
from playground.jobs.policy import Policy
from playground.jobs.queue import JobQueue
from playground.runs.record import ACTIVE_STATUSES
from playground.runs.registry import Registry
from playground.runs.state import Run

from .repo_ids import Phase, is_repo
from .task_runner import LOADING_TIMEOUT_S, HubTask

SILENCE_TIMEOUT_S = (
    100.0  # timeout without a message, in seconds; longer than the retries of the client
)
MAX_CONCURRENT_TASKS = 4
MAX_TASKS_PER_OWNER = 2
MAX_FINISHED_JOBS = 100  # finished jobs in memory
JOB_TTL_S = 900.0  # seconds for which a result stays available
GALLERY_TTL_S = 30.0  # lifetime of a cached gallery, in seconds
INTERVAL_RANGE_MIN = (1, 120)  # accepted minutes between two pushes during training
AUTO_BRANCH = "while-training"

log = logging.getLogger(__name__)


def create_hub_queue(
    *,
    has_one_user: bool = False,
    fresh: bool = False,
    on_done: Callable[[Job], None] = lambda job: None,
) -> JobQueue:
    """Return a queue of Hub jobs.

    Args:
        has_one_user: one address may use every slot.
        fresh: start new interpreters instead of forks.
        on_done: called after the end of each job.
    """
    policy = Policy(
        process="the Hub process",
        nouns="Hub jobs",
        max_running=MAX_CONCURRENT_TASKS,
        max_active=MAX_CONCURRENT_TASKS,  # without a queue
        max_active_per_owner=MAX_TASKS_PER_OWNER,
        max_active_per_address=MAX_CONCURRENT_TASKS if has_one_user else None,
        silence_timeout_s=SILENCE_TIMEOUT_S,
        startup_timeout_s=LOADING_TIMEOUT_S,  # the first message follows the imports
        result_ttl_s=JOB_TTL_S,
        max_results=MAX_FINISHED_JOBS,
    )
    executor = ProcessPerJob(
        "playground.hub.tasks:run_task",
        nice=10,  # the priority of training, which is below that of the page
        reports_progress=True,
        needs_scratch=True,
        fresh=fresh,
    )
    # Galleries have their own slots.
    policies = {"gallery": replace(policy, nouns="galleries")}
    return JobQueue(executor, policy, policies, describe_end=describe_end, on_done=on_done)


def submit_task(queue: JobQueue, task: HubTask, owner: str = "", **fields: Any) -> Job:
    """Submit a job, at the endpoint of the environment unless the task names one."""
    task = replace(task, endpoint=task.endpoint or os.environ.get("HF_ENDPOINT", ""))
    return queue.submit(task.kind, task, owner=owner, **fields)


def describe_end(job: Job, reason: str) -> str:
    """Return why a job has ended, and what may exist on the Hub."""
    effect = "nothing was written"
    if job.kind in ("push", "deploy"):
        if job.phase is Phase.COMMITTING:
            effect = "the commit may exist: check the repository before you publish again"
        elif job.phase is Phase.WRITING:
            new = "model" if job.kind == "push" else "file"
            effect = (
                "existing content is unchanged; a new repository or branch may exist, "
                f"without any new {new}"
            )
            effect += "; its training set may exist" if job.arguments[0].include_dataset else ""
    return f"{reason}; {effect}"


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
            "interval_minutes": self.interval_minutes,
            "pushed_step": self.pushed_step,
            "push_error": self.error,
            "seconds_since_push": round(now - self.pushed_at)
            if self.pushed_step is not None
            else None,
            "seconds_until_push": 0 if self.failed else max(0, round(self.next_push_at - now)),
            "is_pushing": self.job is not None and self.job.is_active,
        }


class AutoPublisher:
    """The Hub jobs of a server, and the runs that it publishes during training."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        is_local = bool(getattr(registry, "single_owner", ""))
        self.queue = create_hub_queue(has_one_user=is_local, on_done=self._on_done)
        self._auto_publishes: dict[str, AutoPublish] = {}  # by run id
        self._lock = threading.Lock()
        self._gallery: Job | None = None  # the latest public one

    def start(
        self,
        task: HubTask,
        owner: str,
        on_result: Callable[[Response], Response] | None = None,
        refresh: bool = False,
    ) -> Job:
        """Start a job for an owner; without `refresh`, a recent public gallery is returned again.

        Raises:
            UserError: if the owner, the address or the server has too many running jobs.
        """
        if task.kind != "gallery" or task.token:
            return submit_task(self.queue, task, owner, on_result=on_result)
        with self._lock:
            latest = self._gallery
            if latest is None or refresh or not is_recent(latest):
                latest = self._gallery = submit_task(self.queue, task, shared=True)
            return latest

    def _on_done(self, job: Job) -> None:
        if job.kind == "push":
            self._gallery = None  # the published model is missing in it

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
        HOUSEKEEPER.add(self.push_due)

    def disable_auto_publish(self, run: Run) -> None:
        """Stop publishing a run; a running push continues to its end."""
        with self._lock:
            self._auto_publishes.pop(run.id, None)

    def auto_publish_status(self, run: Run) -> dict[str, Any] | None:
        """Return the state of publishing a run during training; None if it is off."""
        auto_publish = self._auto_publishes.get(run.id)
        return auto_publish.to_json() if auto_publish else None

    def _push_if_due(self, auto_publish: AutoPublish) -> None:
        """Process the result of the last push, and start the next one when it is due."""
        now, run = time.monotonic(), auto_publish.run
        if auto_publish.job is not None:
            if auto_publish.job.is_active:
                return
            job, auto_publish.job = auto_publish.job, None
            _record_push(auto_publish, job, now)
            if auto_publish.is_final and job.status is JobStatus.DONE:
                self.disable_auto_publish(run)
                return
        if run.deleted_at is not None or (
            auto_publish.failed and now - auto_publish.failed_at > JOB_TTL_S
        ):
            self.disable_auto_publish(run)
            return
        if auto_publish.failed:
            return
        # The status is read before the checkpoints, so that an ended run has its last checkpoint.
        has_ended = run.status not in (*ACTIVE_STATUSES, "waiting", "paused")
        checkpoints = run.checkpoints()
        # The last checkpoint is pushed to main, even if it was pushed to the branch before.
        has_new = bool(checkpoints) and (
            has_ended or checkpoints[0][1].step != auto_publish.pushed_step
        )
        if has_ended and not has_new:
            self.disable_auto_publish(run)
        elif has_new and (
            now >= auto_publish.next_push_at or (has_ended and not auto_publish.is_final)
        ):
            task = HubTask(
                "push",
                auto_publish.repo,
                auto_publish.token,
                revision="main" if has_ended else AUTO_BRANCH,
                private=auto_publish.private,
                license=auto_publish.license,
                checkpoint=str(checkpoints[0][0]),
                run_folder=str(run.folder),
            )
            try:
                auto_publish.job = self.start(task, auto_publish.owner)
                auto_publish.is_final = has_ended
            except UserError as error:  # retried at the next housekeeping
                auto_publish.error = str(error)

    def push_due(self) -> None:
        """Push each run whose next push is due."""
        for auto_publish in list(self._auto_publishes.values()):
            try:
                self._push_if_due(auto_publish)
            except Exception:
                log.exception("publishing a run while it trains failed")


def _record_push(auto_publish: AutoPublish, job: Job, now: float) -> None:
    """Store the result of a push, and when the next one is due."""
    if job.status is JobStatus.DONE and job.result:
        auto_publish.pushed_step = job.result["step"]
        auto_publish.pushed_at = now
        auto_publish.error = ""
    else:
        auto_publish.error = job.message
    auto_publish.next_push_at = now + 60 * auto_publish.interval_minutes
    if auto_publish.is_final and job.status is not JobStatus.DONE and not job.retryable:
        # There is no further push, but the owner can read the reason.
        auto_publish.token, auto_publish.failed, auto_publish.failed_at = "", True, now


def is_recent(gallery: Job) -> bool:
    """Return whether a gallery can be displayed again."""
    if gallery.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        return False
    return time.monotonic() - gallery.created_at < GALLERY_TTL_S
