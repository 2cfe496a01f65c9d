"""A worker that runs out of memory, hangs, raises, or has a loss that is not finite.

Its run reports this and can be resumed, and other runs are not affected.
tests/unit/runs/test_lifecycle.py has the bookkeeping of a worker that ends.
"""

import os
import resource
import signal

import psutil
import pytest

from tests.support.app_server import wait_for
from tests.support.small_runs import (
    assert_complete_series,
    pause_and_wait,
    start_run,
    wait_for_end,
    wait_for_status,
)

# The activations exceed 32 MB, up to which malloc reuses freed memory: each step allocates memory.
LARGE = {"d_model": 8, "d_ff": 520, "batch_size": 512, "max_length": 32, "n_heads": 2}
DIVERGING = {"max_grad_norm": 0.0, "n_layers": 4, "d_model": 16}


def pid(run):
    return run.worker.process.pid


def limit_memory(registry, run):
    # Below the current use, since a step may reuse the memory of the previous step.
    limit = psutil.Process(pid(run)).memory_info().vms // 2
    resource.prlimit(pid(run), resource.RLIMIT_AS, (limit, limit))
    registry.control(run, "resume")
    return "out of memory"


def suspend(registry, run):
    os.kill(pid(run), signal.SIGSTOP)
    registry.control(run, "resume")
    registry.settings.hang_timeout_s = 3.0
    return "the training process hung for 3 s"


def send_invalid_message(registry, run):
    run.send_command("watch")  # an invalid message without its argument
    return "IndexError"


def diverge(registry, run):
    registry.change_setting(run, "learning_rate", 100.0)
    registry.control(run, "resume")
    return "lower learning_rate"


@pytest.mark.parametrize(
    ("fault", "fields"),
    [
        (limit_memory, LARGE),
        (suspend, {}),
        pytest.param(send_invalid_message, {}, marks=pytest.mark.smoke),
        (diverge, DIVERGING),
    ],
)
def test_failed_worker_is_reported_and_other_run_is_unaffected(registries, fault, fields):
    registry = registries(slots=2)
    run, other = start_run(registry, "ada", **fields), start_run(registry, "bob")
    registry.change_setting(other, "speed", 40)  # leaves CPU time to the run that fails
    wait_for(lambda: run.step and other.step, 120, "points of both")
    pause_and_wait(registry, run)
    saved_step, pid_of_other = run.step, pid(other)
    reason = fault(registry, run)
    wait_for_status(run, "failed")
    registry.settings.hang_timeout_s = 60.0
    wait_for_end(run)
    assert reason in run.message
    saved_step = run.checkpoints()[0][1].step if fault is diverge else saved_step
    assert run.message.endswith(f"; Resume continues at step {saved_step}")
    wait_for(lambda step=other.step: other.step > step + 10, 120, "steps of the other run")
    assert (pid(other), other.status, other.message) == (pid_of_other, "training", "")
    if fault is not diverge:  # its weights are lost, only a branch could continue
        last_step = run.load_points().last + 2
        registry.change_setting(run, "max_steps", last_step)
        registry.control(run, "resume")
        wait_for_status(run, "done", "failed")
        assert_complete_series(registry, run, last_step)
