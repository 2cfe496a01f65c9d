"""Run Hub jobs on the server.

Each job runs in its own process, which is ended if it sends no message for too long. The module
imports neither torch nor huggingface_hub.
"""

import os
import threading
import time
from dataclasses import replace
from typing import Any

from playground.jobs.admission import Policy, limit
from playground.jobs.executors import ProcessPerJob
from playground.jobs.job import Job, JobStatus
from playground.jobs.queue import JobQueue

from .repo_ids import Phase
from .tasks import LOADING_TIMEOUT_S, HubTask

SILENCE_TIMEOUT_S = 100.0  # seconds without a message; longer than the retries of the client
MAX_FINISHED_JOBS = 100  # finished jobs in memory
JOB_TTL_S = 900.0  # seconds for which a result stays available
GALLERY_TTL_S = 30.0  # lifetime of a cached gallery, in seconds


class HubJobs(JobQueue):
    """The queue of Hub jobs.

    `has_one_user`: one address may use every slot; `fresh`: new interpreters instead of forks.
    """

    def __init__(self, *, has_one_user: bool = False, fresh: bool = False) -> None:
        jobs, galleries = (
            replace(each, per_address=each.total) if has_one_user else each
            for each in (limit("hub-jobs"), limit("galleries"))
        )
        policy = Policy(
            process="the Hub process",
            max_running=jobs.total or 1,  # none waits
            admission=jobs,
            silence_timeout_s=SILENCE_TIMEOUT_S,
            startup_timeout_s=LOADING_TIMEOUT_S,  # the first message follows the imports
            result_ttl_s=JOB_TTL_S,
            max_results=MAX_FINISHED_JOBS,
        )
        entry = "playground.hub.tasks:run_task"
        executor = ProcessPerJob(entry, reports_progress=True, fresh=fresh)
        # Galleries have their own slots.
        policies = {"gallery": replace(policy, admission=galleries)}
        self._gallery: Job | None = None  # the latest public one
        self._gallery_lock = threading.Lock()
        super().__init__(
            executor, policy, policies, describe_end=describe_end, on_done=self._on_done
        )

    def start(self, task: HubTask, owner: str = "", refresh: bool = False, **fields: Any) -> Job:
        """Start a job, at the endpoint of the environment unless the task names one.

        Without `refresh`, a recent public gallery is returned again. Raises UserError if the owner,
        the address or the server has too many running jobs.
        """
        task = replace(task, endpoint=task.endpoint or os.environ.get("HF_ENDPOINT", ""))
        if task.kind != "gallery" or task.token:
            return self.submit(task.kind, task, owner=owner, **fields)
        with self._gallery_lock:
            latest = self._gallery
            if (
                latest is None
                or refresh
                or latest.status in (JobStatus.FAILED, JobStatus.CANCELLED)
                or time.monotonic() - latest.created_at >= GALLERY_TTL_S
            ):
                latest = self._gallery = self.submit(task.kind, task, shared=True, **fields)
            return latest

    def _on_done(self, job: Job) -> None:
        if job.kind == "push":
            self._gallery = None  # the published model is missing in it


def describe_end(job: Job, reason: str) -> str:
    """Return why a job has ended, and what may exist on the Hub."""
    effects = {
        Phase.COMMITTING: "the commit may exist: check the repository before you publish again",
        Phase.WRITING: "existing content is unchanged; a new repository may exist, without any new "
        "model",
    }
    return f"{reason}; {effects.get(job.phase, 'nothing was written')}"
