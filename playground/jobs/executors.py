"""Executors run the jobs of a queue: in a process per job, or in one that stays."""

import logging
import shutil
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .entry import RETRY, Message, ResidentOptions
from .job import Job
from .process import WorkerProcess

log = logging.getLogger(__name__)
LAST_MESSAGES = ("result", "failed", "cancelled")
# The last message of the other jobs in a process that was killed because of one of them.
RESTARTED: Message = (
    "failed",
    {"error": "the process was restarted because another job did not end in time; try again"}
    | RETRY,
)


class Executor(ABC):
    """Runs jobs. It calls back in its own threads, and never while it starts a job."""

    def connect(
        self,
        on_message: Callable[..., None],
        on_end: Callable[[Job, Message | None, int | None], None],
    ) -> None:
        """Set the functions that receive the messages and the end of each job.

        `on_end` is called once, with the exit code of the process if that ended first.
        """
        self.on_message, self.on_end = on_message, on_end

    @abstractmethod
    def start(self, job: Job) -> bool:
        """Start a job without blocking; return False if that is not possible now."""

    @abstractmethod
    def kill(self, job: Job) -> None:
        """End the process that runs a job."""

    def request_cancel(self, job: Job) -> bool:
        """Request that a job ends early; return False if it cannot receive the request."""
        return False

    def end_if_idle(self) -> None:  # noqa: B027  most executors have no idle process
        """End processes that are no longer needed."""

    @abstractmethod
    def close(self) -> None:
        """End all processes."""


class ProcessPerJob(Executor):
    """Runs each job in its own process. The job has ended when its process has.

    Args:
        targets: the function of each kind, as "module:function"; or one for all kinds.
        nice: how much the priority of the processes is lowered.
        reports_progress: the functions take a `ProgressReporter` as their last argument, which has
            a temporary folder as `scratch`.
        fresh: start new interpreters instead of forks.
    """

    def __init__(
        self,
        targets: Mapping[str, str] | str,
        *,
        nice: int = 5,
        reports_progress: bool = False,
        fresh: bool = False,
    ) -> None:
        self.targets, self.nice, self.fresh = targets, nice, fresh
        self.reports_progress = reports_progress
        self._processes: dict[Job, WorkerProcess] = {}
        self._last_messages: dict[Job, Message] = {}
        self._lock = threading.Lock()  # never held during a callback

    def start(self, job: Job) -> bool:
        try:
            # The executor removes the folder, because a killed process cannot.
            scratch = tempfile.mkdtemp(prefix="playground-") if self.reports_progress else ""
        except OSError:
            log.exception("The temporary folder of a job of the kind %s failed", job.kind)
            return False
        with self._lock:
            self._processes[job] = WorkerProcess(
                "playground.jobs.entry:run_job",
                job.kind,
                self.targets if isinstance(self.targets, str) else self.targets[job.kind],
                job.arguments,
                self.nice,
                scratch,
                on_message=partial(self._on_message, job),
                on_exit=partial(self._on_exit, job, scratch),
                fresh=self.fresh,
            )
        return True

    def kill(self, job: Job) -> None:
        process = self._processes.get(job)
        if process is not None:
            process.kill()

    def close(self) -> None:
        for process in list(self._processes.values()):
            process.kill()

    def _on_message(self, job: Job, kind: str, *content: Any) -> None:
        if kind in LAST_MESSAGES:
            self._last_messages[job] = (kind, *content)
        else:
            self.on_message(job, kind, *content)

    def _on_exit(self, job: Job, scratch: str, code: int | None) -> None:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
        with self._lock:
            self._processes.pop(job, None)
            last = self._last_messages.pop(job, None)
        self.on_end(job, last, code)


class ResidentProcess(Executor):
    """Runs all jobs in one process, which starts with the first job and keeps its models loaded.

    After its end, the next job starts a new process. The policy of the queue decides how many jobs
    run at a time.

    Args:
        factory: names the function that returns the handler of jobs, as in `entry.serve`.
        options: returns the options of the process when it starts.
        idle_timeout_s: seconds without a job after which the process ends and frees its memory.
    """

    def __init__(
        self,
        factory: str,
        *,
        name: str,
        options: Callable[[], ResidentOptions],
        idle_timeout_s: float | None = None,
    ) -> None:
        self.factory, self.name, self.options = factory, name, options
        self.idle_timeout_s = idle_timeout_s
        self._process: WorkerProcess | None = None
        self._jobs: dict[str, Job] = {}  # in the process, by id; every process has its own
        self._last_used_at = time.monotonic()
        self._is_closed = False
        self._killed_job: Job | None = None  # the one because of which the process was killed
        self._lock = threading.Lock()  # never held during a callback

    def start(self, job: Job) -> bool:
        with self._lock:
            if self._is_closed:
                return False
            if self._process is None:
                self._process = self._start_process()
            self._last_used_at = time.monotonic()
            self._jobs[job.id] = job
            # A process that has just ended reports the job in `_on_exit`.
            if self._process.send("begin", job.id, job.kind, job.arguments):
                return True
            del self._jobs[job.id]
            return False

    def _start_process(self) -> WorkerProcess:
        self._jobs = {}
        return WorkerProcess(
            "playground.jobs.entry:serve",
            self.name,
            self.factory,
            self.options(),
            on_message=self._on_message,
            on_exit=partial(self._on_exit, self._jobs),
        )

    def kill(self, job: Job) -> None:
        process = self._process
        if process is not None and job.id in self._jobs:
            self._killed_job = job
            process.kill()

    def request_cancel(self, job: Job) -> bool:
        process = self._process
        return process is not None and process.send("cancel", job.id)

    def end_if_idle(self) -> None:
        with self._lock:
            process, limit = self._process, self.idle_timeout_s
            if process is None or limit is None or self._jobs:
                return
            if time.monotonic() - self._last_used_at <= limit:
                return
            self._process = None  # a job that starts now gets a new process
        process.kill()

    def close(self) -> None:
        with self._lock:
            self._is_closed, process = True, self._process
        if process is not None:
            process.kill()

    def _on_message(self, job_id: str, kind: str, *content: Any) -> None:
        self._last_used_at = time.monotonic()
        job = self._jobs.get(job_id)
        if job is None:
            return
        if kind in LAST_MESSAGES:
            self._jobs.pop(job_id, None)
            self.on_end(job, (kind, *content), None)
        else:
            self.on_message(job, kind, *content)

    def _on_exit(self, jobs: dict[str, Job], code: int | None) -> None:
        """Report the end of the jobs of an ended process. The next job starts a new one."""
        with self._lock:
            if jobs is not self._jobs:
                return  # it was idle, and another process has started since
            lost, self._jobs, self._process = list(jobs.values()), {}, None
            killed_job, self._killed_job = self._killed_job, None
        for job in lost:
            is_other = killed_job is not None and job is not killed_job
            self.on_end(job, RESTARTED if is_other else None, code)
