import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from playground.checkpoints import manifest as manifest_module
from playground.checkpoints.checkpoint import save_checkpoint
from playground.checkpoints.manifest import read_manifest
from playground.errors import UserError
from playground.jobs.process import warm_up
from playground.models.config_fields import ConfigError
from playground.runs import registry as registry_module
from playground.runs import scheduler, storage_folder, supervisor
from playground.runs.record import MAX_NAME_LENGTH, MAX_TAG_LENGTH, RunRecord, owner_id
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.runs.supervisor import UNDO_TTL_S
from playground.runs.weight_history import read_lines, weight_steps, weights_path
from playground.training.config import RunConfig
from playground.training.setting_changes import SettingChange
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT, wait_for

SMALL = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 16,
    "batch_size": 8,
    "max_length": 5,
    "eval_size": 32,
    "eval_every": 50,
}
AVERAGED_MUON = {"optimizer": "muon", "weight_averaging": True}
SLOW_MOTION = [SettingChange(0, "speed", 40)]  # leaves CPU time to other processes
ENDLESS = 100_000


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Start the fork server, which imports torch, as the app does."""
    warm_up().join()


@pytest.fixture
def registry(tmp_path):
    registry = Registry(tmp_path, slots=3)
    yield registry
    registry.shutdown()


@pytest.fixture
def create_registry(tmp_path):
    """Create registries on the same folder, with settings of their own."""
    registries = []

    def create(**settings) -> Registry:
        registries.append(Registry(tmp_path, **settings))
        return registries[-1]

    yield create
    for registry in registries:
        registry.shutdown()


def start(
    registry: Registry, owner: str = "ada", changes: Iterable[SettingChange] = (), **fields
) -> Run:
    return registry.start(RunConfig.from_flat(SMALL | fields), owner, changes=changes)


def start_slow_run(registry: Registry, owner: str = "ada", **fields) -> Run:
    """Start a run that trains slowly and does not end."""
    return start(registry, owner, SLOW_MOTION, **({"max_steps": ENDLESS} | fields))


def wait_until(run: Run, condition, what: str) -> Run:
    """Wait for a condition of a run; report the state of the run on a timeout."""
    try:
        wait_for(condition, 60, what)
    except TimeoutError as error:
        raise TimeoutError(
            f"{error}; the run is {run.status} at step {run.step}: {run.message}"
        ) from None
    return run


def wait_for_status(run: Run, *statuses: str) -> Run:
    return wait_until(run, lambda: run.status in statuses, f"one of {statuses}")


def wait_for_steps(run: Run, step: int = 1) -> Run:
    return wait_until(run, lambda: run.step >= step, f"step {step}")


def wait_for_pause_at(run: Run, step: int) -> Run:
    return wait_until(
        run, lambda: (run.status, run.step) == ("paused", step), f"a pause at step {step}"
    )


def wait_for_worker_end(run: Run) -> Run:
    """Wait until the run has no worker process."""
    return wait_until(
        run, lambda: not run.has_worker and run.status != "waiting", "the end of a worker"
    )


def run_to_end(registry: Registry, run: Run) -> Run:
    """Resume the run if necessary, and wait for its end."""
    wait_for(lambda: run.status not in ("starting", "waiting"), description="a worker")
    if run.status != "done":
        registry.control(run, "resume")
    return wait_for_worker_end(wait_for_status(run, "done"))


def pause_after(registry: Registry, run: Run, step: int = 1) -> Run:
    """Pause the run after a step, and wait for its checkpoint."""
    wait_for_steps(run, step)
    registry.control(run, "pause")
    wait_for_status(run, "paused")
    return wait_until(
        run,
        lambda: run.checkpoints() and latest_step(run) == run.step,
        "the checkpoint of a paused run",
    )


def pause_and_release(registry: Registry, run: Run) -> Run:
    """Pause the run, and release its worker."""
    pause_after(registry, run)
    run.send_command("park")
    return wait_for_worker_end(run)


def losses(run: Run) -> list[float]:
    points = run.load_points()
    assert points.first == 1
    return list(points.columns["loss"])


def latest_step(run: Run) -> int:
    """Return the step of the newest checkpoint."""
    return run.checkpoints()[0][1].step


def get_result(future: Future) -> dict:
    return future.result(60)


def has_exited(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


class PollingClient:
    """Poll a run as a page does, and keep its points."""

    def __init__(self, registry: Registry, run: Run) -> None:
        self.registry, self.run = registry, run
        # n_restarts: how often the series of points started over
        self.epoch, self.known, self.attends, self.n_restarts = (-1, 0, 0, 0)
        self.steps: list[int] = []
        self.losses: list[float] = []

    def poll(self) -> dict:
        response = self.registry.poll(self.run, self.known, self.epoch, self.attends)
        json.dumps(response, allow_nan=False)
        points = response["points"]
        if response["series_id"] != self.epoch or points["whole"]:
            assert points["whole"]  # after a restart, the client receives every point
            self.steps, self.losses, self.n_restarts = (
                [],
                [],
                self.n_restarts + (response["series_id"] != self.epoch),
            )
        self.steps += points["steps"]
        self.losses += points["loss"]
        self.epoch, self.known, self.attends = (
            response["series_id"],
            points["count"],
            response["snapshot_version"],
        )
        assert self.steps == list(range(1, len(self.steps) + 1))
        assert self.known == len(self.steps) or self.known > 3000
        return response

    def poll_until(self, condition) -> dict:
        return wait_for(
            lambda: (response := self.poll()) and condition(response) and response,
            description="a message",
        )


# Lifecycle of a run


@pytest.mark.smoke
def test_run_trains_in_its_own_process_and_saves_scored_checkpoint(registry):
    run = start(registry, max_steps=60)
    worker = run.worker
    assert worker.process.pid != os.getpid()
    wait_for_worker_end(wait_for_status(run, "done"))
    assert worker.exited.wait(60)
    assert has_exited(worker.process.pid)
    assert len(losses(run)) == run.step == 60
    assert run.scores["n"] == 2000
    (path, manifest), *_ = run.checkpoints()
    assert (manifest.step, manifest.scores["exact_match"]) == (60, run.scores["exact_match"])
    assert path.parent == run.folder / "checkpoints"
    assert json.loads((run.folder / "run.json").read_text())["status"] == "done"
    assert [line["step"] for line in read_lines(run.folder)] == list(range(1, 61))
    PollingClient(registry, run).poll_until(
        lambda response: response["snapshot"] and response["snapshot"]["step"] == 60
    )


def test_pause_single_step_and_resume_control_the_run(registry):
    run = start_slow_run(registry)
    pause_after(registry, run)
    held_at = run.step
    for further in (1, 2):
        registry.control(run, "step")
        wait_for(lambda: run.step == held_at + further, description="a single step")  # noqa: B023
        assert run.status == "paused"
    assert get_result(registry.snapshots.predict(run, "3 1 4"))["target"] == ["4", "1", "3"]
    assert run.step == held_at + 2
    registry.control(run, "resume")
    wait_for_steps(run, held_at + 5)
    assert len(losses(run)) >= held_at + 5


@pytest.mark.smoke
@pytest.mark.parametrize("settings", [{}, AVERAGED_MUON], ids=str)
def test_stopped_run_saves_predicts_and_resumes_bit_exactly(registry, settings):
    run, undisturbed = (
        start(registry, changes=SLOW_MOTION, max_steps=60, dropout=0.1, **settings),
        start(registry, max_steps=60, dropout=0.1, **settings),
    )
    wait_for_steps(run)
    registry.control(run, "stop")
    wait_for_worker_end(wait_for_status(run, "stopped"))
    stopped_at = run.step
    assert latest_step(run) == stopped_at < 60
    assert get_result(registry.snapshots.predict(run, "1 2"))["target"] == ["2", "1"]
    run_to_end(registry, run)
    assert losses(run) == losses(wait_for_status(undisturbed, "done"))
    assert len(losses(run)) == 60


@pytest.mark.parametrize("action", ["stop", "resume"])
def test_a_command_during_the_end_of_a_run_does_not_fail_it(registry, action):
    runs = [start(registry, max_steps=1) for _ in range(3)]
    for run in runs:
        wait_for_status(run, "done")
        registry.control(run, action)  # its process may not have ended yet
    for run in runs:
        wait_for_worker_end(run)
        assert (run.status, run.message) == ("done", "")


def test_resume_right_after_stop_is_not_lost(registry):
    run = start_slow_run(registry)
    for _ in range(3):
        before = wait_for_steps(run).step
        registry.control(run, "stop")
        wait_for_status(run, "stopped")
        registry.control(run, "resume")  # its process may not have ended yet
        wait_for_steps(run, before + 2)


def test_a_second_stop_ends_a_worker_that_does_not_listen_at_once(registry):
    run, other = start_slow_run(registry), start_slow_run(registry)
    pause_after(registry, run)
    wait_for(lambda: run.checkpoints(), description="a checkpoint")
    registry.control(run, "resume")
    wait_for_status(run, "training")
    pid = run.worker.process.pid
    os.kill(pid, signal.SIGSTOP)
    registry.control(run, "stop")
    assert run.status == "stopping"
    registry.control(run, "stop")
    wait_for_worker_end(run)
    assert run.status == "stopped"
    assert "ended immediately by a second Stop; its checkpoint of step " in run.message
    assert has_exited(pid)
    registry.control(run, "resume")
    wait_for_steps(run, latest_step(run) + 1)
    wait_for_steps(other, other.step + 2)


@pytest.mark.parametrize(("number", "paused"), [(signal.SIGTERM, False), (signal.SIGHUP, True)])
def test_a_worker_that_is_signalled_saves_first_and_can_be_resumed(registry, number, paused):
    run = start_slow_run(registry)
    wait_for_steps(run)
    if paused:
        pause_after(registry, run)
    os.kill(run.worker.process.pid, number)
    wait_for_worker_end(run)
    assert (run.status, latest_step(run)) == ("paused", run.step)
    before = run.step
    registry.control(run, "resume")
    wait_for_steps(run, before + 2)


def test_saved_checkpoints_stay_and_of_the_others_only_the_latest(registry):
    run = start_slow_run(registry)
    wait_for_steps(run)
    registry.control(run, "save")
    wait_for(lambda: run.live.checkpoint_version == 1, description="a saved checkpoint")
    (stored,) = (path.name for path, _ in run.checkpoints())
    assert stored.endswith("-kept")
    for count in (2, 3, 4, 5):
        pause_after(registry, run, run.step + 1)
        wait_for(lambda n=count: run.live.checkpoint_version == n, description="a checkpoint")
        registry.control(run, "resume")
        wait_for_status(run, "training")
    names = [path.name for path, _ in run.checkpoints()]
    assert len(names) == 3
    assert names[-1] == stored
    assert names == sorted(names, reverse=True)


# Waiting for a slot


@pytest.mark.smoke
def test_runs_above_the_slots_are_queued_and_move_up(create_registry):
    registry = create_registry(slots=1)
    first, second, third, fourth = (start_slow_run(registry) for _ in range(4))
    wait_for_steps(first)
    runs = (first, second, third, fourth)
    assert [registry.scheduler.position(run) for run in runs] == [None, 1, 2, 3]
    assert [PollingClient(registry, run).poll()["queue_position"] for run in runs] == [
        None,
        1,
        2,
        3,
    ]
    assert [row["queue_position"] for row in registry.summaries("ada")] == [3, 2, 1, None]
    registry.control(third, "stop")
    assert (
        third.status,
        registry.scheduler.position(third),
        registry.scheduler.position(fourth),
    ) == (
        "stopped",
        None,
        2,
    )
    registry.control(first, "stop")
    wait_for_steps(second)
    assert [registry.scheduler.position(run) for run in runs] == [None, None, None, 1]
    registry.control(second, "stop")
    wait_for_steps(fourth)
    assert sum(run.has_worker for run in runs) == 1
    registry.control(third, "resume")
    assert (third.status, registry.scheduler.position(third)) == ("waiting", 1)


def test_paused_queued_run_rejoins_the_queue_at_its_end(create_registry):
    registry = create_registry(slots=1)
    first, second, third = (start_slow_run(registry) for _ in range(3))
    registry.control(second, "pause")
    assert (second.status, registry.scheduler.position(third)) == ("paused", 1)
    registry.control(second, "resume")
    assert [registry.scheduler.position(run) for run in (second, third)] == [2, 1]
    for action in ("step", "save", "resume"):
        registry.control(second, action)
    assert [registry.scheduler.position(run) for run in (second, third)] == [2, 1]
    assert first.has_worker


def test_owners_with_fewer_slots_start_first(create_registry):
    registry = create_registry(slots=2)
    running = [start_slow_run(registry, "ada"), start_slow_run(registry, "ada")]
    ada, ada_2, bob, bob_2, eve = (
        start_slow_run(registry, owner) for owner in ("ada", "ada", "bob", "bob", "eve")
    )
    assert [registry.scheduler.position(run) for run in (bob, eve, bob_2, ada, ada_2)] == [
        1,
        2,
        3,
        4,
        5,
    ]
    registry.control(running[0], "stop")
    wait_for_steps(bob)
    assert [registry.scheduler.position(run) for run in (eve, ada, bob_2, ada_2)] == [1, 2, 3, 4]
    registry.control(bob, "stop")
    wait_for_steps(eve)  # bob has no slot either and arrived earlier, but has had a turn
    assert [registry.scheduler.position(run) for run in (bob_2, ada, ada_2)] == [1, 2, 3]


def test_paused_run_yields_its_slot_and_resumes_afterwards(create_registry):
    registry = create_registry(slots=1)
    run = pause_after(registry, start_slow_run(registry))
    step = run.step
    other = start(registry, "bob", max_steps=30)
    wait_for_status(other, "starting", "training", "done")
    assert (run.status, run.has_worker, latest_step(run)) == ("paused", False, step)
    registry.control(run, "resume")
    wait_for_status(other, "done")
    wait_for_steps(run, step + 2)
    assert len(losses(run)) >= step + 2


def test_a_training_run_keeps_its_slot(create_registry):
    registry = create_registry(slots=2)
    training, paused = start_slow_run(registry), pause_after(registry, start_slow_run(registry))
    wait_for_steps(training)
    waiting = start_slow_run(registry, "bob")
    wait_for_steps(waiting)
    assert (training.status, paused.has_worker) == ("training", False)


def test_a_run_resumed_while_it_pauses_waits_for_the_next_slot(create_registry):
    registry = create_registry(slots=1)
    run = pause_after(registry, start_slow_run(registry))
    step = run.step
    other = start_slow_run(registry, "bob")  # requests the slot of the paused run
    registry.control(run, "resume")
    wait_for_steps(other)
    wait_for_status(run, "waiting")
    assert registry.scheduler.position(run) == 1
    registry.control(other, "stop")
    wait_for_steps(run, step + 2)


def expected_order(queue: list[str], slots_in_use: dict[str, int], turns: list[str]) -> list[int]:
    """Order a queue as specified: by slots in use, then by last turn, then by arrival."""
    slots_in_use, turns = (
        Counter(slots_in_use),
        {owner: position for position, owner in enumerate(turns, start=1)},
    )
    remaining, order = list(enumerate(queue)), []
    while remaining:
        position, owner = min(
            remaining, key=lambda item: (slots_in_use[item[1]], turns.get(item[1], 0), item[0])
        )
        remaining.remove((position, owner))
        slots_in_use[owner] += 1
        turns[owner] = 1_000 + len(order)
        order.append(position)
    return order


def test_the_queue_orders_by_slots_then_turns_then_arrival(registry):
    rng = random.Random(0)
    for _ in range(200):
        owners = "abcdef"[: rng.randint(1, 6)]
        queue, running = (
            rng.choices(owners, k=rng.randint(0, 12)),
            rng.choices(owners, k=rng.randint(0, 4)),
        )
        waiting = [SimpleNamespace(owner=owner) for owner in queue]
        registry._runs = {
            str(index): SimpleNamespace(owner=owner, has_worker=True)
            for index, owner in enumerate(running)
        }
        # owners, least recent turn first
        turns = rng.sample(owners, rng.randint(0, len(owners)))
        registry.scheduler._queue, registry.scheduler._turn_counter = list(waiting), len(turns)
        registry.scheduler._last_served = OrderedDict(
            (owner, number) for number, owner in enumerate(turns, start=1)
        )
        order = [
            next(index for index, item in enumerate(waiting) if item is run)
            for run in registry.scheduler.order()
        ]
        assert order == expected_order(queue, Counter(running), turns)
    registry._runs, registry.scheduler._queue = {}, []


def test_a_run_that_does_not_fit_into_memory_is_rejected_with_the_number(registry):
    config = RunConfig.from_flat(
        {"d_model": 4096, "n_layers": 48, "d_ff": 16384, "batch_size": 65536, "max_length": 512}
    )
    with pytest.raises(
        ConfigError, match=r"needs about [\d,.]+ GB and [\d.]+ GB are free"
    ) as error:
        registry.start(config, "ada")
    assert error.value.field == "batch_size"
    assert registry.list_for_owner("ada") == []


def test_run_short_of_memory_does_not_block_smaller_runs(create_registry, monkeypatch):
    def reject_large_batches(config: RunConfig, reserved_bytes: int = 0) -> None:
        if config.training.batch_size > 8:
            raise ConfigError("batch_size", "this run needs about 9.0 GB and 1.0 GB are free")

    registry = create_registry(slots=1)
    running, large, small = (
        start_slow_run(registry),
        start_slow_run(registry, batch_size=16),
        start_slow_run(registry),
    )
    monkeypatch.setattr(scheduler, "ensure_memory_available", reject_large_batches)
    wait_for_steps(running)
    registry.control(running, "stop")
    wait_for_steps(small)
    response = PollingClient(registry, large).poll()
    # it waits for a slot, not for memory
    assert (response["status"], response["queue_position"], response["message"]) == (
        "waiting",
        1,
        "",
    )
    registry.settings.slots = registry.settings.slots_per_owner = 2
    wait_for(lambda: large.message, description="the reason")
    assert large.message == "waiting for memory: this run needs about 9.0 GB and 1.0 GB are free"
    monkeypatch.undo()
    wait_for_steps(large)
    assert (large.message, small.status) == ("", "training")


def test_run_short_of_memory_is_overtaken_for_a_limited_time(create_registry, monkeypatch):
    live = []

    def reject_large_batches(config: RunConfig, reserved_bytes: int = 0) -> None:
        if config.training.batch_size > 8 and live and live[0].has_worker:
            raise ConfigError("batch_size", "this run needs about 9.0 GB and 1.0 GB are free")

    registry = create_registry(slots=3)
    live.append(start_slow_run(registry))
    wait_for_steps(live[0])
    registry.control(live[0], "pause")
    wait_for_status(live[0], "paused")
    monkeypatch.setattr(scheduler, "BYPASS_WINDOW_S", 3600.0)
    monkeypatch.setattr(scheduler, "ensure_memory_available", reject_large_batches)
    monkeypatch.setattr(registry, "validate_size", lambda config: None)
    large, small = start_slow_run(registry, batch_size=16), start_slow_run(registry)
    wait_for_steps(small)  # it overtook the large run
    assert large.status == "waiting"
    monkeypatch.setattr(scheduler, "BYPASS_WINDOW_S", 0.0)  # as after two minutes
    wait_for_steps(large)  # the paused run has released its memory
    assert not live[0].has_worker


# Without viewers


def test_unwatched_run_pauses_with_reason_and_releases_its_worker(create_registry):
    registry = create_registry(slots=2, idle_timeout_s=3, release_after_s=1)
    run, watched = start_slow_run(registry), start_slow_run(registry)
    page = PollingClient(registry, watched)
    page.poll_until(lambda response: not run.has_worker and run.step)
    assert run.status == "paused"
    assert "paused automatically after 3 s without viewers" in run.message
    assert latest_step(run) == run.step
    assert watched.status == "training"
    assert "without viewers" in Run.read(run.folder).message
    response = PollingClient(registry, run).poll()
    assert (response["status"], response["has_worker"], response["points"]["count"]) == (
        "paused",
        False,
        run.step,
    )
    before = run.step
    registry.control(run, "resume")
    PollingClient(registry, run).poll_until(lambda response: response["step"] > before + 2)
    assert run.message == ""


def test_polling_the_list_renews_the_lease_of_its_runs(create_registry):
    registry = create_registry(slots=2, idle_timeout_s=6)
    viewed, unviewed = start_slow_run(registry, "ada"), start_slow_run(registry, "bob")
    wait_for(
        lambda: registry.summaries("ada") and unviewed.status == "paused",
        description="the pause of a run without viewers",
    )
    assert viewed.status == "training"


def test_an_unwatched_waiting_run_leaves_the_queue_with_a_reason(create_registry):
    registry = create_registry(slots=1, idle_timeout_s=600)
    running, unviewed, next_in_queue = (start_slow_run(registry) for _ in range(3))
    unviewed.last_viewed_at -= 1000
    message = "removed from the queue after 10 min without viewers; press Resume to queue it again"
    wait_until(
        unviewed, lambda: Run.read(unviewed.folder).message == message, "its removal from the queue"
    )
    assert (
        unviewed.status,
        unviewed.message,
        registry.scheduler.position(unviewed),
        registry.scheduler.position(next_in_queue),
    ) == ("stopped", message, None, 1)
    assert Run.read(unviewed.folder).status == "stopped"
    page = PollingClient(registry, unviewed)
    page.poll()  # the client that resumes the run also views it
    registry.control(unviewed, "resume")
    assert (unviewed.status, unviewed.message, registry.scheduler.position(unviewed)) == (
        "waiting",
        "",
        2,
    )
    registry.control(next_in_queue, "stop")
    registry.control(running, "stop")
    page.poll_until(lambda response: response["step"])


def test_a_queued_run_of_an_active_owner_stays_queued(create_registry):
    registry = create_registry(slots=1, idle_timeout_s=0)
    running, viewed, unviewed = (
        start_slow_run(registry),
        start_slow_run(registry),
        start_slow_run(registry, "bob"),
    )
    for run in (viewed, unviewed):
        run.last_viewed_at -= 1000
    assert registry.summaries("ada")[0]["queue_position"] is not None
    registry.settings.idle_timeout_s = 600
    wait_for_status(unviewed, "stopped")  # housekeeping has processed both
    assert (
        viewed.status,
        registry.scheduler.position(viewed),
        viewed.message,
        running.has_worker,
    ) == (
        "waiting",
        1,
        "",
        True,
    )


def test_without_idle_timeout_no_viewer_is_needed(create_registry):
    registry = create_registry(slots=1, idle_timeout_s=0, release_after_s=0, hang_timeout_s=0)
    run = start_slow_run(registry)
    wait_for_steps(run)
    run.last_viewed_at -= 10**6
    wait_for(lambda: not run.viewer_active, description="a round of housekeeping")
    wait_for_steps(run, run.step + 5)
    pause_after(registry, run)
    run.paused_at -= 10**6
    other = start(registry, "bob", max_steps=1)
    wait_for_status(other, "done")


# After a restart


def test_restarted_server_has_runs_paused_and_resumes_bit_exactly(create_registry):
    registry = create_registry(slots=3)
    undisturbed = wait_for_worker_end(
        wait_for_status(start(registry, max_steps=60, dropout=0.1), "done")
    )
    training, paused, stepping = (
        start(registry, changes=SLOW_MOTION, max_steps=60, dropout=0.1) for _ in range(3)
    )
    wait_for_steps(training, 5)
    pause_after(registry, paused, 3)
    pause_after(registry, stepping)
    step = stepping.step
    registry.control(stepping, "step")
    wait_for_steps(stepping, step + 1)
    registry.update_metadata(paused, name="My run", hidden=True)
    workers = [run.worker for run in (training, paused, stepping)]
    assert registry.shutdown(60) == (3, 0)
    assert all(has_exited(worker.process.pid) for worker in workers)
    before = {run.id: run for run in (training, paused, stepping)}

    registry = create_registry(slots=3)
    for run_id, old in before.items():
        run = registry.find(run_id, "ada")
        assert run is not old
        assert (run.status, run.has_worker, run.step, run.share_id, run.name) == (
            "paused",
            False,
            old.step,
            old.share_id,
            old.name,
        )
        page = PollingClient(registry, run)
        page.poll()
        assert page.losses == losses(undisturbed)[: old.step]
    assert registry.find(paused.id, "ada").hidden is True
    assert registry.find(undisturbed.id, "ada").status == "done"
    for run_id in before:
        registry.control(registry.find(run_id, "ada"), "resume")
    for run_id in before:
        assert losses(wait_for_status(registry.find(run_id, "ada"), "done")) == losses(undisturbed)


def test_workers_save_after_server_kill_and_next_server_resumes(create_registry, tmp_path):
    script = f"""
import sys, time
from pathlib import Path
from playground.runs.registry import Registry
from playground.training.config import RunConfig
from playground.training.setting_changes import SettingChange
if __name__ == "__main__":
    registry = Registry(Path({str(tmp_path)!r}), slots=1)
    config = RunConfig.from_flat({SMALL | {"max_steps": 60, "dropout": 0.1}!r})
    run = registry.start(config, "ada", changes=[SettingChange(0, "speed", 20)])
    waiting = registry.start(config, "ada")
    while run.step < 5:
        time.sleep(0.01)
    print(run.worker.process.pid, run.id, waiting.id, flush=True)
    time.sleep(600)
"""
    (tmp_path / "server.py").write_text(script)
    server = subprocess.Popen(
        [sys.executable, tmp_path / "server.py"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    with server:
        pid, run_id, waiting_id = server.stdout.readline().split()
        server.kill()
    wait_for(lambda: has_exited(int(pid)), description="the worker's end")
    registry = create_registry(slots=2)
    run, waiting = registry.find(run_id, "ada"), registry.find(waiting_id, "ada")
    assert (run.status, waiting.status, waiting.step) == ("paused", "paused", 0)
    assert latest_step(run) == run.load_points().last >= 5
    registry.control(run, "resume")
    registry.control(waiting, "resume")
    wait_for_status(run, "done")
    wait_for_status(waiting, "done")
    assert latest_step(run) == 60
    assert len(losses(run)) == 60
    assert losses(run) == losses(waiting)


# Branches


@pytest.mark.parametrize(
    ("settings", "steps"), [({}, (0, 16, 23)), (AVERAGED_MUON, (23,))], ids=str
)
def test_branch_repeats_its_parent_unless_a_setting_changes(registry, settings, steps):
    parent = start(registry, max_steps=60, dropout=0.1, eval_every=10, **settings)
    parent = wait_for_worker_end(wait_for_status(parent, "done"))
    for step in steps:  # the initial weights, a step with training state, a step without
        unchanged, changed = (
            registry.branch(parent, step, "ada"),
            registry.branch(parent, step, "ada"),
        )
        for branch in (unchanged, changed):
            wait_for_pause_at(branch, step)
            assert losses(branch) == losses(parent)[:step]
            assert branch.load_points().evaluations == [
                score for score in parent.load_points().evaluations if score[0] <= step
            ]
            assert branch.name.startswith(f"{parent.name} from {step}")
        registry.change_setting(changed, "learning_rate", 0.05)
        run_to_end(registry, unchanged)
        run_to_end(registry, changed)
        assert losses(unchanged) == losses(parent)
        assert unchanged.scores == parent.scores
        assert losses(changed)[: step + 1] == losses(parent)[: step + 1]
        assert losses(changed)[step + 2 :] != losses(parent)[step + 2 :]
        assert list(changed.changes) == [SettingChange(step, "learning_rate", 0.05)]
        for branch in (unchanged, changed):
            assert set(weight_steps(branch.folder)) >= {
                s for s in weight_steps(parent.folder) if s <= min(step, 16)
            }
    assert parent.changes == ()


def test_a_branch_keeps_the_changes_until_its_step_and_none_after(registry):
    changes = [SettingChange(10, "learning_rate", 0.02), SettingChange(30, "learning_rate", 0.05)]
    parent = wait_for_status(start(registry, max_steps=50, changes=changes), "done")
    branch = registry.branch(parent, 20, "ada")
    wait_for_pause_at(branch, 20)
    run_to_end(registry, branch)
    assert list(branch.changes) == changes[:1]
    assert losses(branch)[:31] == losses(parent)[:31]
    assert losses(branch)[32:] != losses(parent)[32:]


def test_training_run_can_be_branched_without_an_effect_on_it(registry):
    parent = start_slow_run(registry)
    wait_for_steps(parent, 12)
    branch = registry.branch(parent, 9, "bob")
    wait_for_pause_at(branch, 9)
    assert losses(branch) == losses(parent)[:9]
    assert parent.status == "training"
    assert registry.list_for_owner("bob") == [branch]
    assert (branch.id, branch.share_id) != (parent.id, parent.share_id)


def test_branch_from_last_step_of_early_stopped_run_trains_to_end(registry):
    parent = wait_for_status(
        start(
            registry,
            max_steps=80,
            stop_at_exact_match=0.001,
            eval_every=5,
            learning_rate=0.02,
            max_length=3,
        ),
        "done",
    )
    last = parent.step
    assert last < 70
    branch, earlier = registry.branch(parent, last, "ada"), registry.branch(parent, last - 1, "ada")
    assert (list(branch.changes), list(earlier.changes)) == (
        [SettingChange(last, "stop_at_exact_match", 0.0)],
        [],
    )
    wait_for_pause_at(branch, last)
    assert run_to_end(registry, branch).step == 80
    assert losses(branch)[:last] == losses(parent)
    wait_for_pause_at(earlier, last - 1)
    assert run_to_end(registry, earlier).step == last


def test_a_step_that_was_not_reached_has_no_branch(registry):
    parent = wait_for_status(start(registry, max_steps=30), "done")
    for step in (-1, 31):
        message = f"step {step} is not in this run; choose a step from 0 to 30"
        with pytest.raises(UserError, match=message):
            registry.branch(parent, step, "ada")


def test_branch_that_released_its_worker_continues_at_first_resume(registry):
    parent = wait_for_worker_end(wait_for_status(start(registry, max_steps=30), "done"))
    branch = registry.branch(parent, 9, "ada")
    wait_for_pause_at(branch, 9)
    branch.send_command("park")
    wait_for_worker_end(branch)
    registry.control(branch, "resume")
    wait_for_status(branch, "done")
    assert losses(branch) == losses(parent)


def test_a_branch_outlives_its_parent(registry):
    parent = wait_for_worker_end(wait_for_status(start(registry, max_steps=40), "done"))
    branch = registry.branch(parent, 20, "ada")
    wait_for_pause_at(branch, 20)
    expected = losses(parent)
    registry.delete(parent)
    parent.deleted_at_monotonic -= UNDO_TTL_S + 1
    wait_for(lambda: not parent.folder.exists(), description="the parent's folder to go")
    assert get_result(registry.snapshots.snapshot_at(branch, 10))["snapshot"]["step"] == 10
    run_to_end(registry, branch)
    assert losses(branch) == expected


# Changes of settings during training


def test_change_applies_at_the_next_step_and_rerun_repeats_it(registry):
    unchanged = wait_for_status(start(registry, max_steps=60), "done")
    run = start(registry, max_steps=60, changes=SLOW_MOTION)
    wait_for_steps(run, 5)
    registry.change_setting(run, "learning_rate", 0.05)
    wait_for(lambda: run.changes != SLOW_MOTION, description="the change")
    registry.change_setting(run, "speed", 0)
    registry.change_setting(run, "max_steps", 70)
    wait_for_worker_end(wait_for_status(run, "done"))
    (rate_change,) = (change for change in run.changes if change.setting == "learning_rate")
    assert (rate_change.value, run.step) == (0.05, 70)
    assert 5 <= rate_change.step < 60
    assert losses(run)[: rate_change.step + 1] == losses(unchanged)[: rate_change.step + 1]
    assert losses(run)[rate_change.step + 2 : 60] != losses(unchanged)[rate_change.step + 2 :]
    rerun = registry.rerun(run, "ada")
    assert rerun.changes == run.changes
    assert losses(wait_for_status(rerun, "done")) == losses(run)
    assert rerun.id != run.id
    assert Run.read(run.folder).changes == run.changes


def test_a_change_of_a_stopped_run_applies_on_resume(registry):
    run = pause_and_release(registry, start_slow_run(registry))
    step = run.step
    registry.change_setting(run, "learning_rate", 0.01)
    registry.change_setting(run, "learning_rate", 0.05)
    registry.change_setting(run, "max_steps", step + 5)
    registry.change_setting(run, "speed", 0)
    assert list(run.changes) == [
        *SLOW_MOTION,
        SettingChange(step, "learning_rate", 0.05),
        SettingChange(step, "max_steps", step + 5),
        SettingChange(step, "speed", 0),
    ]
    assert (run.learning_rate, run.steps, run.max_steps_per_second) == (0.05, step + 5, 0.0)
    run_to_end(registry, run)
    assert run.step == step + 5
    rates = list(run.load_points().columns["learning_rate"])
    assert rates[step] / rates[step - 1] > 5
    assert run.changes == Run.read(run.folder).changes


def test_run_extended_after_its_end_has_no_scores_until_next_end(registry):
    run = wait_for_worker_end(wait_for_status(start(registry, max_steps=20), "done"))
    page = PollingClient(registry, run)
    assert page.poll()["scores"] == run.scores
    assert run.scores["n"] == 2000
    registry.change_setting(run, "max_steps", ENDLESS)
    registry.change_setting(run, "speed", 40)
    registry.control(run, "resume")
    assert page.poll_until(lambda response: response["step"] > 20)["scores"] is None
    pause_after(registry, run, 21)
    assert run.scores is Run.read(run.folder).scores is None
    assert registry.summaries("ada")[0]["best"] == run.best is not None
    registry.change_setting(run, "max_steps", run.step + 5)
    registry.change_setting(run, "speed", 0)
    run_to_end(registry, run)
    assert run.scores["n"] == Run.read(run.folder).scores["n"] == 2000


@pytest.mark.parametrize("live", [True, False])
def test_an_invalid_change_is_rejected_in_every_status(registry, live):
    run = (
        pause_after(registry, start_slow_run(registry))
        if live
        else pause_and_release(registry, start_slow_run(registry))
    )
    before = run.changes
    for setting, value in (
        ("learning_rate", -1),
        ("learning_rate", None),
        ("speed", "fast"),
        ("steps", 1.5),
    ):
        with pytest.raises(ConfigError, match=setting):
            registry.change_setting(run, setting, value)
    with pytest.raises(ConfigError, match="cannot change during a run"):
        registry.change_setting(run, "seed", 3)
    with pytest.raises(
        UserError, match=f"the run has taken {run.step} steps already; give a larger number"
    ):
        registry.change_setting(run, "max_steps", run.step)
    assert run.changes == before
    assert run.has_worker == live


def test_slow_motion_shows_every_step_and_full_speed_ends_it(registry):
    run = start(registry, max_steps=200, changes=[SettingChange(0, "speed", 10)])
    page = PollingClient(registry, run)
    page.poll_until(lambda response: response["step"] >= 5)
    assert page.poll()["speed"] == 10
    pause_after(registry, run)
    assert set(range(1, run.step + 1)) <= set(run.load_weight_steps())
    registry.control(run, "resume")
    registry.change_setting(run, "speed", 0)
    wait_for_status(run, "done")


# Inspection and prediction


def test_every_stored_step_can_be_inspected_and_evaluated(registry):
    run = wait_for_worker_end(
        wait_for_status(start(registry, max_steps=120, learning_rate=0.02), "done")
    )
    recorded = run.load_weight_steps()
    assert recorded[0] == 0
    assert recorded[-1] == 120
    assert set(range(40)) <= set(recorded)
    responses = {}
    for step in (0, 1, 37, 120, 0):
        response = get_result(registry.snapshots.snapshot_at(run, step))
        assert response["snapshot"]["step"] == step
        assert responses.setdefault(step, response) == response
        assert get_result(registry.snapshots.predict(run, "1 2 3", step))["step"] == step
    assert len({json.dumps(responses[step]["snapshot"]["attention"]) for step in (0, 37, 120)}) == 3
    heads = responses[120]["snapshot"]["attention"]["cross"]
    n_source, n_target = (
        len(responses[120]["probe_info"]["source"]),
        len(responses[120]["probe_info"]["axes"]["cross"][0]),
    )
    assert [len(heads), len(heads[0]), len(heads[0][0])] == [1, 2, n_source * n_target]
    for row in range(n_target):
        assert abs(sum(heads[0][0][row * n_source : (row + 1) * n_source]) - 1000) <= n_source
    assert get_result(registry.snapshots.predict(run, "1 2 3"))["step"] == 120
    thinned_step = (
        next(step for step in range(1, 120) if step not in recorded)
        if len(recorded) < 121
        else None
    )
    for requested, expected in [(10**9, 120), (-5, 0)] + (
        [(thinned_step, None)] if thinned_step else []
    ):
        actual = get_result(registry.snapshots.snapshot_at(run, requested))["snapshot"]["step"]
        assert actual in recorded
        assert expected in (None, actual)


def test_broken_weights_are_reported_and_do_not_affect_later_views(registry):
    run = wait_for_worker_end(wait_for_status(start(registry, max_steps=20), "done"))
    snapshot = get_result(registry.snapshots.snapshot_at(run, 10))
    weights_path(run.folder, 11).write_bytes(b"12345678")
    assert "11.safetensors" in get_result(registry.snapshots.snapshot_at(run, 11))["error"]
    assert get_result(registry.snapshots.snapshot_at(run, 10)) == snapshot
    weights_path(run.folder, 11).unlink()
    assert get_result(registry.snapshots.snapshot_at(run, 11))["snapshot"]["step"] == 10


def test_a_run_without_weights_has_a_message(create_registry):
    registry = create_registry(slots=1)
    first, waiting = start_slow_run(registry), start_slow_run(registry)
    assert "has no weights yet" in get_result(registry.snapshots.predict(waiting, "1 2"))["error"]
    assert (
        "this run has no stored weights yet"
        in get_result(registry.snapshots.snapshot_at(waiting, 3))["error"]
    )
    assert PollingClient(registry, waiting).poll()["snapshot"] is None
    assert first.has_worker


def test_request_after_inspector_is_killed_gets_new_process(registry):
    run = start_slow_run(registry)
    page = PollingClient(registry, run)
    page.poll_until(lambda response: response["snapshot"])
    child = registry.snapshots.inspector.process._process
    child.process.kill()
    child.exited.wait(60)
    assert get_result(registry.snapshots.predict(run, "1 2"))["target"] == ["2", "1"]
    attends = page.attends
    page.poll_until(lambda response: response["snapshot_version"] > attends + 1)
    assert run.status == "training"


def test_inspection_and_prediction_do_not_change_training(registry):
    watched, unwatched = (
        start(registry, max_steps=80, dropout=0.1),
        start(registry, max_steps=80, dropout=0.1, changes=[SettingChange(0, "speed", 0)]),
    )
    page = PollingClient(registry, watched)
    while watched.status != "done":
        page.poll()
        registry.snapshots.predict(watched, "1 2 3")
        registry.snapshots.snapshot_at(watched, 0)
        time.sleep(0.005)
    assert losses(watched) == losses(wait_for_status(unwatched, "done"))


# Responses to a page


def test_page_has_every_point_once_after_a_kill_and_resume(registry):
    undisturbed = start(registry, max_steps=80, dropout=0.1)
    run = start(registry, max_steps=80, dropout=0.1, changes=SLOW_MOTION)
    page = PollingClient(registry, run)
    page.poll_until(lambda response: response["step"] >= 5)
    registry.control(run, "pause")
    page.poll_until(
        lambda response: response["status"] == "paused" and response["checkpoint_version"]
    )
    stored = run.step
    registry.control(run, "resume")
    page.poll_until(lambda response: response["step"] >= stored + 10)
    os.kill(run.worker.process.pid, signal.SIGKILL)
    page.poll_until(lambda response: response["status"] == "failed" and not response["has_worker"])
    epoch, losses_before = page.epoch, list(page.losses)
    registry.control(run, "resume")
    page.poll_until(
        lambda response: response["status"] == "done" and response["points"]["count"] == 80
    )
    assert page.epoch != epoch
    assert len(page.losses) == 80
    assert page.losses[: len(losses_before)] == losses_before
    assert page.losses == losses(wait_for_status(undisturbed, "done"))


def test_page_starts_over_after_kill_before_first_checkpoint(registry):
    run = start(registry, max_steps=60, changes=SLOW_MOTION)
    page = PollingClient(registry, run)
    page.poll_until(lambda response: response["points"]["count"] >= 5)
    os.kill(run.worker.process.pid, signal.SIGKILL)
    page.poll_until(lambda response: response["status"] == "failed" and not response["has_worker"])
    assert "it has no checkpoint yet" in run.message
    losses_before = list(page.losses)
    registry.control(run, "resume")
    page.poll_until(
        lambda response: response["status"] == "done" and response["points"]["count"] == 60
    )
    assert page.steps == list(range(1, 61))
    assert page.losses[: len(losses_before)] == losses_before
    assert page.n_restarts > 1


# Ownership


def test_watch_link_finds_its_run_and_no_other_run_of_the_owner(registry):
    run, other = start(registry, max_steps=5), start(registry, max_steps=5)
    assert registry.find_shared(run.share_id) is run
    assert registry.find_shared(other.share_id) is other
    for identifier in (
        "",
        None,
        7,
        run.id,
        run.share_id[:-1],
        run.share_id + "x",
        "\u00e9",
        "\ud800",
        run.folder.name,
        {"id": 1},
    ):
        assert registry.find_shared(identifier) is None
    assert registry.find(run.share_id, "ada") is None
    response = json.dumps(PollingClient(registry, run).poll())
    for secret in ("ada", run.id, run.owner, run.share_id, str(run.folder)):
        assert secret not in response
    registry.delete(run)
    assert registry.find_shared(run.share_id) is None
    registry.restore(run)
    assert registry.find_shared(run.share_id) is run


def test_names_are_unique_and_limited_in_length(registry):
    first, second, third = (start(registry, max_steps=1) for _ in range(3))
    assert (second.name, third.name) == (f"{first.name} (2)", f"{first.name} (3)")
    assert start(registry, "bob", max_steps=1).name == first.name
    config = RunConfig.from_flat(SMALL | {"max_steps": 2})
    long = [registry.start(config, "eve", name="x" * 300) for _ in range(3)]
    wait_for_status(long[0], "done")
    long.append(registry.branch(long[0], 1, "eve"))
    assert len({run.name for run in long}) == 4
    assert max(len(run.name) for run in long) <= MAX_NAME_LENGTH


def test_name_tags_and_visibility_of_a_run_survive_a_restart(create_registry):
    registry = create_registry(slots=1)
    run = wait_for_worker_end(wait_for_status(start(registry, max_steps=1), "done"))
    registry.update_metadata(run, name="  My \n best\trun ")
    registry.update_metadata(run, hidden=True)
    assert (run.name, run.hidden) == ("My best run", True)
    for name in ("", " \n ", "x" * (MAX_NAME_LENGTH + 1)):
        with pytest.raises(UserError, match="use 1 to 80 printable characters"):
            registry.update_metadata(run, name=name)
    assert run.name == "My best run"
    registry.update_metadata(run, tags=[" wide\n model ", "baseline", "", "baseline"])
    for tags in (["x" * (MAX_TAG_LENGTH + 1)], ["\0"], list("abcdefghi")):
        with pytest.raises(UserError, match="use at most"):
            registry.update_metadata(run, tags=tags)
    later = create_registry(slots=1).find(run.id, "ada")
    assert (later.name, later.hidden) == ("My best run", True)
    assert later.record.tags == ("wide model", "baseline")
    registry.update_metadata(run, hidden=False)
    assert registry.summaries("ada")[0]["hidden"] is False


def test_deleted_run_stops_and_can_be_restored_until_undo_expires(create_registry):
    registry = create_registry(slots=1)
    run, waiting = start_slow_run(registry), start_slow_run(registry)
    wait_for_steps(run)
    registry.delete(waiting)
    registry.delete(run)
    wait_for_worker_end(run)
    assert [row["deleted"] for row in registry.summaries("ada")] == [True, True]
    for deleted in (run, waiting):
        registry.control(deleted, "resume")
        assert deleted.status in ("stopped", "paused")
    registry.restore(run)
    assert registry.summaries("ada")[1]["deleted"] is False
    step = run.step
    registry.control(run, "resume")
    wait_for_steps(run, step + 2)
    registry.delete(run)
    wait_for_worker_end(run)
    assert run.folder.exists()
    assert create_registry(slots=1).find(run.id, "ada").deleted_at is not None
    run.deleted_at_monotonic -= UNDO_TTL_S + 1
    wait_for(lambda: not run.folder.exists(), description="the folder to go")
    assert registry.find(run.id, "ada") is None
    assert registry.find(waiting.id, "ada") is waiting


# Imported checkpoints


@pytest.fixture
def trained(small_run):
    """Train twelve of thirty steps; return the trainer and its metrics."""
    trainer = Trainer(
        small_run.replace(max_steps=30, d_model=16, d_ff=16, batch_size=8, eval_size=32),
        [SettingChange(3, "learning_rate", 0.02)],
    )
    return trainer, [trainer.train_step() for _ in range(12)]


def test_an_imported_checkpoint_becomes_a_run_that_continues(registry, trained, tmp_path):
    trainer, metrics = trained
    save_checkpoint(tmp_path / "upload", trainer, metrics)
    run = registry.import_checkpoint(tmp_path / "upload", "ada", "Uploaded")
    assert not (tmp_path / "upload").exists()
    assert (run.name, run.status, run.step, run.steps) == ("Uploaded", "stopped", 12, 30)
    page = PollingClient(registry, run)
    response = page.poll_until(lambda response: response["snapshot"])
    assert (response["snapshot"]["step"], page.steps, response["learning_rate"]) == (
        12,
        list(range(1, 13)),
        0.02,
    )
    assert get_result(registry.snapshots.predict(run, "1 2"))["step"] == 12
    run_to_end(registry, run)
    expected = metrics + list(trainer)
    assert losses(run) == pytest.approx([step_metrics.loss for step_metrics in expected], rel=1e-5)
    assert registry.find(run.id, "ada") is run
    assert registry.find(run.id, "bob") is None


def test_checkpoint_without_metrics_gives_points_after_its_step(registry, trained, tmp_path):
    trainer, _ = trained
    save_checkpoint(tmp_path / "upload", trainer, None)
    run = registry.import_checkpoint(tmp_path / "upload", "ada", "")
    assert run.name
    assert registry.poll(run, 0, -1, 0)["points"]["steps"] == []
    run_to_end(registry, run)
    assert registry.poll(run, 0, -1, 0)["points"]["steps"] == list(range(13, 31))
    branch = registry.branch(run, 20, "ada")
    wait_for_pause_at(branch, 20)


def test_weights_alone_can_be_inspected_but_not_resumed(registry, trained, tmp_path):
    trainer, metrics = trained
    save_checkpoint(tmp_path / "upload", trainer, metrics, resumable=False)
    run = registry.import_checkpoint(tmp_path / "upload", "ada", "Weights")
    assert get_result(registry.snapshots.predict(run, "1 2"))["target"] == ["2", "1"]
    assert not run.has_worker
    before = run.changes
    actions = [
        lambda: registry.change_setting(run, "max_steps", 100),
        lambda: registry.control(run, "resume"),
        lambda: registry.control(run, "step"),
    ]
    for act in actions:
        with pytest.raises(UserError, match="holds weights only"):
            act()
    assert (run.has_worker, run.status, run.changes) == (False, "done", before)


def test_shared_checkpoint_can_be_inspected_and_broken_one_fails(registry, trained, tmp_path):
    trainer, metrics = trained
    save_checkpoint(tmp_path / "shared", trainer, metrics)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "config.json").write_text("{}")
    assert registry.storage.list_checkpoints() == {"shared": tmp_path / "shared"}
    assert (
        get_result(registry.snapshots.inspector.request("snapshot", tmp_path / "shared"))[
            "snapshot"
        ]["step"]
        == 12
    )
    assert get_result(registry.snapshots.inspector.request("check", tmp_path / "shared")) == {
        "step": 12,
        "resumable": True,
    }
    (tmp_path / "shared" / "model.safetensors").write_bytes(b"12345678")
    os.utime(tmp_path / "shared" / "config.json")
    for kind in ("snapshot", "check"):
        assert (
            "model.safetensors"
            in get_result(registry.snapshots.inspector.request(kind, tmp_path / "shared"))["error"]
        )
    assert (
        "no config.json"
        in get_result(registry.snapshots.inspector.request("snapshot", tmp_path / "nothing"))[
            "error"
        ]
    )


# Failures


def test_a_run_in_very_slow_motion_does_not_hang(create_registry):
    registry = create_registry(slots=1)
    run = start(registry, max_steps=ENDLESS, changes=[SettingChange(1, "speed", 0.01)])
    wait_for_steps(run, 1)
    registry.settings.hang_timeout_s, started_at = 5, time.monotonic()
    wait_for(
        lambda: (
            time.monotonic() > started_at + 2 * registry.settings.hang_timeout_s
            or not run.has_worker
        ),
        description="twice the patience to pass",
    )
    assert (run.status, run.message) == ("training", "")
    registry.change_setting(run, "speed", 0)
    wait_for_steps(run, 3)


def test_broken_metrics_on_disk_are_reported(registry):
    run = pause_and_release(registry, start_slow_run(registry))
    path = run.folder / "metrics.jsonl"
    path.write_bytes(b"garbage\n" + path.read_bytes())
    registry.control(run, "resume")
    wait_for_worker_end(wait_for_status(run, "failed"))
    assert "metrics.jsonl, line 1" in run.message


def test_the_manifests_of_a_run_hold_its_changes(registry):
    run = pause_and_release(registry, start_slow_run(registry))
    path, manifest = run.checkpoints()[0]
    assert manifest.changes == tuple(SLOW_MOTION)
    assert read_manifest(path) == manifest
    assert not (path / "metrics.jsonl").exists()
    assert Path(run.folder / "metrics.jsonl").is_file()


# Housekeeping


def test_housekeeping_failure_is_logged_and_later_rounds_still_run(registry, caplog):
    broken = wait_for_worker_end(wait_for_status(start(registry, max_steps=1), "done"))
    broken.load_points()
    broken.last_viewed_at = None  # makes every round of housekeeping fail
    rounds, schedule = [], registry.scheduler.schedule

    def fail():
        schedule()
        if threading.current_thread().name != "housekeeping":
            return  # the thread that reads the worker's messages also schedules when it exits
        rounds.append(1)
        if len(rounds) <= 2:
            raise RuntimeError("a defect of the supervisor")

    registry.scheduler.schedule = fail
    wait_for(lambda: len(rounds) >= 3, 60, "a third round after two that failed")
    assert "a defect of the supervisor" in caplog.text
    assert "supervise" in caplog.text
    other = start(registry, max_steps=1)
    wait_for_status(other, "done")


# Unknown owners and clock changes


def test_unknown_owners_and_turns_are_forgotten(registry, monkeypatch):
    monkeypatch.setattr(registry_module, "MAX_TRACKED_OWNERS", 5)
    monkeypatch.setattr(scheduler, "MAX_TRACKED_TURNS", 2)
    for number in range(20):
        registry.summaries(f"invented {number}")
    registry.summaries("ada")
    assert len(registry.owner_last_seen) == 5
    assert owner_id("ada") in registry.owner_last_seen
    for owner in ("ada", "bob", "eve"):
        wait_for_worker_end(wait_for_status(start(registry, owner, max_steps=1), "done"))
    assert list(registry.scheduler._last_served) == [owner_id("bob"), owner_id("eve")]


def test_deleted_run_stays_restorable_if_wall_clock_jumps(registry, monkeypatch):
    run = wait_for_worker_end(wait_for_status(start(registry, max_steps=1), "done"))
    registry.delete(run)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 10 * UNDO_TTL_S)
    registry.supervisor.supervise(run)
    assert registry.find(run.id, "ada") is run
    registry.restore(run)
    assert run.deleted_at is None


def test_no_more_runs_are_adopted_at_once_than_an_owner_may_have(
    create_registry, tmp_path, monkeypatch
):
    monkeypatch.setattr(registry_module, "MAX_RUNS_PER_OWNER", 2)
    registry, folders = (
        create_registry(slots=1),
        [tmp_path / f"sent {number}" for number in range(4)],
    )
    trainer = Trainer(RunConfig.from_flat(SMALL | {"max_steps": 1, "num_threads": 1}))
    for folder in folders:
        save_checkpoint(folder, trainer, None)
    barrier = threading.Barrier(len(folders))
    read = registry_module.read_manifest

    def read_together(folder):
        barrier.wait(60)
        return read(folder)

    moving = threading.Event()
    move = storage_folder.shutil.move

    def move_slowly(*arguments):
        moving.wait(0.5)  # long enough for the other requests to count the runs
        return move(*arguments)

    monkeypatch.setattr(registry_module, "read_manifest", read_together)
    monkeypatch.setattr(storage_folder.shutil, "move", move_slowly)

    def adopt(folder):
        try:
            return registry.import_checkpoint(folder, "ada", "sent")
        except UserError:
            return None

    with ThreadPoolExecutor(len(folders)) as threads:
        adopted = [run for run in threads.map(adopt, folders) if run]
    assert len(adopted) == len(registry.list_for_owner("ada")) == 2


def test_a_failed_inspection_leaves_the_run_unchanged(registry, monkeypatch):
    run = wait_for_worker_end(wait_for_status(start(registry, max_steps=2), "done"))
    run.load_weight_steps()
    wait_for(lambda: registry.is_idle(run), description="rest")

    def fail(*_, **__):
        raise RuntimeError("no process")

    run.update_live(snapshot=None)  # request a new snapshot
    with monkeypatch.context() as patch:
        patch.setattr(registry.snapshots.inspector, "request", fail)
        with pytest.raises(RuntimeError):
            registry.snapshots.refresh(run)
    assert registry.is_idle(run)
    registry.snapshots.refresh(run)
    wait_for(lambda: run.live.snapshot, description="a snapshot")


def test_a_page_receives_changes_of_a_run_once(registry):
    run = start(registry, max_steps=1, changes=[SettingChange(0, "learning_rate", 1e-3)])
    first = registry.poll(run, 0, -1, 0)
    assert [setting for _, setting, _ in first["changes"]] == ["learning_rate"]
    version = first["changes_version"]
    assert registry.poll(run, 0, -1, 0, changes=version)["changes"] is None
    wait_for_worker_end(wait_for_status(run, "done"))
    run.update(changes=(*run.changes, SettingChange(1, "learning_rate", 2e-3)))
    response = registry.poll(run, 0, -1, 0, changes=version)
    assert len(response["changes"]) == len(run.changes)
    assert response["changes_version"] != version


def test_a_manifest_that_has_not_changed_is_read_once(registry, monkeypatch):
    run = wait_for_worker_end(wait_for_status(start(registry, max_steps=2), "done"))
    reads = []
    monkeypatch.setattr(
        manifest_module,
        "read_manifest",
        lambda folder: reads.append(folder) or read_manifest(folder),
    )
    for _ in range(3):
        assert latest_step(run) == 2
    folder = run.checkpoints()[0][0]
    assert reads.count(folder) <= 1
    config = folder / "config.json"
    config.write_bytes(config.read_bytes().replace(b'"step": 2', b'"step": 1'))
    os.utime(config, ns=(1, 1))
    assert latest_step(run) == 1


def test_a_worker_without_cpu_time_is_not_treated_as_hung(registry, monkeypatch):
    registry.settings.hang_timeout_s = 0.0  # no round of housekeeping runs
    run = start_slow_run(registry)
    wait_for_steps(run)
    killed, active = [], [5.0]
    monkeypatch.setattr(run.worker, "kill", lambda: killed.append(run))
    monkeypatch.setattr(supervisor, "cpu_seconds", lambda pid: active[0])

    def silent_for_long():
        with run.lock:
            run.last_message_at = time.monotonic() - 100
            registry.settings.hang_timeout_s = 60.0
            registry.supervisor.kill_if_hung(run, time.monotonic())
            registry.settings.hang_timeout_s = 0.0
        return bool(killed)

    run.cpu_seconds = 0.0
    assert not silent_for_long()
    active[0] += 30  # it has waited for a CPU since
    assert not silent_for_long()
    assert silent_for_long()  # now it neither runs nor waits


def test_a_second_server_on_the_same_folder_is_warned_about(create_registry, tmp_path):
    first, second = create_registry(), create_registry()
    assert (first.storage.error(), first.storage.lock()) == ("", "")
    assert "another server uses" in second.storage.lock()
    assert str(tmp_path) in second.storage.lock()
    first.storage.unlock()
    assert second.storage.lock() == ""


@pytest.mark.parametrize("result", ["snapshot", "error"])
def test_late_snapshot_does_not_replace_the_last_weights_of_a_run(registry, monkeypatch, result):
    """Check a short run, which may end before the snapshot of its first weights."""
    requests = []
    monkeypatch.setattr(
        registry.snapshots.inspector,
        "request",
        lambda kind, model_ref, **options: (
            requests.append((model_ref["step"], Future())) or requests[-1][1]
        ),
    )
    run = Run(RunRecord.new(RunConfig(), "ada", "short"), Path("run"))
    run.worker = SimpleNamespace(exited=threading.Event())
    run.update_live(latest_weights_step=0)
    registry.snapshots.refresh(run)
    run.update_live(latest_weights_step=50)
    run.worker.exited.set()  # the run ends
    answers = {
        "snapshot": {"probe_info": {}, "snapshot": {"step": 0}},
        "error": {"error": "damaged"},
    }
    requests[0][1].set_result(answers[result])
    assert run.live.latest_weights_step == 50
    assert run.message == ""
    if result == "snapshot":
        assert [step for step, _ in requests] == [0, 50]
