"""All slots are in use, sixteen pages poll, and one more run is queued."""

import statistics
import time

import psutil
import pytest

from playground.runs.owner_keys import new_owner_key
from playground.runs.state import Run
from tests.support.app_server import AppServer, wait_for
from tests.support.page_client import (
    PageClient,
    PollingThread,
    run_folders,
    zipped_small_checkpoint,
)
from tests.support.small_runs import tiny_config

SLOTS, WATCHERS, A_SECOND = 4, 16, 4
# the gate's own limits: seconds, seconds, Jain's index, bytes
P95, LONGEST, FAIRNESS, MEMORY = (0.5, 2.0, 0.95, 150_000_000)
LEASE, REAP = 15, 4  # seconds; the lease outlasts a slow start
MODEL = {
    "d_model": 64,
    "n_heads": 4,
    "n_layers": 2,
    "d_ff": 128,
    "batch_size": 128,
    "max_length": 10,
    "eval_size": 256,
}
SECONDS = [pytest.param(12), pytest.param(600, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]


def workers(app):
    """Return the training and inspection processes of the app."""
    return [
        p
        for p in psutil.Process(app.process.pid).children(recursive=True)
        if p.status() != psutil.STATUS_ZOMBIE
    ]


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


@pytest.mark.parametrize("seconds", SECONDS)
def test_sixteen_pages_watch_four_runs_and_are_answered_quickly_and_alike(
    tmp_path, seconds, record_property
):
    app = AppServer(
        tmp_path,
        PLAYGROUND_SLOTS=str(SLOTS),
        PLAYGROUND_IDLE_TIMEOUT_S=str(LEASE),
        PLAYGROUND_RELEASE_AFTER_S=str(REAP),
    )
    try:
        server = psutil.Process(app.process.pid)
        owner = PageClient(app, new_owner_key())
        # the processes that look, and check uploads, stay
        assert "error" not in owner.call("runs/predict", subject="checkpoint:reverse", text="3 1 4")
        first = owner.upload(zipped_small_checkpoint(tmp_path, tiny_config(**MODEL)))
        idle, memory = len(workers(app)), server.memory_info().rss
        subjects = [owner.run_action(first, "rerun")["subject"] for _ in range(SLOTS)]
        fifth = owner.run_action(first, "rerun")["subject"]
        for subject in subjects:
            wait_for(
                lambda subject=subject: owner.poll(subject)["status"] == "training",
                120,
                "a run that trains",
            )
        wait_for(
            lambda: len(workers(app)) == idle + SLOTS, 60, "as many workers as there are places"
        )
        links = [
            "watch:" + owner.call("runs/details", subject=subject)["share_id"]
            for subject in subjects
        ]
        watchers = [
            PollingThread(
                PageClient(app, owner.owner, keeps_connection=True),
                (subjects if n < SLOTS else links)[n % SLOTS],
                A_SECOND,
            )
            for n in range(WATCHERS)
        ]
        for watcher in watchers:
            watcher.start()
        worked, ends = sum(server.cpu_times()[:2]), time.monotonic() + seconds
        while time.monotonic() < ends:
            result = owner.poll(fifth)
            assert (result["status"], result["queue_position"]) == ("waiting", 1)
            time.sleep(1)
        stood = [owner.poll(subject)["status"] for subject in subjects]
        for watcher in watchers:
            watcher.stopping.set()
        for watcher in watchers:
            watcher.join(30)
        worked = sum(server.cpu_times()[:2]) - worked
        took = [each for watcher in watchers for each in watcher.response_seconds]
        figures = {
            "answers": len(took),
            "median": statistics.median(took),
            "p95": statistics.quantiles(took, n=100)[94],
            "longest": max(took),
            "fairness": jain([len(watcher.response_seconds) for watcher in watchers]),
            "processor": worked / len(took),
        }
        owner.run_action(fifth, "stop")
        wait_for(lambda: len(workers(app)) <= idle, 120, "the end of every worker")
        figures["memory"] = (server.memory_info().rss - memory) / 1e6
        for name, value in figures.items():
            record_property(name, round(value, 3))
        print(figures)
        assert stood == ["training"] * SLOTS
        assert [error for watcher in watchers for error in watcher.errors] == []
        assert all(
            watcher.steps == sorted(set(watcher.steps)) and watcher.steps for watcher in watchers
        )
        assert figures["p95"] <= P95, figures
        assert figures["longest"] <= LONGEST, figures
        assert figures["fairness"] >= FAIRNESS, figures
        assert figures["memory"] <= MEMORY / 1e6, figures
    finally:
        code = app.stop()
    log = app.log.read_text()
    assert code == 0
    assert "Traceback" not in log, log
    for run in map(Run.read, run_folders(app)):
        assert run.id not in log
        assert run.share_id not in log
    assert owner.owner not in log
