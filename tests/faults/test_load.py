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

SLOTS, WATCHERS, POLLS_PER_SECOND = 4, 16, 4
# limits: seconds, seconds, Jain's fairness index, bytes
MAX_P95_SECONDS, MAX_SECONDS, MIN_FAIRNESS, MAX_MEMORY_BYTES = (0.5, 2.0, 0.95, 150_000_000)
IDLE_TIMEOUT_S, RELEASE_AFTER_S = 15, 4  # seconds; the idle timeout is longer than a slow start
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


def child_processes(app):
    """Return the training and inspection processes of the app."""
    return [
        p
        for p in psutil.Process(app.process.pid).children(recursive=True)
        if p.status() != psutil.STATUS_ZOMBIE
    ]


def jain_index(values):
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


@pytest.mark.parametrize("seconds", SECONDS)
def test_sixteen_pages_of_four_runs_get_fast_and_fair_responses(tmp_path, seconds, record_property):
    app = AppServer(
        tmp_path,
        PLAYGROUND_SLOTS=str(SLOTS),
        PLAYGROUND_IDLE_TIMEOUT_S=str(IDLE_TIMEOUT_S),
        PLAYGROUND_RELEASE_AFTER_S=str(RELEASE_AFTER_S),
    )
    try:
        server = psutil.Process(app.process.pid)
        owner = PageClient(app, new_owner_key())
        # starts the processes for inspection and uploads, which remain
        assert "error" not in owner.call("runs/predict", subject="checkpoint:reverse", text="3 1 4")
        first = owner.upload(zipped_small_checkpoint(tmp_path, tiny_config(**MODEL)))
        n_idle_processes, memory = len(child_processes(app)), server.memory_info().rss
        subjects = [owner.run_action(first, "rerun")["subject"] for _ in range(SLOTS)]
        queued_run = owner.run_action(first, "rerun")["subject"]
        for subject in subjects:
            wait_for(
                lambda subject=subject: owner.poll(subject)["status"] == "training",
                120,
                "a run that trains",
            )
        wait_for(
            lambda: len(child_processes(app)) == n_idle_processes + SLOTS,
            60,
            "a worker for every slot",
        )
        links = [
            "watch:" + owner.call("runs/details", subject=subject)["share_id"]
            for subject in subjects
        ]
        watchers = [
            PollingThread(
                PageClient(app, owner.owner, keeps_connection=True),
                (subjects if n < SLOTS else links)[n % SLOTS],
                POLLS_PER_SECOND,
            )
            for n in range(WATCHERS)
        ]
        for watcher in watchers:
            watcher.start()
        cpu_seconds, end_at = sum(server.cpu_times()[:2]), time.monotonic() + seconds
        while time.monotonic() < end_at:
            result = owner.poll(queued_run)
            assert (result["status"], result["queue_position"]) == ("waiting", 1)
            time.sleep(1)
        statuses = [owner.poll(subject)["status"] for subject in subjects]
        for watcher in watchers:
            watcher.stopping.set()
        for watcher in watchers:
            watcher.join(30)
        cpu_seconds = sum(server.cpu_times()[:2]) - cpu_seconds
        response_seconds = [
            seconds_of_response
            for watcher in watchers
            for seconds_of_response in watcher.response_seconds
        ]
        figures = {
            "answers": len(response_seconds),
            "median": statistics.median(response_seconds),
            "p95": statistics.quantiles(response_seconds, n=100)[94],
            "longest": max(response_seconds),
            "fairness": jain_index([len(watcher.response_seconds) for watcher in watchers]),
            "processor": cpu_seconds / len(response_seconds),
        }
        owner.run_action(queued_run, "stop")
        wait_for(
            lambda: len(child_processes(app)) <= n_idle_processes, 120, "the end of every worker"
        )
        figures["memory"] = (server.memory_info().rss - memory) / 1e6
        for name, value in figures.items():
            record_property(name, round(value, 3))
        print(figures)
        assert statuses == ["training"] * SLOTS
        assert [error for watcher in watchers for error in watcher.errors] == []
        assert all(
            watcher.steps == sorted(set(watcher.steps)) and watcher.steps for watcher in watchers
        )
        assert figures["p95"] <= MAX_P95_SECONDS, figures
        assert figures["longest"] <= MAX_SECONDS, figures
        assert figures["fairness"] >= MIN_FAIRNESS, figures
        assert figures["memory"] <= MAX_MEMORY_BYTES / 1e6, figures
    finally:
        code = app.stop()
    log = app.log.read_text()
    assert code == 0
    assert "Traceback" not in log, log
    for run in map(Run.read, run_folders(app)):
        assert run.id not in log
        assert run.share_id not in log
    assert owner.owner not in log
