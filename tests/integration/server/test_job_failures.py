"""Failures of jobs: every kind of job gives one message, and the next job works.

The table has every kind and every failure, with fake processes. Below it, real processes of both
executors fail.
"""

import multiprocessing.context
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from playground.errors import UserError
from playground.hub.jobs import HubJobs
from playground.jobs.executors import ProcessPerJob
from playground.jobs.job import JobStatus
from playground.jobs.process import warm_up
from playground.lessons.service import LessonJobs
from playground.pretrained.jobs import KINDS, PretrainedJobs
from playground.runs.snapshots import InspectorClient
from playground.server.checkpoint_transfer import CheckpointTransfer
from playground.server.datasets_api import DatasetHandlers
from playground.server.jobs_api import RIGHTS_BY_KIND
from playground.server.report_api import ReportHandlers
from tests.support.fake_jobs import FakeClock, fake_processes

REGISTRY = SimpleNamespace(
    single_owner="", damaged={}, settings=SimpleNamespace(slots=2), storage_quota=SimpleNamespace()
)
EXPERIMENTS = SimpleNamespace(registry=REGISTRY)
QUEUES = {  # kind of job -> function that creates its queue
    **dict.fromkeys(RIGHTS_BY_KIND, HubJobs),
    **dict.fromkeys(KINDS, PretrainedJobs),
    **dict.fromkeys(("bug", "lesson"), lambda: LessonJobs(EXPERIMENTS)),
    **dict.fromkeys(("snapshot", "predict", "show"), lambda: InspectorClient(60.0).queue),
    **dict.fromkeys(("report", "page"), lambda: ReportHandlers(REGISTRY)._queue),
    **dict.fromkeys(("upload", "preview"), lambda: DatasetHandlers(REGISTRY)._read_queue),
    "check": lambda: CheckpointTransfer(REGISTRY).checks,
}
FAILURES = {  # failure -> part of its message
    "cannot start": "could not be started",
    "killed": "was ended from outside",
    "hung": "",
    "full disk": "No space left",
    "cancelled": "cancelled",
    "server restart": "the server is stopping; try again in a moment",
    "owner deleted": "no longer stored",
}
OWNER = "o" * 32


def cause(failure, queue, job, process):
    """Let a running job fail."""
    is_resident = not isinstance(queue.executor, ProcessPerJob)
    send = partial(process.on_message, *([job.id] if is_resident else []))
    if failure == "cannot start":
        process.on_exit(None)
    elif failure == "killed":
        process.on_exit(-9)
    elif failure == "full disk":
        text = "No space left on device; free disk space and try again"
        send("failed", {"error": text, "retryable": True})
        if not is_resident:
            process.on_exit(0)
    elif failure == "server restart":
        queue.close()
        process.on_exit(-9)
    else:  # it is ended by a limit, or by its owner
        if failure == "hung":
            queue._clock.now += 1000
            queue.housekeep()
        queue.cancel(job)
        queue._clock.now += 1000
        queue.housekeep()
        assert process.is_killed
        process.on_exit(-9)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("kind", QUEUES)
def test_a_failed_job_has_one_message_and_the_next_works(monkeypatch, kind, failure):
    started, queue, readers = fake_processes(monkeypatch), QUEUES[kind](), {OWNER}
    queue._clock = FakeClock()
    job = queue.submit(kind, "x", owner=OWNER, may_read=lambda: OWNER in readers)
    if failure == "owner deleted":
        readers.clear()
        with pytest.raises(UserError, match=FAILURES[failure]):
            queue.poll(job.id, OWNER)
        queue.cancel(job)
        started[-1].on_exit(-9)
    else:
        cause(failure, queue, job, started[-1])
        error = job.response()["error"]
        assert FAILURES[failure] in error
        assert len(error.splitlines()) == 1
    assert not job.is_active
    assert job.released.is_set()
    if failure == "server restart":
        queue = QUEUES[kind]()
    following = queue.submit(kind, "x", owner=OWNER)
    assert following.status is JobStatus.RUNNING
    if isinstance(queue.executor, ProcessPerJob):
        started[-1].finish(n=1)
    else:
        started[-1].respond(n=1)
    assert (following.response(), following.status) == ({"n": 1}, JobStatus.DONE)
    queue.close()


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Start the fork server, as the app does."""
    warm_up().join()


# a queue with a process for each job, and one with a resident process
BOTH_EXECUTORS = pytest.mark.parametrize("kind", ["upload", "benchmark"])


@pytest.fixture
def queue(kind):
    queue = QUEUES[kind]()
    if isinstance(queue.executor, ProcessPerJob):
        queue.executor.targets = "tests.support.failing_jobs:run"
    else:
        queue.executor.factory = "tests.support.failing_jobs:create_handler"
    yield queue
    queue.close()


def check_next_job(queue, kind):
    """Check that a later job runs and has a result, and that no slot is lost."""
    for _ in range(queue.lane(kind).policy.max_running + 1):
        job = queue.submit(kind, "none", owner=OWNER)
        assert job.future.result(60)["process"], job.message
        assert job.released.wait(60)


def run_failing(queue, kind, failure):
    job = queue.submit(kind, failure, owner=OWNER)
    response = job.future.result(60)
    assert job.released.wait(60)
    assert job.status is JobStatus.FAILED
    return response


@BOTH_EXECUTORS
def test_process_that_cannot_be_started(queue, kind, monkeypatch):
    def pipe(*_, **__):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(multiprocessing.context.BaseContext, "Pipe", pipe)
        response = run_failing(queue, kind, "none")
    assert (
        "could not be started: the machine lacks memory, processes or open files"
        in (response["error"])
    )
    assert response["retryable"]
    check_next_job(queue, kind)


@BOTH_EXECUTORS
def test_process_that_is_killed(queue, kind):
    response = run_failing(queue, kind, "killed")
    assert "was ended from outside (SIGKILL)" in response["error"]
    assert response["retryable"]
    check_next_job(queue, kind)


@BOTH_EXECUTORS
def test_process_that_hangs_is_ended_by_a_limit_or_by_its_owner(queue, kind):
    lane = queue.lane(kind)
    limits = {
        name: 0.5
        for name in ("run_timeout_s", "silence_timeout_s", "cancel_grace_s")
        if getattr(lane.policy, name)
    }
    lane.policy = replace(lane.policy, startup_timeout_s=0.0, **limits)
    job = queue.submit(kind, "hung", owner=OWNER)
    if "cancel_grace_s" in limits:
        queue.cancel(job)
    error = job.future.result(60)["error"]
    assert any(text in error for text in ("longer than", "sent no message", "cancelled")), error
    assert job.released.wait(60)
    lane.policy = replace(lane.policy, run_timeout_s=60.0, silence_timeout_s=60.0)
    check_next_job(queue, kind)


@pytest.mark.smoke
@BOTH_EXECUTORS
def test_full_disk(queue, kind):
    response = run_failing(queue, kind, "full disk")
    assert response == {
        "error": "the system reported an error: No space left on device; "
        "free disk space and try again",
        "retryable": True,
    }
    check_next_job(queue, kind)
