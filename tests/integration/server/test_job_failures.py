"""Failures of job processes: every kind of job gives a message, and the next job works."""

import multiprocessing.context
from dataclasses import replace
from types import SimpleNamespace

import pytest

from playground.hub.jobs import create_hub_queue
from playground.jobs.executors import ProcessPerJob
from playground.jobs.job import JobStatus
from playground.jobs.process import warm_up
from playground.lessons.service import LessonService
from playground.pretrained.jobs import PretrainedJobs
from playground.runs.inspector_client import InspectorClient
from playground.server.checkpoint_transfer import CheckpointTransfer
from playground.server.datasets_api import DatasetHandlers
from playground.server.report_api import ReportHandlers

REGISTRY = SimpleNamespace(
    single_owner="",
    damaged={},
    settings=SimpleNamespace(slots=2),
    storage_quota=SimpleNamespace(),
)
QUEUES = {  # kind of job -> function that creates its queue
    "push": create_hub_queue,
    "benchmark": PretrainedJobs,
    "cached-models": lambda: PretrainedJobs(hosted=True),
    "bug": lambda: LessonService(REGISTRY).queue,
    "snapshot": lambda: InspectorClient(60.0).queue,
    "report": lambda: ReportHandlers(REGISTRY)._queue,
    "upload": lambda: DatasetHandlers(REGISTRY)._read_queue,
    "check": lambda: CheckpointTransfer(REGISTRY).checks,
}
OWNER = "o" * 32


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


@pytest.mark.parametrize("kind", QUEUES)
def test_process_that_is_killed(queue, kind):
    response = run_failing(queue, kind, "killed")
    assert "was ended from outside (SIGKILL)" in response["error"]
    assert response["retryable"]
    check_next_job(queue, kind)


@pytest.mark.parametrize("kind", QUEUES)
def test_every_kind_of_job_has_a_time_limit_or_can_be_cancelled(queue, kind):
    policy = queue.lane(kind).policy
    assert policy.run_timeout_s or policy.silence_timeout_s or policy.cancel_grace_s


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
