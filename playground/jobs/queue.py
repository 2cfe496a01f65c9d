"""A bounded, fair queue of jobs in front of an executor, which runs them in other processes."""

import logging
import secrets
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from playground.errors import BusyError, UserError, error_response

from .admission import CLIENT_ADDRESS, Client, Policy
from .entry import RETRY, Message
from .executors import Executor
from .fair_order import FairOrder
from .housekeeping import HOUSEKEEPER
from .job import NO_PROGRESS, Job, JobStatus, Progress, Response
from .process import describe_exit

log = logging.getLogger(__name__)
MAX_ROWS = 20_000  # of a job
JOB_MISSING = "this result is no longer stored; run the job again"
UNPOLLED = "removed because its page no longer polls and other jobs wait; run it again"


class Lane:
    """The jobs with one policy: those that wait, and those that a process has."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.turns = FairOrder()
        self.waiting: dict[Job, None] = {}  # in the order of their arrival
        self.running: dict[Job, None] = {}  # in the order of their start

    def active(self) -> list[Job]:
        return [*self.running, *self.waiting]

    def order(self) -> Iterator[Job]:
        """Yield the waiting jobs that are ready, in the order in which they start."""
        ready = [job for job in self.waiting if job.is_ready]
        return self.turns.order(ready, self.running)

    def is_idle(self, job: Job, now: float) -> bool:
        """Return whether a waiting job is not polled."""
        limit = self.policy.start_polled_within_s
        return job in self.waiting and limit is not None and now - job.polled_at > limit


class JobQueue:
    """The jobs of one executor. Safe to call from any thread.

    Each lane has its own limits, so light jobs can run during a heavy one. Clients take turns in
    each lane. A job stays until its result expires; only its owner can find it.

    Args:
        executor: starts the jobs and ends them.
        policy: the limits of all kinds without a policy of their own.
        policies: the limits of other kinds; kinds with equal policies share a lane.
        describe_end: converts the reason why a job ended without a result to its message.
        on_done: called after the end of each job.
    """

    job_type: type[Job] = Job

    def __init__(
        self,
        executor: Executor,
        policy: Policy,
        policies: Mapping[str, Policy] | None = None,
        *,
        describe_end: Callable[[Job, str], str] = lambda job, reason: reason,
        on_done: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self.executor = executor
        self._default_lane = Lane(policy)
        lanes = {policy: self._default_lane}
        self._lane_of_kind = {
            kind: lanes.setdefault(each, Lane(each)) for kind, each in (policies or {}).items()
        }
        self._lanes = tuple(lanes.values())
        self._describe_end, self._on_done, self._clock = describe_end, on_done, time.monotonic
        self._jobs: dict[str, Job] = {}
        self._settled: list[Job] = []  # jobs whose end is not reported yet
        self._lock = threading.Lock()
        self._closed = False
        executor.connect(self.on_message, self.on_end)

    def lane(self, kind: str) -> Lane:
        return self._lane_of_kind.get(kind, self._default_lane)

    def submit(self, kind: str, *arguments: Any, owner: str = "", **fields: Any) -> Job:
        """Queue a job and return it; a waiting one that is not polled may make way for it.

        `fields`: further fields of the job, such as `label` or `on_result`. Raises UserError if the
        owner, the address or all clients have too many jobs, or if the system has no free thread.
        """
        job = self.job_type(kind, arguments, owner, **fields)
        job.created_at = job.polled_at = job.last_message_at = self._clock()
        lane = self.lane(kind)
        HOUSEKEEPER.add(self.housekeep)  # without it, no job could time out
        with self._locked():
            if self._closed:
                raise BusyError("the server is stopping")
            idle = [each for each in lane.waiting if lane.is_idle(each, job.created_at)]
            idle.sort(key=lambda each: each.polled_at)
            active = {
                each: Client(each.address, "" if each in idle else each.owner)
                for each in lane.active()
            }
            client = Client(job.address, owner)
            lane.policy.admission.admit_or_evict(client, active, idle, self._evict)
            self._jobs[job.id] = job
            lane.waiting[job] = None
            job.future.add_done_callback(lambda future: self._drop_if_cancelled(job, future))
            self._prune()
            self._schedule()
        return job

    def find(self, job_id: object, owner: str) -> Job | None:
        """Return a job of this owner, or a shared one; None if there is none."""
        job = self._jobs.get(job_id) if isinstance(job_id, str) else None
        if job is None or (job.may_read and not job.may_read()):
            return None
        is_owner = owner and secrets.compare_digest(
            job.owner.encode(), str(owner).encode("utf-8", "replace")
        )
        return job if job.shared or is_owner else None

    def get(self, job_id: object, owner: str) -> Job:
        """Return a job of this owner, or a shared one; raise UserError if there is no such job."""
        job = self.find(job_id, owner)
        if job is None:
            raise UserError(JOB_MISSING, retryable=True)
        return job

    def poll(self, job_id: object, owner: str, cursor: int = 0) -> Response:
        """Return the state of a job, with its rows from `cursor` on.

        Raises UserError if this owner has no such job.
        """
        # No lock: this runs on the event loop, and the lock may be held while a process starts.
        job = self.get(job_id, owner)
        job.polled_at = self._clock()
        return job.to_json(cursor)

    def cancel(self, job: Job, reason: str = "") -> None:
        """Cancel a job; its rows stay. A finished job does not change."""
        with self._locked():
            self._cancel(job, reason or self.lane(job.kind).policy.cancel_message)

    def release(self, job: Job, *arguments: Any) -> None:
        """Let a job start that was not ready, with these arguments."""
        with self._locked():
            job.message, job.progress = "", NO_PROGRESS
            job.arguments, job.is_ready = arguments, True
            self._schedule()

    def fail(self, job: Job, message: str) -> None:
        """Fail a waiting job."""
        with self._locked():
            self._finish(job, JobStatus.FAILED, message)

    def close(self) -> None:
        """Cancel all jobs, end their processes, and accept no more jobs."""
        with self._locked():
            self._closed = True
            for lane in self._lanes:
                for job in lane.active():
                    reason = "the server is stopping; try again in a moment"
                    self._finish(job, JobStatus.CANCELLED, reason, retryable=True)
        HOUSEKEEPER.remove(self.housekeep)
        self.executor.close()

    # Called by the executor, in its threads

    def on_message(self, job: Job, kind: str, *content: Any) -> None:
        """Store a message of a running job."""
        with self._locked():
            job.last_message_at = self._clock()
            if job.status is not JobStatus.RUNNING:
                return
            if kind == "message":
                text, job.extra_silence_s, job.phase = content
                if job.cancelled_at is None:
                    job.message, job.progress = text, NO_PROGRESS
            elif kind == "progress":
                job.progress = Progress(*content)
            elif kind == "partial":
                job.partial = content[0]
            elif kind == "row" and len(job.rows) < MAX_ROWS:
                job.rows.append(content[0])
        if job.on_progress is not None:
            job.on_progress(job)

    def on_end(self, job: Job, last_message: Message | None, code: int | None) -> None:
        """Store the end of a job, with its last message or else the exit code of its process."""
        lane = self.lane(job.kind)
        if last_message and last_message[0] == "result":
            with self._locked():  # from now on it can no longer be cancelled
                job.is_converting = job.status is JobStatus.RUNNING
            if job.is_converting:
                last_message = _convert_result(job, last_message)
        with self._locked():
            lane.running.pop(job, None)
            if job.is_active:
                self._finish_with(job, last_message, code)
            self._schedule()
        job.released.set()

    def housekeep(self) -> None:
        """Apply the time-outs, delete expired results, and start what may start."""
        now = self._clock()
        with self._locked():
            for lane in self._lanes:
                for job in list(lane.running):
                    self._check_running(lane, job, now)
                limit = lane.policy.unpolled_timeout_s
                for job in lane.active() if limit is not None and lane.waiting else ():
                    if limit is not None and now - job.polled_at > limit:
                        self._cancel(job, UNPOLLED)
            self._prune()
            self._schedule()
        self.executor.end_if_idle()

    # The following methods require the lock

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock; afterwards report the jobs that have ended meanwhile."""
        try:
            with self._lock:
                yield
        finally:
            self._report_settled()

    def _report_settled(self) -> None:
        """Resolve the futures of jobs that have ended. Needs no lock, and must not hold it."""
        while self._settled:
            try:
                job = self._settled.pop(0)
            except IndexError:  # another thread reports it
                return
            with suppress(InvalidStateError):  # it was cancelled
                job.future.set_result(job.response())
            try:
                self._on_done(job)
            except Exception:
                log.exception("The callback after a job of the kind %s failed", job.kind)

    def _drop_if_cancelled(self, job: Job, future: Future[Response]) -> None:
        """Remove a queued job whose future was cancelled."""
        if future.cancelled():
            with self._locked():
                self._finish(job, JobStatus.CANCELLED, "cancelled")

    def _schedule(self) -> None:
        for lane in self._lanes:
            while not self._closed and len(lane.running) < lane.policy.max_running:
                job = next(filter(partial(self._may_start, lane), lane.order()), None)
                if job is None:
                    break
                del lane.waiting[job]
                lane.turns.serve(job)
                if not job.future.set_running_or_notify_cancel():
                    continue  # `_drop_if_cancelled` finishes it
                job.status, job.started_at = JobStatus.RUNNING, self._clock()
                job.last_message_at = job.started_at
                job.extra_silence_s = lane.policy.startup_timeout_s
                lane.running[job] = None
                if not self.executor.start(job):
                    del lane.running[job]
                    self._finish_with(job, None, None)
            for position, job in enumerate(lane.order(), start=len(lane.running)):
                job.queue_position = position

    def _may_start(self, lane: Lane, job: Job) -> bool:
        at_address = lane.policy.max_running_per_address
        if lane.is_idle(job, self._clock()):
            return False
        return (
            at_address is None
            or not job.address
            or sum(other.address == job.address for other in lane.running) < at_address
        )

    def _check_running(self, lane: Lane, job: Job, now: float) -> None:
        policy, age_s = lane.policy, now - job.started_at
        if job.is_converting:
            return
        if job.cancelled_at is not None:
            grace_s = policy.save_grace_s if job.is_active else policy.cancel_grace_s
            if now - job.cancelled_at > grace_s:
                self.executor.kill(job)
            return
        limit = policy.run_timeout_s if job.timeout_s is None else job.timeout_s
        if limit is not None and age_s > limit:
            reason = f"this took longer than {limit:g} s and was ended; {policy.timeout_advice}"
            self._end(job, reason, retryable=False)
            return
        limit = policy.silence_timeout_s
        if limit is not None and now - job.last_message_at > limit + job.extra_silence_s:
            limit += job.extra_silence_s
            self._end(job, f"the job sent no message for {limit:.0f} s", retryable=True)
            return
        limit = policy.max_turn_s
        others_wait = any(other.owner != job.owner for other in lane.waiting)
        if limit is not None and age_s > limit and others_wait:
            reason = f"stopped after {limit / 60:.0f} minutes because other jobs wait"
            advice = "the results so far are available; request less to finish in time"
            self._cancel(job, f"{reason}; {advice}")

    def _end(self, job: Job, reason: str, *, retryable: bool) -> None:
        """Fail a job that a process has, and kill the process."""
        job.cancelled_at = self._clock()
        message = self._describe_end(job, reason)
        self._finish(job, JobStatus.FAILED, message, retryable=retryable)
        self.executor.kill(job)

    def _evict(self, job: Job) -> int:
        self._cancel(job, UNPOLLED)
        return 1

    def _cancel(self, job: Job, reason: str) -> None:
        if not job.is_active or job.is_converting or job.cancelled_at is not None:
            return
        policy, is_running = self.lane(job.kind).policy, job.status is JobStatus.RUNNING
        if is_running:
            job.cancelled_at, job.cancel_reason = self._clock(), reason
            if job.kind in policy.saving_kinds and self.executor.request_cancel(job):
                job.message = "cancelled; saving the result so far"
                return
        message = self._describe_end(job, reason)
        self._finish(job, JobStatus.CANCELLED, message, retryable=True)
        if is_running and not (policy.cancel_grace_s and self.executor.request_cancel(job)):
            self.executor.kill(job)
        self._schedule()

    def _finish_with(self, job: Job, last_message: Message | None, code: int | None) -> None:
        """Finish a job with its last message, or else the exit code of its process."""
        kind, *content = last_message or ("failed", self._exit_error(job, code))
        if kind == "result":
            result = content[0]
            is_early = job.cancelled_at is not None and bool(result.get("cancelled"))
            status = JobStatus.CANCELLED if is_early else JobStatus.DONE
            self._finish(job, status, job.cancel_reason if is_early else "", result=result)
        elif kind == "cancelled":
            self._finish(job, JobStatus.CANCELLED, self._describe_end(job, job.cancel_reason))
        else:
            self._finish(job, JobStatus.FAILED, content[0]["error"], error=content[0])

    def _exit_error(self, job: Job, code: int | None) -> Response:
        """Return why a job failed whose process has ended."""
        policy = self.lane(job.kind).policy
        reason = describe_exit(policy.process, code)
        if job.label:
            reason = f"{job.label}: {reason}"
        if job.message:
            reason += f" during: {job.message}"
        return {"error": f"{self._describe_end(job, reason)}; {policy.advice}"} | RETRY

    def _finish(
        self,
        job: Job,
        status: JobStatus,
        message: str,
        *,
        result: Response | None = None,
        error: Response | None = None,
        retryable: bool = False,
    ) -> None:
        """Set the final state of a job, unless it has one."""
        if not job.is_active:
            return
        lane = self.lane(job.kind)
        lane.waiting.pop(job, None)
        job.message, job.result = message, result
        job.error = error or {"error": message} | (RETRY if retryable else {})
        job.ended_at, job.arguments = self._clock(), ()
        if not lane.policy.result_ttl_s:
            self._jobs.pop(job.id, None)
        job.status = status  # last: `poll` reads without the lock
        if job not in lane.running:
            job.released.set()
        self._settled.append(job)

    def _prune(self) -> None:
        """Delete expired results, and those above the limit of a lane.

        The address with the most results loses its oldest.
        """
        now, by_lane = self._clock(), defaultdict[Lane, list[Job]](list)
        ended = [job for job in self._jobs.values() if not job.is_active]
        for job in sorted(ended, key=lambda each: each.ended_at)[::-1]:
            lane = self.lane(job.kind)
            if job in lane.running:
                continue
            if now - job.ended_at > lane.policy.result_ttl_s:
                del self._jobs[job.id]
            else:
                by_lane[lane].append(job)
        for lane, jobs in by_lane.items():
            while len(jobs) > (lane.policy.max_results or len(jobs)):
                count_by_address = Counter(job.address for job in jobs)
                most = max(count_by_address.values())
                oldest = next(job for job in jobs[::-1] if count_by_address[job.address] == most)
                jobs.remove(oldest)
                del self._jobs[oldest.id]


def _convert_result(job: Job, last_message: Message) -> Message:
    """Return the last message of a job after its `on_result`."""
    if job.on_result is None:
        return last_message
    before = CLIENT_ADDRESS.set(job.address)  # what the conversion stores counts for the client
    try:
        return "result", job.on_result(last_message[1])
    except UserError as error:
        return "failed", error_response(error)
    except Exception:
        log.exception("The result of a job of the kind %s could not be processed", job.kind)
        return "failed", {"error": "an unexpected error occurred on the server; try again"} | RETRY
    finally:
        CLIENT_ADDRESS.reset(before)
