"""Child processes that cannot be started, and the time that a process was active."""

import errno
import multiprocessing.util
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from playground.common import platform
from playground.common.env import EnvError
from playground.jobs import process as worker_process
from playground.jobs.housekeeping import HOUSEKEEPER
from playground.jobs.process import WorkerProcess, describe_exit


@pytest.fixture
def no_descriptors(monkeypatch):
    """Let every pipe to a child process fail, as without free file descriptors."""

    def refuse(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    HOUSEKEEPER.add(worker_process.report_failures)
    context = SimpleNamespace(Pipe=refuse, Process=worker_process.context().Process)
    monkeypatch.setattr(worker_process, "context", lambda: context)


@pytest.fixture
def no_threads(monkeypatch):
    """Let the threads of child processes fail to start."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    HOUSEKEEPER.add(worker_process.report_failures)
    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.parametrize("resource", ["no_descriptors", "no_threads"])
def test_a_failed_start_reports_its_end_from_another_thread(resource, request):
    request.getfixturevalue(resource)
    lock, codes = threading.Lock(), []

    def record_exit(code):
        with lock:  # a callback within the constructor would deadlock
            codes.append(code)

    with lock:
        child = WorkerProcess(
            "builtins:id", "refused", on_message=lambda: None, on_exit=record_exit
        )
    assert child.exited.wait(120)
    assert codes == [None]
    assert child.process.pid is None
    assert not child.send("anything")
    child.kill()


def test_lack_of_memory_is_named_only_if_the_kernel_counts_it(tmp_path, monkeypatch):
    events = tmp_path / "group" / "app" / "memory.events"
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("1:cpu:/other\n0::/app\n")
    events.parent.mkdir(parents=True)
    monkeypatch.setattr(platform, "PROC", tmp_path)
    monkeypatch.setattr(platform, "CGROUP", tmp_path / "group")
    monkeypatch.setattr(worker_process, "_n_oom_kills", 3)
    messages = []
    for content in (None, "", "oom 9", "oom_kill x", "oom 9\noom_kill 3\n", "oom_kill 4\n"):
        if content is not None:
            events.write_text(content)
            worker_process._n_oom_kills = 3
        messages.append(describe_exit("it", -9))
    messages.append(describe_exit("it", 137))  # another one, for another reason
    outside = "it was ended from outside (SIGKILL)"
    assert messages == [
        *[outside] * 5,
        "it was ended by the system, which ran out of memory",
        outside,
    ]


HAS_SOCKETS = pytest.mark.skipif(
    "forkserver" not in platform.START_METHODS, reason="only a fork server has such sockets"
)


@HAS_SOCKETS
def test_the_temporary_folder_is_there_before_the_thread_that_needs_it(monkeypatch):
    """Two threads that need it first would each create one, and the server would remove one."""
    configuration = multiprocessing.process.current_process()._config
    monkeypatch.delitem(configuration, "tempdir", raising=False)
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    monkeypatch.setenv("PLAYGROUND_START_METHOD", "forkserver")
    worker_process.warm_up()
    assert Path(configuration["tempdir"]).is_dir()


@HAS_SOCKETS
def test_a_folder_that_is_too_long_for_sockets_is_refused(monkeypatch):
    folders = ["/" + "x" * (worker_process.MAX_SOCKET_FOLDER_LENGTH - 1)]
    monkeypatch.setattr(multiprocessing.util, "get_temp_dir", lambda: folders[-1])
    monkeypatch.setenv("PLAYGROUND_START_METHOD", "forkserver")
    worker_process.context()
    folders.append(folders[0] + "x")
    with pytest.raises(EnvError, match="set TMPDIR to a shorter"):
        worker_process.context()
