"""All slots are in use, sixteen pages poll, and one more run is queued."""

import statistics

import psutil
import pytest

from playground.runs.owner_keys import new_owner_key
from playground.runs.state import Run
from tests.support.app_server import AppServer, wait_for
from tests.support.fake_jobs import fairness
from tests.support.page_client import (
    PageClient,
    PollingThread,
    run_folders,
    zipped_small_checkpoint,
)
from tests.support.small_runs import tiny_config

SLOTS, WATCHERS, POLLS_PER_SECOND = 4, 16, 4
MIN_FAIRNESS, MAX_MEMORY_BYTES = 0.95, 150_000_000  # Jain's fairness index, bytes
MODEL = {
    "d_model": 64,
    "n_heads": 4,
    "n_layers": 2,
    "d_ff": 128,
    "batch_size": 128,
    "max_length": 10,
    "eval_size": 256,
}
POLLS = [pytest.param(12), pytest.param(2400, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]


def child_processes(app):
    """Return the training and inspection processes of the app."""
    return [
        p
        for p in psutil.Process(app.process.pid).children(recursive=True)
        if p.status() != psutil.STATUS_ZOMBIE
    ]


def wait_for_prediction(page, subject):
    """Repeat a request while the machine is too busy to answer it in time."""
    wait_for(
        lambda: "prediction" in page.call("runs/predict", subject=subject, text="3 1 4"),
        120,
        "a prediction",
    )


@pytest.mark.parametrize("polls", POLLS)
def test_sixteen_pages_of_four_runs_get_fair_responses(tmp_path, polls, record_property):
    app = AppServer(tmp_path, PLAYGROUND_SLOTS=str(SLOTS), PLAYGROUND_RELEASE_AFTER_S="4")
    try:
        server = psutil.Process(app.process.pid)
        owner = PageClient(app, new_owner_key())
        # starts the processes for inspection and uploads, which remain
        wait_for_prediction(owner, "checkpoint:reverse")
        first = owner.upload(zipped_small_checkpoint(tmp_path, tiny_config(**MODEL)))
        n_idle_processes, memory = len(child_processes(app)), server.memory_info().rss
        subjects = [owner.run_action(first, "rerun")["subject"] for _ in range(SLOTS)]
        queued_run = owner.run_action(first, "rerun")["subject"]
        wait_for(
            lambda: {owner.poll(subject)["status"] for subject in subjects} == {"training"},
            120,
            "runs that train",
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
        wait_for(
            lambda: sum(len(each.response_seconds) for each in watchers) > polls * WATCHERS,
            1800,
            "the responses",
        )
        result = owner.poll(queued_run)
        assert (result["status"], result["queue_position"]) == ("waiting", 1)
        wait_for_prediction(owner, subjects[0])
        for watcher in watchers:
            watcher.stopping.set()
        for watcher in watchers:
            watcher.join(120)
        seconds = [each for watcher in watchers for each in watcher.response_seconds]
        record_property("median", round(statistics.median(seconds), 3))
        record_property("longest", round(max(seconds), 3))
        assert {owner.poll(subject)["status"] for subject in subjects} == {"training"}
        for subject in (queued_run, *subjects):
            owner.run_action(subject, "stop")
        wait_for(
            lambda: len(child_processes(app)) <= n_idle_processes, 120, "the end of every worker"
        )
        assert [error for watcher in watchers for error in watcher.errors] == []
        assert all(
            watcher.steps == sorted(set(watcher.steps)) and watcher.steps for watcher in watchers
        )
        assert fairness([len(each.response_seconds) for each in watchers]) >= MIN_FAIRNESS
        assert server.memory_info().rss - memory <= MAX_MEMORY_BYTES
    finally:
        code = app.stop()
    log = app.log.read_text()
    assert code == 0
    assert "Traceback" not in log, log
    for run in map(Run.read, run_folders(app)):
        assert run.id not in log
        assert run.share_id not in log
    assert owner.owner not in log
