"""The executors, with stand-ins for their processes."""

import tempfile
from pathlib import Path

import pytest

from playground.jobs.admission import Policy
from playground.jobs.entry import ResidentOptions
from playground.jobs.executors import ProcessPerJob, ResidentProcess
from playground.jobs.job import JobStatus
from playground.jobs.queue import JobQueue


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def per_job(**options):
    executor = ProcessPerJob({"count": "builtins:len"}, **options)
    return JobQueue(executor, Policy(max_running=2, result_ttl_s=60.0))


def resident(idle_timeout_s=None, **limits):
    executor = ResidentProcess(
        "some:factory", name="resident", options=ResidentOptions, idle_timeout_s=idle_timeout_s
    )
    return JobQueue(executor, Policy(result_ttl_s=60.0, **limits)), executor


# A process for each job


def test_job_has_ended_when_its_process_has(started):
    job = per_job().submit("count", [1, 2])
    (process,) = started
    assert process.arguments[:2] == ("builtins:len", ([1, 2],))
    process.on_message("result", {"n": 2})
    assert job.is_active
    process.on_exit(0)
    assert job.future.result(0) == {"n": 2}


def test_result_of_a_process_that_was_killed_afterwards_counts(started):
    job = per_job().submit("count", "ab")
    started[0].on_message("result", {"n": 2})
    started[0].on_exit(-9)
    assert job.status is JobStatus.DONE


def test_temporary_folder_is_removed_when_the_process_has_ended(started, scratch):
    queue = per_job(reports_progress=True)
    jobs = [queue.submit("count", "ab") for _ in range(2)]
    folders = [Path(process.arguments[3]) for process in started]
    assert sorted(scratch.iterdir()) == sorted(folders)
    started[0].finish()
    queue.cancel(jobs[1])
    assert (started[1].is_killed, list(scratch.iterdir())) == (True, [folders[1]])
    started[1].on_exit(-9)
    assert list(scratch.iterdir()) == []
    assert all(job.released.is_set() for job in jobs)


def test_job_without_a_temporary_folder_fails_and_the_next_one_works(started, scratch, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    queue = per_job(reports_progress=True)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", full)
        job = queue.submit("count", "ab")
        assert "could not be started" in job.future.result(0)["error"]
    queue.submit("count", "ab")
    started[0].finish()
    assert list(scratch.iterdir()) == []


# One process for all jobs


def test_process_is_reused_for_one_job_after_another(started):
    queue, _ = resident()
    first, second = queue.submit("count", "a"), queue.submit("count", "b")
    (process,) = started
    assert process.sent == [("begin", first.id, "count", ("a",))]
    process.on_message(first.id, "row", {"n": 0})
    process.respond(n=1)
    process.respond(n=2)
    assert (first.rows, first.result, second.result) == ([{"n": 0}], {"n": 1}, {"n": 2})
    process.on_message(first.id, "result", {"n": "late"})
    assert first.result == {"n": 1}


def test_jobs_that_wait_survive_the_end_of_the_process(started):
    queue, _ = resident()
    current, waiting = queue.submit("count", "a"), queue.submit("count", "b")
    started[0].on_exit(-11)
    assert current.response()["retryable"]
    assert started[1].sent == [("begin", waiting.id, "count", ("b",))]
    started[1].respond(n=2)
    assert waiting.result == {"n": 2}


def test_killed_process_names_the_cause_to_its_other_jobs(started):
    queue, _ = resident(max_running=2)
    first, second = queue.submit("count", "a"), queue.submit("count", "b")
    queue.cancel(first)
    assert started[0].is_killed
    started[0].on_exit(-9)
    assert first.status is JobStatus.CANCELLED
    assert "another job did not end" in second.response()["error"]
    assert second.response()["retryable"]
    third = queue.submit("count", "c")
    started[1].on_exit(-9)  # this time by the system
    assert "ended from outside (SIGKILL)" in third.response()["error"]


def test_job_that_did_not_save_in_time_does_not_blame_another_one(started):
    queue, executor = resident(saving_kinds=frozenset({"count"}))
    job = queue.submit("count", "a")
    queue.cancel(job)
    executor.kill(job)  # after the time for saving
    started[0].on_exit(-9)
    assert job.response()["error"]
    assert "another job" not in job.response()["error"]


def test_job_that_a_busy_process_does_not_accept_is_forgotten(started, monkeypatch):
    queue, executor = resident(max_running=2, idle_timeout_s=10.0)
    queue.submit("count", "a")
    monkeypatch.setattr(started[0], "send", lambda *message: False)
    refused = queue.submit("count", "b")
    assert refused.status is JobStatus.FAILED
    started[0].respond()
    executor._last_used_at -= 20
    queue.housekeep()
    assert started[0].is_killed


def test_cancellation_reaches_the_process(started):
    queue, _ = resident(cancel_grace_s=20.0)
    job = queue.submit("count", "a")
    queue.cancel(job)
    assert started[0].sent[1:] == [("cancel", job.id)]
    assert not started[0].is_killed
    started[0].on_message(job.id, "cancelled")
    assert (job.status, job.released.is_set()) == (JobStatus.CANCELLED, True)


def test_only_an_idle_process_ends(started):
    queue, executor = resident(idle_timeout_s=1200.0)
    queue.submit("count", "a")
    executor._last_used_at -= 1300
    queue.housekeep()
    assert not started[0].is_killed
    started[0].respond()
    queue.housekeep()
    assert not started[0].is_killed
    executor._last_used_at -= 1300
    queue.housekeep()
    assert started[0].is_killed


def test_job_that_follows_the_end_of_an_idle_process_has_a_new_process(started):
    queue, executor = resident(idle_timeout_s=1200.0)
    queue.submit("count", "a")
    started[0].respond()
    executor._last_used_at -= 1300
    queue.housekeep()
    job = queue.submit("count", "b")  # the idle process is killed, but has not exited yet
    assert len(started) == 2
    started[0].on_exit(-9)
    started[1].respond()
    assert job.status is JobStatus.DONE
    queue.submit("count", "c")
    assert len(started) == 2


def test_closed_process_is_not_started_again(started):
    queue, executor = resident()
    job = queue.submit("count", "a")
    queue.close()
    assert started[0].is_killed
    assert not executor.start(job)
