"""A poll must not wait for a lock that another thread holds during a slow disk operation."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from playground.runs import registry as registry_module
from playground.runs import state, storage_quota


class SlowDisk:
    """Block a disk operation until the test releases it."""

    def __init__(self):
        self.entered, self.released = threading.Event(), threading.Event()

    def block(self, operation):
        def run_when_released(*arguments, **options):
            self.entered.set()
            self.released.wait(60)
            return operation(*arguments, **options)

        return run_when_released


@pytest.fixture
def registry(create_registry):
    registry = create_registry()
    registry.settings.slots = 0  # every run stays queued
    return registry


def slow_write(monkeypatch, disk, registry):
    monkeypatch.setattr(state, "write_file", disk.block(state.write_file))


def slow_creation(monkeypatch, disk, registry):
    monkeypatch.setattr(registry_module, "write_dir", disk.block(registry_module.write_dir))


def slow_check(monkeypatch, disk, registry):
    monkeypatch.setattr(
        registry.storage_quota,
        "ensure_available",
        disk.block(registry.storage_quota.ensure_available),
    )


def slow_removal(monkeypatch, disk, registry):
    monkeypatch.setattr(storage_quota.shutil, "rmtree", disk.block(storage_quota.shutil.rmtree))


ACTIONS = {
    "a run is renamed": (
        slow_write,
        lambda registry, run: registry.update_metadata(run, name="another"),
    ),
    "its worker ends": (slow_write, lambda registry, run: registry.supervisor.on_exit(run, 0)),
    "a run starts": (slow_creation, lambda registry, run: registry.rerun(run, "bob")),
    "space is freed for a run": (slow_check, lambda registry, run: registry.rerun(run, "bob")),
    "a run is evicted": (
        slow_removal,
        lambda registry, run: registry.storage_quota.evict_if_idle(
            run, registry.storage_quota.delete_run
        ),
    ),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_poll_and_a_request_do_not_wait_for_the_disk(registry, start, monkeypatch, action):
    make_slow, change = ACTIONS[action]
    watched, changed = start(registry), start(registry)
    if action == "a run is evicted":
        registry.control(changed, "stop")
    changed.load_points(), watched.load_points()
    disk = SlowDisk()
    make_slow(monkeypatch, disk, registry)
    with ThreadPoolExecutor(2) as threads:
        pending_change = threads.submit(change, registry, changed)
        try:
            assert disk.entered.wait(60)
            for run in (watched, changed):
                response = threads.submit(registry.poll, run, 0, -1, 0).result(20)
                assert response["name"] == run.name
                assert (
                    "no weights yet"
                    in threads.submit(registry.snapshots.request, "predict", run, "1 2")
                    .result(20)
                    .result(20)["error"]
                )
                threads.submit(registry.find_shared, run.share_id).result(20)
        finally:
            disk.released.set()
        pending_change.result(60)


def test_a_poll_takes_neither_the_lock_of_the_registry_nor_that_of_the_run(registry, start):
    run = start(registry)
    run.load_points(), run.load_weight_steps()
    locked, released = threading.Event(), threading.Event()

    def hold_locks():
        with registry._lock, run.lock, run.loading_lock, run.writing_lock:
            locked.set()
            released.wait(60)

    with ThreadPoolExecutor(2) as threads:
        disk_task = threads.submit(hold_locks)
        try:
            assert locked.wait(60)
            response = threads.submit(registry.poll, run, 0, -1, 0).result(20)
            assert (response["name"], response["status"]) == (run.name, "waiting")
            assert not disk_task.done()  # the locks are still held
        finally:
            released.set()


def test_a_poll_reads_one_record_while_another_thread_replaces_it(registry, start):
    run = start(registry)
    run.load_points(), run.load_weight_steps()
    states = [("training", "", 3), ("failed", "the reason", 9)]
    stopped = threading.Event()

    def replace():
        while not stopped.is_set():
            for status, message, step in states:
                run.update(status=status, message=message, step=step)

    with ThreadPoolExecutor(1) as threads:
        replacing = threads.submit(replace)
        try:
            run.update(status="training", message="", step=3)
            for _ in range(500):
                response = registry.poll(run, 0, -1, 0)
                assert (response["status"], response["message"], response["step"]) in states
        finally:
            stopped.set()
        replacing.result(20)


def test_a_change_is_on_the_disk_when_the_call_returns(registry, start):
    run = start(registry)

    def read_record():
        return json.loads((run.folder / "run.json").read_text())

    assert read_record()["status"] == "waiting"
    registry.update_metadata(run, name="another")
    assert read_record()["name"] == "another"
    registry.control(run, "pause")
    assert read_record()["status"] == "paused"
    registry.delete(run)
    assert read_record()["deleted_at"] == run.deleted_at
