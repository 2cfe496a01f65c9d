"""The real app on limited machines: read-only, one core, no shared memory, no fork server.

On each of them it trains to the end, or reports what is missing and what to do.
test_disk_full.py has the full disk.
"""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress

import psutil
import pytest

from playground.checkpoints.checkpoint import resume_trainer
from playground.errors import UserError
from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import ROOT, AppServer, wait_for
from tests.support.page_client import PageClient, run_folders, zipped_small_checkpoint
from tests.support.small_runs import SMALL_SETTINGS, mounted, run_as_root, tiny_config

STEPS = 12
SMALL = SMALL_SETTINGS | {"max_steps": STEPS, "eval_every": 6}
READ_ONLY = "Read-only file system"
# Shared memory and semaphores are files in /dev/shm; this makes it empty and read-only.
NO_SHARED_MEMORY = (
    'mount -t tmpfs -o ro none /dev/shm && ! touch /dev/shm/x 2>/dev/null && exec "$@"'
)

# Gradio requests its own page at the start, with a timeout of three seconds. One core that also
# imports torch may take longer.
TOO_SLOW_FOR_GRADIO = """
import runpy, sys
from gradio import networking
networking.url_ok = lambda url: False
sys.argv = sys.argv[2:]
runpy.run_path("app.py", run_name="__main__")
"""


@contextmanager
def running_app(*arguments, **settings):
    app = AppServer(*arguments, **settings)
    try:
        yield app
    finally:
        if app.process.poll() is None:
            app.stop()
    assert app.process.returncode == 0
    assert "Traceback" not in app.log.read_text()


def owner_page(app):
    return PageClient(app, (app.checkpoints / "runs" / ".owner").read_text())


def train_to_end(app):
    """Start a run, wait for its end, and request a prediction."""
    page = owner_page(app)
    subject = page.train(**SMALL)
    assert subject.startswith("run:"), subject
    result = wait_for(
        lambda: (result := page.poll(subject))["status"] in ("done", "failed") and result,
        120,
        "the end of the run",
    )
    assert (result["status"], result["message"], result["step"]) == ("done", "", STEPS)
    assert "error" not in page.call("runs/predict", subject=subject, text="3 1 4")
    (run,) = run_folders(app)
    assert resume_trainer(max((run / "checkpoints").glob("[0-9]*")))[0].step_count == STEPS


@pytest.fixture
def checkout(tmp_path):
    """Mount this checkout read-only."""
    with mounted(tmp_path / "checkout", "--bind", str(ROOT)) as folder:
        assert run_as_root("mount", "-o", "remount,ro,bind", str(folder))
        assert os.statvfs(folder).f_flag & os.ST_RDONLY
        yield folder


def test_read_only_folder_serves_models_and_names_storage_setting(tmp_path, checkout):
    """Start processes in new interpreters, as on Windows; without a home that can be written."""
    with running_app(
        tmp_path, checkout=checkout, HOME=str(checkout), PLAYGROUND_START_METHOD="spawn"
    ) as app:
        train_to_end(app)
        children = psutil.Process(app.process.pid).children(recursive=True)
        command_lines = []
        for child in children:
            with suppress(psutil.NoSuchProcess):  # also of a zombie
                command_lines.append(" ".join(child.cmdline()))
        assert any("spawn_main" in command_line for command_line in command_lines)
        assert not any("forkserver" in command_line for command_line in command_lines)
    with running_app(tmp_path, checkout=checkout, PLAYGROUND_CHECKPOINTS="") as app:
        page = PageClient(app, new_owner_key())
        response = page.call("runs/predict", subject="checkpoint:reverse", text="3 1 4")
        assert response.get("target") == ["4", "1", "3"], response
        message = page.train(**SMALL)
        assert message.startswith("the run")
        assert "set PLAYGROUND_CHECKPOINTS to a folder that can be written" in message
        archive_bytes = zipped_small_checkpoint(tmp_path, tiny_config())
        with pytest.raises(RuntimeError, match=f"{READ_ONLY}; set PLAYGROUND_CHECKPOINTS"):
            page.upload(archive_bytes)
        assert (
            f"{checkout}/checkpoints/runs: the storage folder cannot be written ({READ_ONLY}): "
            "models can be inspected, but not trained; set" in app.log.read_text()
        )
        note = page.call("runs/list")["note"]
        assert note.startswith(f"the storage folder cannot be written ({READ_ONLY}): ")
        assert str(checkout) not in note


def test_server_starts_with_stale_temp_files_on_read_only_disk(tmp_path, registries):
    with mounted(tmp_path / "disk" / "runs", "-t", "tmpfs", "-o", "mode=1777", "tmpfs") as runs:
        (runs / ".incomplete.tmp").write_text("incomplete")
        os.utime(runs / ".incomplete.tmp", (0, 0))
        assert run_as_root("mount", "-o", "remount,ro", str(runs))
        registry = registries(runs.parent)
        assert registry.storage.error().startswith(
            f"the storage folder cannot be written ({READ_ONLY})"
        )
        with pytest.raises(UserError, match=f"{READ_ONLY}; set PLAYGROUND_CHECKPOINTS to a folder"):
            registry.start(tiny_config(), "ada")
        assert [path.name for path in runs.iterdir()] == [".incomplete.tmp"]


@pytest.fixture
def one_core():
    """Restrict the processes that this thread starts to one core."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot limit a process to one core")
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(usable)})
    yield {max(usable)}
    os.sched_setaffinity(0, usable)


def test_one_core_without_shared_memory_can_train(tmp_path, one_core):
    if not shutil.which("unshare"):
        pytest.skip("no unshare here, to take /dev/shm away from one process alone")
    # as root, or as any user if the system permits it
    prefixes = [
        [*command, "sh", "-c", NO_SHARED_MEMORY, "sh"]
        for command in (["unshare", "-m"], ["unshare", "-r", "-m"])
    ]
    usable = [
        prefix
        for prefix in prefixes
        if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    ]
    if not usable:
        pytest.skip("a name space of its own takes root, or a system that permits it to any user")
    with running_app(
        tmp_path, command_prefix=[*usable[0], sys.executable, "-c", TOO_SLOW_FOR_GRADIO]
    ) as app:
        train_to_end(app)
        assert os.sched_getaffinity(app.process.pid) == one_core
