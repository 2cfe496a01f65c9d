"""The real app receives SIGTERM while several runs train."""

import signal
import time

import pytest

from playground.runs.owner_keys import new_owner_key
from playground.runs.state import Run
from playground.runs.weight_history import read_lines
from tests.support.app_server import AppServer, wait_for
from tests.support.page_client import PageClient, run_folders, zipped_small_checkpoint
from tests.support.small_runs import repeat_counts, resumable_steps

RUNS = 2
SAVED_WITHIN = 5.0  # seconds


def start_app_with_runs(folder):
    """Start the app and runs that train; return the app, a page of the owner, and the runs."""
    app = AppServer(folder, PLAYGROUND_SLOTS=str(RUNS))
    page = PageClient(app, new_owner_key())
    first = page.upload(zipped_small_checkpoint(folder))
    subjects = [page.run_action(first, "rerun")["subject"] for _ in range(RUNS)]
    for subject in subjects:
        wait_for_step(page, subject, 10)
    return app, page, subjects


def wait_for_step(page, subject, step):
    """Poll until the run is past a step."""
    return wait_for(
        lambda: (result := page.poll(subject))["step"] > step and result,
        120,
        f"steps beyond {step}",
    )


@pytest.mark.smoke
@repeat_counts(1, 20)
def test_sigterm_saves_every_run_and_next_app_resumes_them(tmp_path, count):
    for number in range(count):
        folder = tmp_path / str(number)
        app, page, subjects = start_app_with_runs(folder)
        steps = {subject: page.poll(subject)["step"] for subject in subjects}
        reported_at = time.time()
        assert app.stop() == 0
        log = app.log.read_text()
        assert f"Runs saved: {RUNS}\n" in log
        assert "Traceback" not in log
        for run in (Run.read(path) for path in run_folders(app)):
            if (subject := f"run:{run.id}") in steps:
                assert resumable_steps(run), (
                    run.status,
                    run.message,
                    sorted(map(str, (run.folder / "checkpoints").rglob("*"))),
                )
                newest = run.folder / "checkpoints" / f"{resumable_steps(run)[0]:07d}"
                assert (newest / "config.json").stat().st_mtime - reported_at < SAVED_WITHIN
                assert resumable_steps(run)[0] >= steps[subject]
                assert [line["step"] for line in read_lines(run.folder)] == list(
                    range(1, resumable_steps(run)[0] + 1)
                )
                assert run.status == "paused"
                steps[subject] = resumable_steps(run)[0]
            for secret in (run.id, run.share_id, page.owner):
                assert secret not in log
        restarted = AppServer(folder, PLAYGROUND_SLOTS=str(RUNS))
        try:
            page = PageClient(restarted, page.owner)
            for subject, step in steps.items():
                assert page.poll(subject)["step"] == step
                page.run_action(subject, "resume")
                result = wait_for_step(page, subject, step + 10)
                assert result["points"]["count"] >= step + 10
                assert result["points"]["steps"] == sorted(set(result["points"]["steps"]))
        finally:
            assert restarted.stop() == 0


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_save_the_runs(tmp_path, number):
    app, page, subjects = start_app_with_runs(tmp_path)
    steps = [page.poll(subject)["step"] for subject in subjects]
    app.process.send_signal(number)
    assert app.process.wait(60) == 0
    runs = {f"run:{run.id}": run for run in map(Run.read, run_folders(app))}
    assert [
        resumable_steps(runs[subject])[0] >= step
        for subject, step in zip(subjects, steps, strict=True)
    ] == [True] * RUNS
