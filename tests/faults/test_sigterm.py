"""The real app receives SIGTERM while a run trains; the next app resumes the run."""

import tempfile
from getpass import getuser
from pathlib import Path

import pytest

from playground.runs.owner_keys import new_owner_key
from playground.runs.state import Run
from playground.runs.weight_history import read_lines
from tests.support.app_server import AppServer, wait_for
from tests.support.page_client import PageClient, run_folders, zipped_small_checkpoint
from tests.support.small_runs import resumable_steps


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


@pytest.mark.smoke
def test_sigterm_saves_the_run_and_next_app_resumes_it(tmp_path, short_folder):
    app = AppServer(
        tmp_path, PLAYGROUND_SLOTS="1", TMPDIR=str(short_folder), HF_ENDPOINT="http://192.0.2.1"
    )
    page = PageClient(app, new_owner_key())
    subject = page.upload(zipped_small_checkpoint(tmp_path))
    page.run_action(subject, "resume")
    step = wait_for_step(page, subject, 10)["step"]
    page.call("jobs/submit", kind="repo_info", request={"repo": "ada/x"})  # its process starts
    assert app.stop() == 0
    caches = {"gradio", f"torchinductor_{getuser()}"}  # of libraries, with the same name each time
    assert {path.name for path in short_folder.iterdir()} <= caches
    log = app.log.read_text()
    assert "Runs saved: 1\n" in log
    assert "Traceback" not in log
    (run,) = map(Run.read, run_folders(app))
    newest_step = resumable_steps(run)[0]
    assert (run.status, newest_step >= step) == ("paused", True)
    assert [line["step"] for line in read_lines(run.folder)] == list(range(1, newest_step + 1))
    for secret in (run.id, run.share_id, page.owner):
        assert secret not in log
    app = AppServer(tmp_path, PLAYGROUND_SLOTS="1")
    try:
        page = PageClient(app, page.owner)
        assert page.poll(subject)["step"] == newest_step
        page.run_action(subject, "resume")
        wait_for_step(page, subject, newest_step)
    finally:
        assert app.stop() == 0
