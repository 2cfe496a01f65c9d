"""The real app as on Windows: new interpreters, no POSIX modules, open files that are locked.

tests/support/other_desktop describes what it hides and refuses.
"""

import os
import subprocess
import sys

import psutil
import pytest

from playground.checkpoints.checkpoint import resume_trainer
from tests.support.app_server import OTHER_DESKTOP, ROOT, AppServer, wait_for
from tests.support.fake_hub import FakeHub
from tests.support.page_client import PageClient, run_folders
from tests.support.small_runs import ENDLESS, SMALL_SETTINGS


def worker_of(app, folder):
    """Return the process that trains in this folder: it has the lock open."""

    def find():
        for child in psutil.Process(app.process.pid).children(recursive=True):
            if any(file.path == str(folder / ".lock") for file in child.open_files()):
                return child
        return None

    return wait_for(find, 60, "the worker of a run")


@pytest.fixture
def hub():
    with FakeHub() as hub:
        yield hub


@pytest.mark.timeout(600)  # workers and a job import PyTorch in new interpreters
def test_a_run_outlives_its_worker_and_is_published(hub, tmp_path):
    place = tmp_path / "Größe, with blanks"
    place.mkdir()
    machine = hub.environment(place / "hf", token=hub.ADA, HF_HUB_DISABLE_IMPLICIT_TOKEN="0")
    app = AppServer(place, PYTHONPATH=OTHER_DESKTOP, **machine)
    try:
        page = PageClient(app, (app.checkpoints / "runs" / ".owner").read_text())
        assert page.load()
        subject = page.train(**SMALL_SETTINGS, max_steps=ENDLESS, stop_at_exact_match=0.0)
        assert subject.startswith("run:"), subject

        def reaches(status, step):
            def reached():
                state = page.poll(subject)
                return state["status"] == status and state["step"] >= step and state["step"] + 1

            return wait_for(reached, 120, f"{status} at step {step}")

        step = reaches("training", 5)
        page.run_action(subject, "pause")
        step = reaches("paused", step)
        page.run_action(subject, "resume")
        step = reaches("training", step)
        (folder,) = run_folders(app)
        wait_for(lambda: [*(folder / "checkpoints").glob("[0-9]*")], 60, "a checkpoint")
        worker_of(app, folder).kill()
        reaches("failed", 1)
        page.run_action(subject, "resume")
        reaches("training", 1)
        page.run_action(subject, "stop")
        last = reaches("stopped", 1) - 1
        assert resume_trainer(max((folder / "checkpoints").glob("[0-9]*")))[0].step_count == last
        published = page.run_job("push", subject, repo="ada/other-desktop", expected="")
        assert published["status"] == "done", published
        assert hub.commit_titles("ada/other-desktop")[-1] == f"Step {last}"
    finally:
        app.stop()
    assert app.process.returncode == 0
    assert "Traceback" not in app.log.read_text()


@pytest.mark.timeout(900)
def test_what_touches_files_and_processes_passes_its_unit_tests(tmp_path):
    folders = [f"tests/unit/{name}" for name in ("common", "jobs")]
    options = ["-q", "-n0", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'unit'}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *folders],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": OTHER_DESKTOP},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
