"""A process that cannot start gives a message, leaves no active job, and the next one works."""

import multiprocessing.context
import threading
from contextlib import contextmanager

import pytest

from playground.comparison import job_queue as comparison_queue
from playground.comparison.process import ENTRY_POINTS
from tests.support.app_server import wait_for

OWNER = "o" * 32
ENDED = ("done", "failed", "cancelled")


def fail_without_descriptors(patch):
    def pipe(*_, **__):
        raise OSError(24, "Too many open files")

    patch.setattr(multiprocessing.context.BaseContext, "Pipe", pipe)


def fail_without_threads(patch):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("comparison-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    patch.setattr(threading.Thread, "start", refuse)


with_each_failure = pytest.mark.parametrize(
    "fail", [fail_without_descriptors, fail_without_threads]
)


@contextmanager
def fail_starts(fail):
    with pytest.MonkeyPatch.context() as patch:
        fail(patch)
        yield


@pytest.fixture
def job_queue():
    job_queue = comparison_queue.ComparisonQueue()
    yield job_queue
    job_queue.close()


def wait_for_result(poll, *arguments):
    return wait_for(
        lambda: (result := poll(*arguments))["status"] in ENDED and result, 60, "the end of a job"
    )


def check_message(result):
    assert result["status"] == "failed"
    assert "could not be started" in result["message"]


@with_each_failure
@pytest.mark.parametrize("kind", ENTRY_POINTS)
def test_a_failed_comparison_job_has_a_message(job_queue, kind, fail):
    for _ in range(comparison_queue.MAX_LIGHT_JOBS_PER_OWNER + 1):  # no failed job keeps a slot
        with fail_starts(fail):
            job = job_queue.submit(kind, {}, OWNER)
            check_message(wait_for_result(job_queue.poll, job, OWNER))
    assert job_queue.process_id is None


@pytest.mark.smoke
@with_each_failure
def test_comparison_jobs_continue_after_a_failed_start(job_queue, fail, tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    with fail_starts(fail):
        check_message(
            wait_for_result(job_queue.poll, job_queue.submit("cached-models", {}, OWNER), OWNER)
        )
    assert (
        wait_for_result(job_queue.poll, job_queue.submit("cached-models", {}, OWNER), OWNER)[
            "status"
        ]
        == "done"
    )
