"""Training in slices of a leased GPU, with a simulated ZeroGPU (fake_zerogpu.py)."""

import contextvars
import errno
import json
import os
import pickle
import sys
import threading
from types import SimpleNamespace

import pytest

from playground.checkpoints.checkpoint import load_model, weights_by_name
from playground.runs import supervisor
from playground.runs import zerogpu as zero_module
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.runs.worker_protocol import WorkerSpec
from playground.runs.zerogpu import (
    SLICE_MARGIN_S,
    SLICE_SECONDS,
    describe_error,
    run_slice,
    zerogpu_decorated,
)
from playground.training.config import RunConfig
from playground.training.setting_changes import SettingChange
from playground.training.trainer import Trainer, resolve_device
from playground.ui.training_form import component_for
from tests.support.app_server import ROOT, AppServer, wait_for
from tests.support.fake_zerogpu import CURRENT_REQUEST, FakeZeroGpu, ZeroGpuError

CONFIG = RunConfig.from_flat(
    {
        "d_model": 16,
        "n_heads": 2,
        "n_layers": 1,
        "d_ff": 16,
        "batch_size": 8,
        "max_length": 5,
        "dropout": 0.1,
        "eval_every": 20,
        "eval_size": 32,
        "max_steps": 60,
        "device": "zero",
    }
)
LONG = 60.0  # seconds: one slice holds the whole run
QUOTA = ZeroGpuError(
    "You have exceeded your free ZeroGPU quota (35s requested vs. 3s left). <a href='x'>Try</a> "
    "again in 2:00.",
    "ZeroGPU quota exceeded",
)


@pytest.fixture(autouse=True)
def zerogpu_environment(monkeypatch):
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")


@pytest.fixture
def zero():
    zero = FakeZeroGpu(run_slice, LONG)
    yield zero
    zero.kill()


@pytest.fixture
def registry(tmp_path, zero):
    registry = Registry(tmp_path)
    registry.supervisor.slice_runner = zero
    yield registry
    registry.shutdown()


@pytest.fixture
def set_slice_seconds(monkeypatch):
    """Set the duration of a slice."""
    return lambda seconds: monkeypatch.setattr(supervisor, "SLICE_SECONDS", seconds)


def start_slice(registry: Registry, run: Run, user: str = "ada") -> threading.Thread:
    """Start a slice in a thread, as an event of a user does."""
    context = contextvars.copy_context()
    context.run(CURRENT_REQUEST.set, user)
    thread = threading.Thread(target=context.run, args=(registry.supervisor.run_slice, run))
    thread.start()
    return thread


def run_one_slice(registry: Registry, run: Run) -> None:
    start_slice(registry, run).join(60)


def run_to_end(registry: Registry, run: Run) -> Run:
    while run.status == "waiting":
        run_one_slice(registry, run)
    assert run.status == "done", run.message
    return run


def losses(run: Run) -> list[float]:
    return list(run.load_points().columns["loss"])


def weights(run: Run) -> dict[str, list]:
    _, family = load_model(run.checkpoints()[0][0])
    return {name: tensor.tolist() for name, tensor in weights_by_name(family).items()}


@pytest.fixture(scope="module")
def unsliced_result():
    """Return the losses, rounded as they are stored, and the weights of a run without slices."""
    trainer = Trainer(CONFIG)
    stored = [float(f"{metrics.loss:.6g}") for metrics in trainer]
    return stored, {
        name: tensor.tolist() for name, tensor in weights_by_name(trainer.model).items()
    }


@pytest.mark.smoke
def test_slices_equal_one_training_run_bit_for_bit(
    registry, zero, set_slice_seconds, unsliced_result
):
    set_slice_seconds(0.1)
    run = registry.start(CONFIG, "ada")
    assert (run.status, run.has_worker) == ("waiting", False)
    result = registry.poll(run, 0, -1, 0)
    assert (result["awaits_zerogpu"], result["queue_position"]) == (True, None)
    run_to_end(registry, run)
    assert len(zero.calls) >= 3
    # all slices use the process that was forked for the first one
    assert len(set(zero.pids)) == 1
    assert (losses(run), weights(run)) == unsliced_result
    assert run.scores["n"] > 0
    assert registry.poll(run, 0, -1, 0)["awaits_zerogpu"] is False


def test_slice_outside_of_an_event_gets_no_gpu_and_pauses_the_run(registry, zero):
    run = registry.start(CONFIG, "ada")
    thread = threading.Thread(target=registry.supervisor.run_slice, args=(run,))
    thread.start()
    thread.join(30)
    assert run.status == "paused"
    assert "GPU" in run.message


@pytest.mark.parametrize(("action", "status"), [("pause", "paused"), ("stop", "stopped")])
def test_run_between_slices_pauses_or_stops_at_once_and_resumes(
    registry, set_slice_seconds, unsliced_result, action, status
):
    set_slice_seconds(0.02)
    run = registry.start(CONFIG, "ada")
    run_one_slice(registry, run)
    assert run.status == "waiting"
    registry.control(run, action)
    assert run.status == status
    run_one_slice(registry, run)  # an event of a page that does not know the new status yet
    assert run.status == status
    registry.control(run, "resume")
    set_slice_seconds(LONG)
    assert losses(run_to_end(registry, run)) == unsliced_result[0]


@pytest.mark.parametrize(("action", "status"), [("pause", "paused"), ("stop", "stopped")])
def test_pause_within_a_slice_saves_and_releases_the_gpu(
    registry, set_slice_seconds, unsliced_result, action, status
):
    set_slice_seconds(LONG)
    run = registry.start(CONFIG, "ada", changes=[SettingChange(0, "speed", 20)])
    event = start_slice(registry, run)
    wait_for(lambda: run.step >= 3, description="three steps")
    registry.control(run, action)
    event.join(30)
    assert not event.is_alive()
    assert (run.status, run.has_worker) == (status, False)
    assert run.checkpoints()[0][1].step == run.step >= 3
    registry.change_setting(run, "speed", 0)
    registry.control(run, "resume")
    set_slice_seconds(LONG)
    assert losses(run_to_end(registry, run)) == unsliced_result[0]


def test_a_step_takes_one_slice(registry, set_slice_seconds):
    set_slice_seconds(0.02)
    run = registry.start(CONFIG, "ada")
    run_one_slice(registry, run)
    registry.control(run, "pause")
    before = run.step
    registry.control(run, "step")
    assert run.status == "waiting"
    run_one_slice(registry, run)
    assert (run.status, run.step) == ("paused", before + 1)


def test_kill_during_a_slice_pauses_the_run_and_keeps_its_points(
    registry, zero, set_slice_seconds, unsliced_result
):
    set_slice_seconds(LONG)
    run = registry.start(CONFIG, "ada", changes=[SettingChange(0, "speed", 20)])
    event = start_slice(registry, run)
    wait_for(lambda: run.step >= 5, description="five steps")
    zero.kill()
    event.join(30)
    assert (run.status, run.has_worker) == ("paused", False)
    assert run.message.startswith("the slice was interrupted (GPU task aborted)")
    result = losses(run)
    assert len(result) >= 5
    assert result == unsliced_result[0][: len(result)]
    registry.change_setting(run, "speed", 0)
    registry.control(run, "resume")
    run_to_end(registry, run)
    assert (losses(run), weights(run)) == unsliced_result
    assert len(set(zero.pids)) == 2


def test_a_slice_ends_with_its_granted_time(registry, zero, set_slice_seconds):
    set_slice_seconds(LONG)
    zero.duration = 1.0
    run = registry.start(CONFIG.replace(max_steps=100_000), "ada")
    run_one_slice(registry, run)
    assert (run.status, run.has_worker) == ("paused", False)
    assert run.message.startswith("the slice was interrupted (GPU task aborted)")


def test_a_quota_that_is_used_up_pauses_the_run_with_its_checkpoint(
    registry, zero, set_slice_seconds, unsliced_result
):
    set_slice_seconds(0.02)
    run = registry.start(CONFIG, "ada")
    zero.next_error = QUOTA
    run_one_slice(registry, run)
    assert run.status == "paused"
    assert run.message == (
        "the GPU time that ZeroGPU grants a user is used up (You have exceeded your free "
        "ZeroGPU quota (35s requested vs. 3s left). "
        "Try again in 2:00); it has no checkpoint yet"
    )
    registry.control(run, "resume")
    run_one_slice(registry, run)
    step = run.step
    zero.next_error = QUOTA
    run_one_slice(registry, run)
    assert run.message.endswith(
        f"its checkpoint of step {step} is saved, Resume continues from there"
    )
    registry.control(run, "resume")
    set_slice_seconds(LONG)
    assert losses(run_to_end(registry, run)) == unsliced_result[0]


def test_slice_without_connection_pauses_the_run_which_resumes_later(
    registry, zero, set_slice_seconds, unsliced_result, monkeypatch
):
    def raise_too_many_files(*arguments: object, **options: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    set_slice_seconds(LONG)
    run = registry.start(CONFIG, "ada")
    with monkeypatch.context() as patch:
        patch.setattr(zero_module, "Listener", raise_too_many_files)
        run_one_slice(registry, run)
    assert (run.status, run.has_worker, zero.calls) == ("paused", False, [])
    assert (
        run.message
        == "the GPU was not available ([Errno 24] Too many open files); it has no checkpoint yet"
    )
    assert registry.poll(run, 0, -1, 0)["message"] == run.message
    registry.control(run, "resume")
    assert losses(run_to_end(registry, run)) == unsliced_result[0]
    assert run.message == ""


def test_concurrent_requests_of_two_pages_get_one_slice(registry, zero, set_slice_seconds):
    set_slice_seconds(LONG)
    run = registry.start(CONFIG, "ada")
    events = [start_slice(registry, run) for _ in range(2)]
    for event in events:
        event.join(60)
    assert (run.status, len(zero.calls)) == ("done", 1)


def test_a_zerogpu_run_uses_no_slot(registry, set_slice_seconds):
    set_slice_seconds(LONG)
    registry.settings.slots = registry.settings.slots_per_owner = 1
    zerogpu_run = registry.start(CONFIG.replace(max_steps=100_000), "ada")
    event = start_slice(registry, zerogpu_run)
    wait_for(lambda: zerogpu_run.step, description="a step on the leased GPU")
    local_run = registry.start(CONFIG.replace(device="auto"), "ada")
    wait_for(lambda: local_run.status == "done", description="the end of a concurrent run")
    assert zerogpu_run.status == "training"
    registry.control(zerogpu_run, "stop")
    event.join(30)
    assert zerogpu_run.status == "stopped"


def test_shutdown_saves_the_steps_of_a_slice(registry, set_slice_seconds, tmp_path):
    set_slice_seconds(LONG)
    run = registry.start(CONFIG.replace(max_steps=100_000), "ada")
    event = start_slice(registry, run)
    wait_for(lambda: run.step >= 3, description="three steps")
    assert registry.shutdown() == (1, 0)
    event.join(30)
    (actual,) = Registry(tmp_path).list_for_owner("ada")
    assert (actual.status, actual.checkpoints()[0][1].step) == ("paused", run.step)


def test_device_zero_is_auto_without_zerogpu(registry, monkeypatch):
    monkeypatch.delenv("SPACES_ZERO_GPU")
    assert resolve_device("zero") == resolve_device("auto")
    run = registry.start(CONFIG, "ada")
    assert not run.awaits_zerogpu
    wait_for(lambda: run.status == "done", description="the end of a run in its own process")


def test_the_form_offers_zerogpu_if_available(monkeypatch):
    def device_choices() -> list[str]:
        return [value for _, value in component_for("device").choices]

    assert device_choices() == ["auto", "cpu", "cuda", "zero"]
    monkeypatch.delenv("SPACES_ZERO_GPU")
    assert device_choices() == ["auto", "cpu", "cuda"]


def test_a_run_on_a_leased_gpu_requests_extra_time_for_transfers(monkeypatch):
    requested = {}
    monkeypatch.setitem(
        sys.modules,
        "spaces",
        SimpleNamespace(GPU=lambda **options: requested.update(options) or (lambda task: task)),
    )
    assert zerogpu_decorated() is run_slice
    assert requested == {"duration": SLICE_SECONDS + SLICE_MARGIN_S}
    spec = WorkerSpec("folder", CONFIG.to_flat(), [[0, "speed", 2.0]], "train", None, SLICE_SECONDS)
    assert pickle.loads(pickle.dumps((run_slice, spec))) == (run_slice, spec)


SPACES = """
import json, multiprocessing, os, threading
from multiprocessing import forkserver
has_server = forkserver._forkserver._forkserver_pid is not None
state = {"threads": threading.active_count(), "fork server": has_server}
open(os.environ["SEEN"], "w").write(json.dumps(state))
raise RuntimeError("no device API")
"""


def test_app_imports_spaces_first_and_trains_on_cpu_if_that_fails(tmp_path):
    (tmp_path / "spaces.py").write_text(SPACES)
    path, state_path = os.pathsep.join((str(tmp_path), str(ROOT))), tmp_path / "seen.json"
    app = AppServer(tmp_path, PYTHONPATH=path, SPACES_ZERO_GPU="true", SEEN=str(state_path))
    try:
        wait_for(lambda: "Training on" in app.log.read_text(), 60, "the line about the device")
        result = app.request("runs/list", {"owner": ""})
    finally:
        app.stop()
    assert json.loads(state_path.read_text()) == {"threads": 1, "fork server": False}
    log = app.log.read_text()
    assert "RuntimeError: no device API" in log
    assert "Runs train on the CPU" in log
    assert "slices" not in log
    assert "Runs train on the CPU" in result["note"]


@pytest.mark.parametrize(
    ("error", "expected_message"),
    [
        (
            ZeroGpuError("No GPU was available after 60s", "ZeroGPU queue timeout"),
            "no GPU was free (No GPU was available after 60s)",
        ),
        (
            ZeroGpuError("AssertionError", "ZeroGPU worker error"),
            "the slice was interrupted (AssertionError)",
        ),
        (
            RuntimeError("ZeroGPU API /schedule error: 500"),
            "the GPU was not available (ZeroGPU API /schedule error: 500)",
        ),
        (TimeoutError(), "the GPU was not available (TimeoutError)"),
    ],
)
def test_an_exception_becomes_a_message(error, expected_message):
    assert describe_error(error) == expected_message
