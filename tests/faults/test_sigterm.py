"""The real app receives SIGTERM while a run trains; the next app resumes the run."""

import tempfile
from getpass import getuser
from pathlib import Path

import pytest

from playground.checkpoints.metrics import read_metrics
from playground.runs.owner_keys import new_owner_key
from playground.runs.state import Run
from tests.support.app_server import AppServer, wait_for
from tests.support.page_client import PageClient, run_folders, zipped_small_checkpoint
from tests.support.small_runs import repeat_counts, resumable_steps


def wait_for_step(page, subject, step):
    """Poll until the run is past a step."""
    return wait_for(
        lambda: (result := page.poll(subject))["step"] > step and result,
        120,
        f"steps beyond {step}",
    )


@pytest.fixture
def short_folder():
    """A temporary folder with a short path: below it, the paths of sockets must be short."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def leftovers(folder):
    """Return the names in a temporary folder but those of caches, which are the same each time."""
    return {path.name for path in folder.iterdir()} - {"gradio", f"torchinductor_{getuser()}"}


def start_jobs(page):
    """Start a job of each kind of process, and wait until they run."""
    for kind, fields in {
        "bug": {"request": {"bug": "transpose", "seed": 0, "steps": 1000}},
        "repo_info": {"request": {"repo": "ada/x"}},
        "benchmark": {"request": {"models": [], "n": 500}, "subject": "checkpoint:reverse"},
    }.items():
        job = page.call("jobs/submit", kind=kind, **fields)["job"]
        wait_for(lambda job=job: page.call("jobs/poll", job=job)["status"] != "waiting", 60)


@pytest.mark.smoke
@repeat_counts(1, 20)
def test_sigterm_saves_the_run_and_the_next_app_resumes_it(tmp_path, short_folder, count):
    environment = {"TMPDIR": str(short_folder), "HF_ENDPOINT": "http://192.0.2.1"}
    app = AppServer(tmp_path, PLAYGROUND_SLOTS="1", **environment)
    page, newest_step = PageClient(app, new_owner_key()), 0
    subject = page.upload(zipped_small_checkpoint(tmp_path))
    try:
        for _ in range(count):
            assert list((app.checkpoints / "runs" / ".scratch").iterdir()) == []
            page.run_action(subject, "resume")
            step = wait_for_step(page, subject, newest_step + 10)["step"]
            start_jobs(page)
            assert app.stop() == 0
            assert leftovers(short_folder) == set()
            log = app.log.read_text()
            assert "Runs saved: 1\n" in log
            assert "Traceback" not in log
            (run,) = map(Run.read, run_folders(app))
            newest_step = resumable_steps(run)[0]
            assert (run.status, newest_step >= step) == ("paused", True)
            steps = [line["step"] for line in read_metrics(run.folder)]
            assert steps == list(range(1, newest_step + 1))
            for secret in (run.id, run.share_id, page.owner):
                assert secret not in log
            app.start()
            assert page.poll(subject)["step"] == newest_step
        page.run_action(subject, "resume")
        wait_for_step(page, subject, newest_step)
    finally:
        assert app.stop() == 0
