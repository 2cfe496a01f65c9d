"""The queue of jobs, with an executor and a clock that the test controls."""

import threading
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest

from playground.errors import UserError
from playground.jobs import fair_order
from playground.jobs import queue as queue_module
from playground.jobs.admission import Admission, Policy
from playground.jobs.fair_order import FairOrder
from playground.jobs.housekeeping import Housekeeper
from playground.jobs.job import Job, JobStatus
from playground.jobs.queue import JobQueue
from tests.support.fake_jobs import FakeClock, FakeExecutor

POLICY = Policy(admission=Admission(total=10), result_ttl_s=100.0)
LIGHT = Policy(max_running=5, result_ttl_s=100.0)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def executor():
    return FakeExecutor()


@pytest.fixture
def build(executor, clock):
    """Return a function that builds a queue with some limits."""
    queues = []

    def build(policies=None, policy=POLICY, **limits):
        options = {name: limits.pop(name) for name in ("describe_end", "on_done") if name in limits}
        queue = JobQueue(executor, replace(policy, **limits), policies, **options)
        queue._clock = clock
        queues.append(queue)
        return queue

    yield build
    for queue in queues:
        queue.close()


def submit(queue, owner="ada", label="", kind="heavy", address="", **fields):
    return queue.submit(kind, owner=owner, label=label, address=address, **fields)


def finish_all(executor):
    """Finish each job in the order of the start, and return the labels in that order."""
    for job in executor.started:  # grows meanwhile
        executor.done(job)
    return executor.names


# The order


def test_one_job_runs_at_a_time_in_the_order_of_submission(build, executor):
    queue = build()
    first, second = submit(queue), submit(queue)
    assert (first.status, second.status) == (JobStatus.RUNNING, JobStatus.QUEUED)
    assert [job.queue_position for job in (first, second)] == [0, 1]
    executor.done(first, n=1)
    assert (first.result, second.status) == ({"n": 1}, JobStatus.RUNNING)


def test_light_jobs_run_beside_a_heavy_one(build, executor):
    queue = build({"light": LIGHT})
    jobs = [submit(queue), *(submit(queue, kind="light") for _ in range(6)), submit(queue)]
    assert [job.status for job in jobs] == [JobStatus.RUNNING] * 6 + [JobStatus.QUEUED] * 2
    executor.done(jobs[1])
    assert (jobs[6].status, jobs[7].status) == (JobStatus.RUNNING, JobStatus.QUEUED)


def test_addresses_take_turns_and_so_do_the_owners_behind_one(build, executor):
    queue = build(admission=Admission(total=20))
    for address, owner, labels in (
        ("10.0.0.1", "ada", ("a1", "a2", "a3")),
        ("10.0.0.1", "eve", ("e1", "e2", "e3")),
        ("10.0.0.2", "bob", ("b1", "b2", "b3")),
    ):
        for label in labels:
            submit(queue, owner, label, address=address)
    assert finish_all(executor) == ["a1", "b1", "e1", "b2", "a2", "b3", "e2", "a3", "e3"]


@pytest.mark.parametrize("other", [("10.0.0.1", "eve"), ("10.0.0.2", "ada")])
def test_the_client_that_was_served_last_comes_last(other):
    turns, clients = FairOrder(), (("10.0.0.1", "ada"), other)
    first, second = (Job("x", owner=owner, address=address) for address, owner in clients)
    turns.serve(first)
    assert list(turns.order([first, second], [])) == [second, first]


def test_an_address_with_fewer_active_jobs_comes_first():
    jobs = [Job("x", owner="ada", address=address) for address in "aab"]
    assert list(FairOrder().order(jobs, jobs[:1])) == [jobs[2], jobs[0], jobs[1]]


def test_the_order_is_that_of_the_starts():
    turns, active = FairOrder(), []
    waiting = [Job("x", owner=str(number % 3), address=str(number % 2)) for number in range(12)]
    order = list(turns.order(waiting, active))
    while waiting:
        job = next(turns.order(waiting, active))
        waiting.remove(job)
        turns.serve(job)
        active.append(job)
    assert active == order


def test_old_turns_are_forgotten(monkeypatch):
    monkeypatch.setattr(fair_order, "MAX_TRACKED_TURNS", 3)
    turns, jobs = FairOrder(), [Job("x", owner=owner) for owner in ("ada", "bob", "eve")]
    for job in jobs:
        turns.serve(job)
    assert list(turns._last_turns) == [("", "bob"), ("",), ("", "eve")]


def test_running_jobs_are_limited_per_address(build, executor):
    queue = build(max_running=3, max_running_per_address=1)
    for label in "12":
        submit(queue, "ada", label, address="10.0.0.1")
    submit(queue, "bob", "b", address="10.0.0.2")
    assert executor.names == ["1", "b"]
    executor.done(executor.started[0])
    assert executor.names == ["1", "b", "2"]


# The limits


def test_jobs_are_limited_per_owner_in_each_lane(build, executor):
    light = replace(LIGHT, admission=Admission("light jobs", per_owner=1))
    queue = build({"light": light}, admission=Admission(per_owner=2))
    for _ in range(2):
        submit(queue)
    submit(queue, kind="light")
    for kind in ("heavy", "light"):
        with pytest.raises(UserError, match=r"you have \d .*jobs, which is the maximum") as error:
            submit(queue, kind=kind)
        assert error.value.retryable
    submit(queue, "bob")
    executor.done(executor.started[0])
    submit(queue)


def test_one_address_has_half_of_the_jobs(build):
    queue = build()
    for number in range(5):
        submit(queue, f"invented {number}", address="192.0.2.1")
    with pytest.raises(UserError, match="your address has 5 jobs") as error:
        submit(queue, "invented too", address="192.0.2.1")
    assert error.value.retryable
    submit(queue, "ada", address="192.0.2.2")
    for number in range(4):  # work without a request has no address and no such limit
        submit(queue, f"command {number}")
    with pytest.raises(UserError, match="this server has 10 jobs"):
        submit(queue, "late")


def test_job_is_visible_only_to_its_owner_unless_shared(build):
    queue = build()
    own, shared = submit(queue), submit(queue, "", shared=True)
    assert queue.find(own.id, "ada") is own
    for expected, owner in (
        *((own.id, other) for other in ("bob", "", "ada ", "\udfff")),
        *((other, "ada") for other in ("", None, [own.id], "ada")),
    ):
        assert queue.find(expected, owner) is None
        with pytest.raises(UserError, match="no longer stored"):
            queue.poll(expected, owner)
    assert queue.get(shared.id, "bob") is shared


def test_poll_does_not_wait_for_a_thread_that_holds_the_lock(build):
    queue = build()
    job = submit(queue)
    with queue._lock:
        poller = threading.Thread(target=queue.poll, args=(job.id, "ada"), daemon=True)
        poller.start()
        poller.join(10)
        assert not poller.is_alive()


# Progress and results


def test_progress_rows_and_result_are_polled_with_a_cursor(build, executor, monkeypatch):
    monkeypatch.setattr("playground.jobs.queue.MAX_ROWS", 3)
    queue = build()
    job = submit(queue)
    executor.on_message(job, "message", "Loading", 0.0, "reading")
    executor.on_message(job, "progress", 1, 4, "rows")
    for number in range(5):
        executor.on_message(job, "row", {"n": number})
    state = queue.poll(job.id, "ada", 1)
    assert state["rows"] == [{"n": 1}, {"n": 2}]  # no more than the maximum
    assert (state["cursor"], state["status"], state["message"]) == (3, "working", "Loading")
    assert (state["done"], state["total"], state["unit"]) == (1, 4, "rows")
    executor.on_message(job, "message", "Evaluating", 0.0, None)
    assert queue.poll(job.id, "ada")["total"] == 0
    executor.done(job, score=1)
    executor.on_message(job, "row", {"n": "late"})
    state = queue.poll(job.id, "ada", 10**9)
    assert (state["status"], state["result"], state["rows"]) == ("done", {"score": 1}, [])
    assert job.future.result(0) == {"score": 1}


def test_arguments_are_dropped_at_the_end(build, executor):
    queue = build()
    job = queue.submit("heavy", "secret", owner="ada")
    assert "secret" not in repr(job)
    executor.done(job)
    assert job.arguments == ()


@pytest.mark.parametrize("interrupt", ["cancel", "time-out"])
def test_a_job_whose_result_is_converted_cannot_end_otherwise(build, executor, clock, interrupt):
    queue = build(run_timeout_s=10)

    def convert(result):
        if interrupt == "cancel":
            queue.cancel(job)
        else:
            clock.now += 11
            queue.housekeep()
        return result | {"imported": True}

    job = queue.submit("heavy", owner="ada", on_result=convert)
    executor.done(job, n=1)
    assert (job.status, job.result) == (JobStatus.DONE, {"n": 1, "imported": True})


def test_result_is_converted_for_the_address_of_the_client(build, executor, client_address):
    addresses = []

    def convert(result):
        addresses.append(client_address.get())
        return result | {"more": True}

    def fail(result):
        raise UserError("it could not be imported")

    queue = build()
    client_address.set("192.0.2.1")
    jobs = [queue.submit("heavy", owner="ada", on_result=each) for each in (convert, fail, int)]
    client_address.set("")
    for job in jobs:
        executor.done(job, n=1)
    assert addresses == ["192.0.2.1"]
    assert jobs[0].result == {"n": 1, "more": True}
    assert (jobs[1].status, jobs[1].message) == (JobStatus.FAILED, "it could not be imported")
    assert (jobs[2].status, jobs[2].error["retryable"]) == (JobStatus.FAILED, True)  # logged


def test_next_job_can_be_submitted_from_the_callback_of_a_future(build, executor):
    queue = build()
    job, jobs = submit(queue), []
    job.future.add_done_callback(lambda _: jobs.append(submit(queue)))
    executor.done(job)
    assert jobs[0].status is JobStatus.RUNNING


def test_results_expire_and_the_oldest_are_removed(build, executor, clock):
    queue = build({"light": replace(LIGHT, max_results=3)}, admission=Admission(), max_results=3)
    jobs = [submit(queue, owner) for owner in ("ada", "ada", "ada", "bob")]
    light = [submit(queue, str(number), kind="light") for number in range(4)]
    finish_all(executor)
    queue.housekeep()
    stored = [job for job in (*jobs, *light) if queue.find(job.id, job.owner)]
    assert stored == [*jobs[1:], *light[1:]]
    clock.now += 101
    queue.housekeep()
    assert not any(queue.find(job.id, job.owner) for job in stored)


def test_the_address_with_most_results_loses_its_oldest(build, executor):
    queue = build(admission=Admission(), max_results=4)
    victim = submit(queue, "ada", address="192.0.2.1")
    flood = [submit(queue, str(number), address="192.0.2.9") for number in range(9)]
    other = submit(queue, "bob", address="192.0.2.2")
    finish_all(executor)
    queue.housekeep()
    stored = [job for job in (victim, *flood, other) if queue.find(job.id, job.owner)]
    assert stored == [victim, *flood[-2:], other]


def test_without_a_lifetime_no_result_is_stored(build, executor):
    queue = build(result_ttl_s=0.0)
    job = submit(queue)
    executor.done(job, n=1)
    assert queue.find(job.id, "ada") is None
    assert job.future.result(0) == {"n": 1}


# Cancelling


def test_cancelled_job_that_waits_never_starts(build, executor):
    queue = build()
    first, second, third = (submit(queue, label=label) for label in "123")
    queue.cancel(second)
    assert (second.status, second.released.is_set()) == (JobStatus.CANCELLED, True)
    assert second.future.result(0)["error"] == "cancelled"
    assert third.queue_position == 1
    assert finish_all(executor) == ["1", "3"]
    queue.cancel(first)
    assert first.status is JobStatus.DONE


def test_cancelled_future_frees_its_place(build, executor):
    queue = build(admission=Admission(total=2))
    first, second = submit(queue), submit(queue)
    assert second.future.cancel()
    assert second.status is JobStatus.CANCELLED
    third = submit(queue)
    executor.done(first)
    assert (third.status, len(executor.started)) == (JobStatus.RUNNING, 2)
    assert not third.future.cancel()  # its process has it
    with pytest.raises(CancelledError):
        second.future.result(0)


def test_killed_job_has_its_slot_until_its_process_has_ended(build, executor):
    queue = build(
        cancel_message="cancelled; the rows stay", describe_end=lambda job, why: why + "!"
    )
    job, behind = submit(queue), submit(queue)
    queue.cancel(job)
    assert (job.status, job.message) == (JobStatus.CANCELLED, "cancelled; the rows stay!")
    assert executor.killed == [job]
    assert (behind.status, job.released.is_set()) == (JobStatus.QUEUED, False)
    executor.on_end(job, None, -9)
    assert (behind.status, job.released.is_set()) == (JobStatus.RUNNING, True)
    assert job.message == "cancelled; the rows stay!"


def test_job_that_ignores_its_cancellation_is_killed_after_a_grace_period(build, executor, clock):
    queue = build(cancel_grace_s=20.0)
    executor.can_cancel = True
    job = submit(queue)
    queue.cancel(job)
    clock.now += 19
    queue.housekeep()
    assert (executor.cancel_requests, executor.killed) == ([job], [])
    clock.now += 2
    queue.housekeep()
    assert executor.killed == [job]


def test_job_that_saves_first_is_cancelled_when_it_has_saved(build, executor, clock):
    queue = build(saving_kinds=frozenset({"heavy"}), save_grace_s=300.0, cancel_grace_s=20.0)
    executor.can_cancel = True
    jobs = [submit(queue) for _ in range(3)]
    queue.cancel(jobs[0], "cancelled; the rows stay")
    queue.cancel(jobs[0])
    executor.on_message(jobs[0], "message", "Training", 0.0, None)
    assert (jobs[0].status, "saving" in jobs[0].message) == (JobStatus.RUNNING, True)
    executor.done(jobs[0], cancelled=True, steps=3)
    assert (jobs[0].status, jobs[0].message) == (JobStatus.CANCELLED, "cancelled; the rows stay")
    assert jobs[0].result["steps"] == 3
    queue.cancel(jobs[1])
    executor.done(jobs[1], cancelled=False)  # it was at its last step
    assert jobs[1].status is JobStatus.DONE
    queue.cancel(jobs[2])
    clock.now += 299
    queue.housekeep()
    assert executor.killed == []
    clock.now += 2
    queue.housekeep()
    assert executor.killed == [jobs[2]]


def test_closed_queue_ends_its_jobs_and_accepts_no_more(build, executor):
    queue = build()
    jobs = [submit(queue), submit(queue)]
    queue.close()
    executor.on_end(jobs[0], None, -9)
    assert all("is stopping" in job.future.result(0)["error"] for job in jobs)
    assert executor.is_closed
    with pytest.raises(UserError, match="is stopping"):
        submit(queue)
    assert len(executor.started) == 1


# Time-outs


def test_job_past_its_time_limit_is_killed(build, executor, clock):
    queue = build(run_timeout_s=60.0, timeout_advice="use a smaller model")
    slow, behind = submit(queue, timeout_s=5.0), submit(queue)
    clock.now += 6
    queue.housekeep()
    assert slow.future.result(0) == {
        "error": "this took longer than 5 s and was ended; use a smaller model"
    }
    assert executor.killed == [slow]
    executor.on_end(slow, None, -9)
    clock.now += 59
    queue.housekeep()
    assert behind.is_active
    clock.now += 2
    queue.housekeep()
    assert "longer than 60 s" in behind.message


def test_job_without_messages_is_ended(build, executor, clock):
    queue = build(silence_timeout_s=100.0, startup_timeout_s=600.0, max_running=2)
    job, importing = submit(queue), submit(queue)
    clock.now += 99
    executor.on_message(job, "message", "Connecting", 0.0, None)
    clock.now += 99
    queue.housekeep()
    executor.on_message(job, "message", "Evaluating", 500.0, None)
    clock.now += 500
    queue.housekeep()
    assert job.is_active
    clock.now += 101
    queue.housekeep()
    assert (job.status, job.error["retryable"]) == (JobStatus.FAILED, True)
    assert "sent no message for 600 s" in job.message
    assert "sent no message for 700 s" in importing.message
    assert executor.killed == [job, importing]


@pytest.mark.parametrize(
    ("behind", "turn_s", "ends"),
    [("bob", 300.0, True), ("ada", 300.0, False), ("bob", None, False)],
)
def test_turn_of_a_job_ends_if_another_owner_waits(build, executor, clock, behind, turn_s, ends):
    queue = build(max_turn_s=turn_s)
    long = submit(queue)
    clock.now += 1000
    queue.housekeep()
    assert long.is_active  # no other job waits
    submit(queue, behind)
    queue.housekeep()
    assert (long.status is JobStatus.CANCELLED) is ends
    assert ("stopped after 5 minutes because other jobs wait" in long.message) is ends


def test_job_that_is_not_polled_makes_way_for_another(build, executor, clock):
    queue = build(unpolled_timeout_s=180.0)
    left = submit(queue)
    clock.now += 1000
    queue.housekeep()
    assert left.is_active
    submit(queue, "bob")
    queue.housekeep()
    assert (left.status, executor.killed) == (JobStatus.CANCELLED, [left])
    assert "its page no longer polls" in left.message


def test_job_that_is_not_polled_keeps_its_place_and_starts_after_a_poll(build, executor, clock):
    queue = build(start_polled_within_s=30.0)
    first, left, here = (submit(queue, owner) for owner in ("ada", "bob", "eve"))
    clock.now += 31
    queue.poll(here.id, "eve")
    executor.done(first)
    assert (left.status, here.status) == (JobStatus.QUEUED, JobStatus.RUNNING)
    queue.poll(left.id, "bob")
    executor.done(here)
    assert left.status is JobStatus.RUNNING


# Processes that end early

NOT_STARTED = "could not be started: the machine lacks memory, processes or open files"
KILLED = "was ended from outside (SIGKILL)"


@pytest.mark.parametrize(
    ("code", "reason"), [(None, NOT_STARTED), (137, KILLED), (-11, "ended (exit code -11)")]
)
def test_the_end_of_a_process_has_one_message(build, executor, code, reason):
    queue = build(process="the reader", advice="use fewer rows")
    job, behind = submit(queue, label="ada/digits"), submit(queue)
    executor.on_message(job, "message", "Loading", 0.0, None)
    executor.on_end(job, None, code)
    assert job.future.result(0) == {
        "error": f"ada/digits: the reader {reason} during: Loading; use fewer rows",
        "retryable": True,
    }
    assert behind.status is JobStatus.RUNNING


def test_without_a_thread_for_housekeeping_no_job_is_accepted(build, monkeypatch):
    class NoThread:
        def __init__(self, **_):
            pass

        def start(self):
            raise RuntimeError("can't start new thread")

    queue = build()
    monkeypatch.setattr(queue_module, "HOUSEKEEPER", Housekeeper())
    with monkeypatch.context() as patch:
        patch.setattr("playground.jobs.housekeeping.threading.Thread", NoThread)
        with pytest.raises(UserError, match="no free thread") as error:
            submit(queue)
    assert error.value.retryable
    assert submit(queue).status is JobStatus.RUNNING


def test_callback_that_fails_is_logged(build, executor, caplog):
    def fail(job):
        raise KeyError("an odd job")

    queue = build(on_done=fail)
    executor.done(submit(queue))
    assert [record.exc_info[0] for record in caplog.records] == [KeyError]
    assert submit(queue).status is JobStatus.RUNNING
