"""A process that cannot be started: the user gets the reason, and the next attempt works."""

import multiprocessing.context
import threading
from contextlib import contextmanager

import pytest

from playground.comparison import job_queue as comparison
from playground.comparison.process import ENTRY_POINTS
from tests.support.app_server import wait_for

OWNER = "o" * 32
OVER = ("done", "failed", "cancelled")


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


FAILURES = pytest.mark.parametrize("fail", [fail_without_descriptors, fail_without_threads])


@contextmanager
def failing(fail):
    with pytest.MonkeyPatch.context() as patch:
        fail(patch)
        yield


@pytest.fixture
def comparer():
    comparer = comparison.ComparisonQueue()
    yield comparer
    comparer.close()


def over(poll, *arguments):
    return wait_for(
        lambda: (result := poll(*arguments))["status"] in OVER and result, 60, "the end of a job"
    )


def check_sentence(result):
    assert result["status"] == "failed"
    assert "could not be started" in result["message"]


@FAILURES
@pytest.mark.parametrize("kind", ENTRY_POINTS)
def test_a_failed_comparison_job_has_a_message(comparer, kind, fail):
    for _ in range(comparison.MAX_LIGHT_JOBS_PER_OWNER + 1):  # none of them stays under way
        with failing(fail):
            job = comparer.submit(kind, {}, OWNER)
            check_sentence(over(comparer.poll, job, OWNER))
    assert comparer.process_id is None


@pytest.mark.smoke
@FAILURES
def test_comparison_jobs_go_on_after_a_failed_start(comparer, fail, tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    with failing(fail):
        check_sentence(over(comparer.poll, comparer.submit("cached-models", {}, OWNER), OWNER))
    assert (
        over(comparer.poll, comparer.submit("cached-models", {}, OWNER), OWNER)["status"] == "done"
    )
