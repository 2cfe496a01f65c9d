"""A worker that is killed, runs out of memory, hangs, raises, or has a loss that is not finite.

Its run reports this and can be resumed, and other runs are not affected.
"""

import os
import resource
import signal

import psutil
import pytest

from tests.support.app_server import wait_for
from tests.support.small_runs import (
    assert_complete_series,
    newest_checkpoint_step,
    pause_and_wait,
    repeat_counts,
    resumable_steps,
    start_run,
    wait_for_end,
    wait_for_status,
)

STEPS_AFTER_RESUME = 10  # steps after resuming
# The activations exceed 32 MB, up to which malloc reuses freed memory: each step allocates memory.
LARGE = {"d_model": 8, "d_ff": 520, "batch_size": 512, "max_length": 32, "n_heads": 2}


def pid(run):
    return run.worker.process.pid


def kill(registry, run):
    os.kill(pid(run), signal.SIGKILL)
    return "the training process was killed"


def limit_memory(registry, run):
    registry.control(run, "pause")
    wait_for_status(run, "paused")
    # Below the current use, since a step may reuse the memory of the previous step.
    limit = psutil.Process(pid(run)).memory_info().vms // 2
    resource.prlimit(pid(run), resource.RLIMIT_AS, (limit, limit))
    registry.control(run, "resume")
    return "out of memory"


def suspend(registry, run):
    os.kill(pid(run), signal.SIGSTOP)
    return "the training process hung for 3 s"


def send_invalid_message(registry, run):
    run.send_command("watch")  # an invalid message without its argument
    return "IndexError"


def diverge(registry, run):
    registry.change_setting(run, "learning_rate", 100.0)
    return "lower learning_rate"


@repeat_counts(1, 20)
@pytest.mark.parametrize("fault", [kill, limit_memory, suspend, send_invalid_message, diverge])
def test_failed_worker_is_reported_and_other_run_is_unaffected(registries, count, fault):
    fields = {
        limit_memory: LARGE,
        diverge: {"max_grad_norm": 0.0, "n_layers": 4, "d_model": 16},
    }.get(fault, {})
    for _ in range(count):
        registry = registries(hang_timeout_s=3.0 if fault is suspend else 60.0, slots=2)
        run, other = (
            start_run(registry, "ada", **fields),
            start_run(registry, "bob", max_steps=100_000),
        )
        wait_for(lambda run=run, other=other: run.step > 2 and other.step, 120, "points of both")
        pause_and_wait(registry, run)
        registry.control(run, "resume")
        wait_for_status(run, "training")
        before, pid_of_other, points_of_other = resumable_steps(run)[0], pid(other), other.step
        reason = fault(registry, run)
        wait_for_status(run, "failed")
        wait_for(
            lambda other=other, step=points_of_other: other.step > step + 50,
            120,
            "the other run to continue",
        )
        assert reason in run.message
        saved_step = resumable_steps(run)[0]
        assert saved_step >= before
        assert (
            f"its checkpoint of step {saved_step} is saved, Resume continues from there"
            in run.message
        )
        wait_for_end(run)
        # the weights have diverged, so branch from the earlier checkpoint
        if fault is diverge:
            run = registry.branch(run, before, "ada")
            wait_for_status(run, "paused")
        registry.change_setting(run, "learning_rate", 1e-3)
        last_step = run.step + (
            2 if fault is limit_memory else STEPS_AFTER_RESUME
        )  # its steps are slow
        registry.change_setting(run, "max_steps", last_step)
        registry.control(run, "resume")
        wait_for_status(run, "done", "failed")
        assert run.status == "done", run.message
        assert_complete_series(registry, run, last_step)
        assert (pid(other), other.status, other.message) == (pid_of_other, "training", "")
        registry.control(other, "stop")
        wait_for_status(other, "stopped")
        check_all_points(other)
        registry.shutdown(20)


def check_all_points(run):
    points = run.load_points()
    assert (points.first, points.last) == (1, len(points))
    assert newest_checkpoint_step(run) == points.last


@pytest.mark.smoke
def test_run_killed_before_its_first_checkpoint_restarts_on_resume(registries):
    registry = registries()
    run = start_run(registry, max_steps=200)
    wait_for(lambda: run.step, 60, "the first points")
    kill(registry, run)
    wait_for_status(run, "failed")
    assert "it has no checkpoint yet" in run.message
    registry.control(run, "resume")
    wait_for_status(run, "done")
    assert_complete_series(registry, run, 200)


def test_worker_killed_while_paused_resumes_from_its_checkpoint(registries):
    registry = registries()
    run = start_run(registry)
    wait_for(lambda: run.step, 60, "the first points")
    pause_and_wait(registry, run)
    step = run.step
    kill(registry, run)
    wait_for_status(run, "failed")
    assert f"its checkpoint of step {step} is saved" in run.message
    registry.change_setting(run, "max_steps", step + STEPS_AFTER_RESUME)
    registry.control(run, "resume")
    wait_for_status(run, "done")
    assert_complete_series(registry, run, step + STEPS_AFTER_RESUME)


def test_change_after_worker_failure_applies_from_displayed_step(registries):
    registry = registries()
    run = start_run(registry)
    wait_for(lambda: run.step, 60, "the first points")
    pause_and_wait(registry, run)
    saved_step = run.step
    registry.control(run, "resume")
    wait_for(lambda: run.step > saved_step + 20, 60, "steps that no checkpoint has")
    kill(registry, run)
    wait_for_status(run, "failed")
    wait_for_end(run)
    # the page displays this step, so the change applies from it
    displayed_step = run.load_points().last
    registry.change_setting(run, "learning_rate", 5e-4)
    registry.change_setting(run, "max_steps", displayed_step + 10)
    registry.control(run, "resume")
    wait_for_status(run, "done")
    assert_complete_series(registry, run, displayed_step + 10)
    rates = list(run.load_points().columns["learning_rate"])
    assert set(rates[displayed_step:]) == {5e-4}
    assert 5e-4 not in rates[:displayed_step]


def test_change_on_queued_branch_leaves_its_history_unchanged(registries):
    registry = registries(slots=1)
    run = start_run(registry)
    wait_for(lambda: run.step > 10, 60, "some steps")
    branch = registry.branch(run, 10, "ada")
    if branch.status == "waiting":
        registry.change_setting(branch, "learning_rate", 5e-4)
        assert [change.to_list() for change in branch.changes] == [[10, "learning_rate", 5e-4]]
    registry.control(run, "stop")
    wait_for_status(branch, "paused")
    registry.change_setting(branch, "max_steps", 20)
    registry.control(branch, "resume")
    wait_for_status(branch, "done")
    assert_complete_series(registry, branch, 20)
    assert list(branch.load_points().columns["learning_rate"]) == [1e-3] * 10 + [5e-4] * 10


def test_busy_worker_is_not_treated_as_hung(registries):
    registry = registries(hang_timeout_s=0.3)
    run = start_run(
        registry,
        max_steps=2,
        batch_size=800,
        max_length=32,
        d_model=64,
        d_ff=256,
        eval_size=500,
        eval_every=1,
    )
    wait_for_status(run, "done", "failed", seconds=200)
    assert run.status == "done", run.message
