"""Errors of a child process that cannot be started."""

import errno
import os
import threading
from types import SimpleNamespace

import psutil
import pytest

from playground.jobs import process as worker_process
from playground.jobs.process import WorkerProcess, cpu_seconds
from playground.runs.inspector_client import InspectorClient
from playground.runs.registry import Registry
from playground.server.report_api import ReportHandlers
from playground.training.config import RunConfig
from tests.support.app_server import ROOT, wait_for
from tests.support.coroutines import run_in_thread

SMALL = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 16,
    "batch_size": 8,
    "max_length": 5,
    "eval_size": 32,
    "max_steps": 20,
}


@pytest.fixture
def no_descriptors(monkeypatch):
    """Use up all file descriptors, so that no pipe can be created."""

    def refuse(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    context = worker_process.context()
    monkeypatch.setattr(
        worker_process, "context", lambda: SimpleNamespace(Pipe=refuse, Process=context.Process)
    )


@pytest.fixture
def no_threads(monkeypatch):
    """Let the threads of child processes fail to start."""
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("refused"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.smoke
@pytest.mark.parametrize("resource", ["no_descriptors", "no_threads"])
def test_failed_child_start_reports_its_end_from_another_thread(resource, request):
    # start the thread of the module before resources run out
    WorkerProcess("builtins:id", "first", on_message=lambda: None, on_exit=lambda code: None)
    request.getfixturevalue(resource)
    lock, codes = threading.Lock(), []

    def record_exit(code):
        with lock:  # a callback within the constructor would deadlock
            codes.append(code)

    with lock:
        child = WorkerProcess(
            "builtins:id", "refused", on_message=lambda: None, on_exit=record_exit
        )
    assert child.exited.wait(30)
    assert codes == [None]
    assert child.process.pid is None
    assert not child.send("anything")
    child.kill()


def test_a_run_whose_process_cannot_be_started_fails_and_can_be_resumed(tmp_path, request):
    registry = Registry(tmp_path, slots=2)
    try:
        with pytest.MonkeyPatch.context() as patch:
            context = worker_process.context()
            pipes = [OSError(errno.EMFILE, "Too many open files")]

            def refuse(*_):
                raise pipes[0]

            patch.setattr(
                worker_process,
                "context",
                lambda: SimpleNamespace(Pipe=refuse, Process=context.Process),
            )
            run = registry.start(RunConfig.from_flat(SMALL), "ada")
            wait_for(lambda: run.status == "failed", 60, "the end of a run without a process")
            assert "could not be started" in run.message
            assert not run.has_worker
        registry.control(run, "resume")
        wait_for(lambda: run.status == "done", 120, "the end of the resumed run")
    finally:
        registry.shutdown()


def test_request_to_a_process_that_cannot_start_gets_an_error(no_descriptors):
    response = InspectorClient().request("warm", {}).result(60)
    assert "could not be started" in response["error"]
    assert response["retryable"]


def test_report_returns_error_if_process_cannot_start(no_descriptors):
    registry = Registry(ROOT / "checkpoints")
    handler = ReportHandlers(registry).handlers()["runs/report"]
    response = run_in_thread(handler({"subject": "checkpoint:reverse"}, None))
    assert "could not be started" in response["error"]
    registry.shutdown()


def test_waiting_for_a_cpu_counts_as_active(tmp_path):
    for thread, text in (
        ("7", "1000000000 50000000000 3\n"),
        ("8", "500000000 0 1\n"),
        ("9", "odd\n"),
    ):
        folder = tmp_path / "7" / "task" / thread
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(text)
    assert cpu_seconds(7, tmp_path) == 51.5


def test_active_seconds_is_cpu_time_without_scheduler_statistics(tmp_path):
    times = psutil.Process().cpu_times()
    assert cpu_seconds(os.getpid(), tmp_path) >= times.user + times.system
    with pytest.raises(psutil.NoSuchProcess):
        cpu_seconds(2**22 + 1, tmp_path)
