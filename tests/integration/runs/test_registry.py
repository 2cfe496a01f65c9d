import json
import os
import random
import shutil
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
from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.errors import UserError
from playground.jobs.process import WorkerProcess, warm_up
from playground.models.config_fields import ConfigError
from playground.runs import registry as registry_module
from playground.runs import scheduler, storage_folder, supervisor
from playground.runs.inspector_client import MAX_PER_CLIENT, InspectorClient
from playground.runs.record import MAX_NAME_LENGTH, RunRecord, owner_id
from playground.runs.registry import Registry
from playground.runs.scheduler import MAX_QUEUED_PER_OWNER
from playground.runs.state import Run
from playground.runs.supervisor import UNDO_TTL_S
from playground.runs.weight_history import read_lines, state_steps, weight_steps, weights_path
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
SLOWLY = [SettingChange(0, "speed", 40)]  # leaves the machine to the others
ENDLESS = 100_000


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Start workers from a process that has imported torch, as the app does."""
    warm_up().join()


@pytest.fixture
def registry(tmp_path):
    registry = Registry(tmp_path, slots=3)
    yield registry
    registry.shutdown()


@pytest.fixture
def serve(tmp_path):
    """Create registries on the test's folder, one after the other."""
    made = []

    def make(**settings) -> Registry:
        made.append(Registry(tmp_path, **settings))
        return made[-1]

    yield make
    for each in made:
        each.shutdown()


def start(
    registry: Registry, owner: str = "ada", changes: Iterable[SettingChange] = (), **fields
) -> Run:
    return registry.start(RunConfig.from_flat(SMALL | fields), owner, changes=changes)


def slow(registry: Registry, owner: str = "ada", **fields) -> Run:
    """Settings of a run that does not end during a test."""
    return start(registry, owner, SLOWLY, **({"max_steps": ENDLESS} | fields))


def wait_until(run: Run, condition, what: str) -> Run:
    """Wait for a condition of a run; an error has the run's state."""
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


def wait_for_the_end(run: Run) -> Run:
    """Wait until the run has no process."""
    return wait_until(
        run, lambda: not run.has_worker and run.status != "waiting", "the end of a worker"
    )


def finished(registry: Registry, run: Run) -> Run:
    """Continue a run in any state to its end."""
    wait_for(lambda: run.status not in ("starting", "waiting"), description="a worker")
    if run.status != "done":
        registry.control(run, "resume")
    return wait_for_the_end(wait_for_status(run, "done"))


def held(registry: Registry, run: Run, step: int = 1) -> Run:
    """Pause a run after a step, and wait until it is saved."""
    wait_for_steps(run, step)
    registry.control(run, "pause")
    wait_for_status(run, "paused")
    return wait_until(
        run, lambda: run.checkpoints() and newest(run) == run.step, "the checkpoint of a paused run"
    )


def parked(registry: Registry, run: Run) -> Run:
    """Return a paused run without a worker."""
    held(registry, run)
    run.send_command("park")
    return wait_for_the_end(run)


def losses(run: Run) -> list[float]:
    points = run.load_points()
    assert points.first == 1
    return list(points.columns["loss"])


def newest(run: Run) -> int:
    """Return the step of the run's newest checkpoint."""
    return run.checkpoints()[0][1].step


def answer(future: Future) -> dict:
    return future.result(60)


def removed(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


class Page:
    """A page that polls a run, and the data that it keeps."""

    def __init__(self, registry: Registry, run: Run) -> None:
        self.registry, self.run = registry, run
        # begun: how often it had to begin anew
        self.epoch, self.known, self.attends, self.begun = (-1, 0, 0, 0)
        self.steps: list[int] = []
        self.losses: list[float] = []

    def poll(self) -> dict:
        response = self.registry.poll(self.run, self.known, self.epoch, self.attends)
        json.dumps(response, allow_nan=False)
        points = response["points"]
        if response["series_id"] != self.epoch or points["whole"]:
            assert points["whole"]  # a page that starts again receives everything
            self.steps, self.losses, self.begun = (
                [],
                [],
                self.begun + (response["series_id"] != self.epoch),
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


# A run's life


@pytest.mark.smoke
def test_run_trains_in_its_own_process_and_saves_scored_checkpoint(registry):
    run = start(registry, max_steps=60)
    worker = run.worker
    assert worker.process.pid != os.getpid()
    wait_for_the_end(wait_for_status(run, "done"))
    assert worker.exited.wait(60)
    assert removed(worker.process.pid)
    assert len(losses(run)) == run.step == 60
    assert run.scores["n"] == 2000
    (path, manifest), *_ = run.checkpoints()
    assert (manifest.step, manifest.scores["exact_match"]) == (60, run.scores["exact_match"])
    assert path.parent == run.folder / "checkpoints"
    assert json.loads((run.folder / "run.json").read_text())["status"] == "done"
    assert [line["step"] for line in read_lines(run.folder)] == list(range(1, 61))
    Page(registry, run).poll_until(
        lambda response: response["snapshot"] and response["snapshot"]["step"] == 60
    )


def test_pause_single_step_and_resume_control_the_run(registry):
    run = slow(registry)
    held(registry, run)
    held_at = run.step
    for further in (1, 2):
        registry.control(run, "step")
        wait_for(lambda: run.step == held_at + further, description="a single step")  # noqa: B023
        assert run.status == "paused"
    assert answer(registry.snapshots.predict(run, "3 1 4"))["target"] == ["4", "1", "3"]
    assert run.step == held_at + 2
    registry.control(run, "resume")
    wait_for_steps(run, held_at + 5)
    assert len(losses(run)) >= held_at + 5


@pytest.mark.smoke
@pytest.mark.parametrize("settings", [{}, AVERAGED_MUON], ids=str)
def test_stopped_run_saves_predicts_and_resumes_bit_exactly(registry, settings):
    run, undisturbed = (
        start(registry, changes=SLOWLY, max_steps=60, dropout=0.1, **settings),
        start(registry, max_steps=60, dropout=0.1, **settings),
    )
    wait_for_steps(run)
    registry.control(run, "stop")
    wait_for_the_end(wait_for_status(run, "stopped"))
    stopped_at = run.step
    assert newest(run) == stopped_at < 60
    assert answer(registry.snapshots.predict(run, "1 2"))["target"] == ["2", "1"]
    finished(registry, run)
    assert losses(run) == losses(wait_for_status(undisturbed, "done"))
    assert len(losses(run)) == 60


def test_commands_to_a_run_that_has_ended_do_nothing(registry):
    run = wait_for_the_end(wait_for_status(start(registry, max_steps=5), "done"))
    for action in ("pause", "resume", "step", "stop", "save"):
        registry.control(run, action)
    assert run.status == "done"
    assert not run.has_worker
    with pytest.raises(ValueError, match="action is 'explode'"):
        registry.control(run, "explode")


@pytest.mark.parametrize("action", ["stop", "pause", "resume", "step"])
def test_a_command_during_the_end_of_a_run_does_not_fail_it(registry, action):
    runs = [start(registry, max_steps=1) for _ in range(3)]
    for run in runs:
        wait_for_status(run, "done")
        registry.control(run, action)  # its process may not have ended yet
    for run in runs:
        wait_for_the_end(run)
        assert (run.status, run.message) == ("done", "")


def test_resume_right_after_stop_is_not_lost(registry):
    run = slow(registry)
    for _ in range(3):
        before = wait_for_steps(run).step
        registry.control(run, "stop")
        wait_for_status(run, "stopped")
        registry.control(run, "resume")  # its process may not have ended yet
        wait_for_steps(run, before + 2)


def test_a_second_stop_right_after_the_first_is_still_a_stop(registry):
    runs = [slow(registry) for _ in range(3)]
    for run in runs:
        wait_for_steps(run)
        registry.control(run, "stop")
        wait_for_status(run, "stopped")
        registry.control(run, "stop")
    for run in runs:
        assert wait_for_the_end(run).status == "stopped"


def test_a_second_stop_ends_a_worker_that_does_not_listen_at_once(registry):
    run, other = slow(registry), slow(registry)
    held(registry, run)
    wait_for(lambda: run.checkpoints(), description="a checkpoint")
    registry.control(run, "resume")
    wait_for_status(run, "training")
    pid = run.worker.process.pid
    os.kill(pid, signal.SIGSTOP)
    registry.control(run, "stop")
    assert run.status == "stopping"
    registry.control(run, "stop")
    wait_for_the_end(run)
    assert run.status == "stopped"
    assert "ended immediately by a second Stop; its checkpoint of step " in run.message
    assert removed(pid)
    registry.control(run, "resume")
    wait_for_steps(run, newest(run) + 1)
    wait_for_steps(other, other.step + 2)


def test_diverged_run_fails_with_remedy_and_keeps_last_weights(registry):
    run = start(
        registry,
        max_steps=500,
        learning_rate=100.0,
        warmup_steps=0,
        lr_schedule="constant",
        max_grad_norm=0,
        n_layers=4,
    )
    wait_for_the_end(wait_for_status(run, "failed"))
    assert "lower learning_rate" in run.message
    assert newest(run) == run.step == len(losses(run))


@pytest.mark.smoke
def test_killed_worker_is_reported_resumable_and_affects_no_other(registry):
    victim, other = slow(registry), slow(registry)
    wait_for_steps(other)
    held(registry, victim)
    wait_for(
        lambda: victim.checkpoints() and newest(victim) == victim.step, description="its checkpoint"
    )
    stored = victim.step
    registry.control(victim, "resume")
    wait_for_steps(victim, stored + 3)
    os.kill(victim.worker.process.pid, signal.SIGKILL)
    wait_for_the_end(wait_for_status(victim, "failed"))
    assert "was killed, probably because the machine ran out of memory" in victim.message
    assert (
        f"its checkpoint of step {stored} is saved, Resume continues from there" in victim.message
    )
    wait_for_steps(other, other.step + 2)
    registry.control(victim, "resume")
    wait_for_status(victim, "training")
    wait_for_steps(victim, stored + 5)
    assert victim.message == ""
    assert len(losses(victim)) >= stored + 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("paused", [False, True])
def test_a_worker_that_is_signalled_saves_first_and_can_be_resumed(registry, number, paused):
    run = slow(registry)
    wait_for_steps(run)
    if paused:
        held(registry, run)
    os.kill(run.worker.process.pid, number)
    wait_for_the_end(run)
    assert (run.status, newest(run)) == ("paused", run.step)
    before = run.step
    registry.control(run, "resume")
    wait_for_steps(run, before + 2)


def test_two_runs_with_one_seed_have_the_same_losses(registry):
    first, second, third = (
        start(registry, max_steps=30, seed=seed, dropout=0.2) for seed in (7, 7, 8)
    )
    first, second, third = (losses(wait_for_status(run, "done")) for run in (first, second, third))
    assert first == second
    assert first != third


def test_saved_checkpoints_stay_and_of_the_others_only_the_latest(registry):
    run = slow(registry)
    wait_for_steps(run)
    registry.control(run, "save")
    wait_for(lambda: run.live.checkpoint_version == 1, description="a saved checkpoint")
    (stored,) = (path.name for path, _ in run.checkpoints())
    assert stored.endswith("-kept")
    for count in (2, 3, 4, 5):
        held(registry, run, run.step + 1)
        wait_for(lambda n=count: run.live.checkpoint_version == n, description="a checkpoint")
        registry.control(run, "resume")
        wait_for_status(run, "training")
    names = [path.name for path, _ in run.checkpoints()]
    assert len(names) == 3
    assert names[-1] == stored
    assert names == sorted(names, reverse=True)


# Waiting for a place


@pytest.mark.smoke
def test_runs_above_the_slots_are_queued_and_move_up(serve):
    registry = serve(slots=1)
    first, second, third, fourth = (slow(registry) for _ in range(4))
    wait_for_steps(first)
    runs = (first, second, third, fourth)
    assert [registry.scheduler.position(run) for run in runs] == [None, 1, 2, 3]
    assert [Page(registry, run).poll()["queue_position"] for run in runs] == [None, 1, 2, 3]
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


def test_paused_queued_run_rejoins_the_queue_at_its_end(serve):
    registry = serve(slots=1)
    first, second, third = (slow(registry) for _ in range(3))
    registry.control(second, "pause")
    assert (second.status, registry.scheduler.position(third)) == ("paused", 1)
    registry.control(second, "resume")
    assert [registry.scheduler.position(run) for run in (second, third)] == [2, 1]
    for action in ("step", "save", "resume"):
        registry.control(second, action)
    assert [registry.scheduler.position(run) for run in (second, third)] == [2, 1]
    assert first.has_worker


def test_owners_with_fewer_slots_start_first(serve):
    registry = serve(slots=2)
    going = [slow(registry, "ada"), slow(registry, "ada")]
    ada, ada_2, bob, bob_2, eve = (
        slow(registry, owner) for owner in ("ada", "ada", "bob", "bob", "eve")
    )
    assert [registry.scheduler.position(run) for run in (bob, eve, bob_2, ada, ada_2)] == [
        1,
        2,
        3,
        4,
        5,
    ]
    registry.control(going[0], "stop")
    wait_for_steps(bob)
    assert [registry.scheduler.position(run) for run in (eve, ada, bob_2, ada_2)] == [1, 2, 3, 4]
    registry.control(bob, "stop")
    wait_for_steps(eve)  # bob has no place now either, and came before her; but he had his turn
    assert [registry.scheduler.position(run) for run in (bob_2, ada, ada_2)] == [1, 2, 3]


def test_many_runs_of_one_owner_do_not_delay_a_run_of_another(serve):
    registry = serve(slots=1)
    many = [start(registry, "ada", max_steps=1) for _ in range(6)]
    single = start(registry, "bob", max_steps=1)
    assert registry.scheduler.position(single) == 1
    waiting = [run for run in many if run.status == "waiting"]
    wait_for_status(single, "done")
    assert sum(run.status == "waiting" for run in waiting) >= len(waiting) - 1
    for run in many:
        wait_for_status(run, "done")


def test_one_owner_can_be_limited_to_fewer_slots(serve):
    registry = serve(slots=3, slots_per_owner=1)
    first, second, other = slow(registry, "ada"), slow(registry, "ada"), slow(registry, "bob")
    assert (second.status, registry.scheduler.position(second)) == ("waiting", 1)
    wait_for_steps(other)
    assert (first.has_worker, second.has_worker, other.has_worker) == (True, False, True)
    registry.control(first, "stop")
    wait_for_steps(second)


def test_paused_run_yields_its_slot_and_resumes_afterwards(serve):
    registry = serve(slots=1)
    run = held(registry, slow(registry))
    at = run.step
    other = start(registry, "bob", max_steps=30)
    wait_for_status(other, "starting", "training", "done")
    assert (run.status, run.has_worker, newest(run)) == ("paused", False, at)
    registry.control(run, "resume")
    wait_for_status(other, "done")
    wait_for_steps(run, at + 2)
    assert len(losses(run)) >= at + 2


def test_a_training_run_keeps_its_slot(serve):
    registry = serve(slots=2)
    going, other = slow(registry), held(registry, slow(registry))
    wait_for_steps(going)
    waiting = slow(registry, "bob")
    wait_for_steps(waiting)
    assert (going.status, other.has_worker) == ("training", False)


def test_a_run_resumed_while_it_pauses_waits_for_the_next_slot(serve):
    registry = serve(slots=1)
    run = held(registry, slow(registry))
    at = run.step
    other = slow(registry, "bob")  # requests the slot of the paused run
    registry.control(run, "resume")
    wait_for_steps(other)
    wait_for_status(run, "waiting")
    assert registry.scheduler.position(run) == 1
    registry.control(other, "stop")
    wait_for_steps(run, at + 2)


def test_the_number_of_waiting_runs_of_an_owner_is_limited(serve):
    registry = serve(slots=1)
    runs = [slow(registry) for _ in range(MAX_QUEUED_PER_OWNER + 1)]
    with pytest.raises(
        UserError, match=f"you have {MAX_QUEUED_PER_OWNER} queued runs, which is the maximum"
    ):
        slow(registry)
    assert len(registry.list_for_owner("ada")) == len(runs)
    registry.control(runs[-1], "stop")
    assert slow(registry).status == "waiting"
    assert slow(registry, "bob").status == "waiting"


def as_it_is_meant(line: list[str], places: dict[str, int], turns: list[str]) -> list[int]:
    """Return the specified order of the queue: fewest slots, longest wait, first in line."""
    places, turns = Counter(places), {owner: at for at, owner in enumerate(turns, start=1)}
    left, order = list(enumerate(line)), []
    while left:
        at, owner = min(left, key=lambda each: (places[each[1]], turns.get(each[1], 0), each[0]))
        left.remove((at, owner))
        places[owner] += 1
        turns[owner] = 1_000 + len(order)
        order.append(at)
    return order


def test_the_queue_orders_by_slots_then_turns_then_arrival(registry):
    chance = random.Random(0)
    for _ in range(200):
        owners = "abcdef"[: chance.randint(1, 6)]
        line, held = (
            chance.choices(owners, k=chance.randint(0, 12)),
            chance.choices(owners, k=chance.randint(0, 4)),
        )
        waiting = [SimpleNamespace(owner=owner) for owner in line]
        registry._runs = {
            str(at): SimpleNamespace(owner=owner, has_worker=True, uses_zerogpu=False)
            for at, owner in enumerate(held)
        }
        # the one whose turn was longest ago first
        turns = chance.sample(owners, chance.randint(0, len(owners)))
        registry.scheduler._queue, registry.scheduler._turn_counter = list(waiting), len(turns)
        registry.scheduler._last_served = OrderedDict(
            (owner, number) for number, owner in enumerate(turns, start=1)
        )
        order = [
            next(at for at, each in enumerate(waiting) if each is run)
            for run in registry.scheduler.order()
        ]
        assert order == as_it_is_meant(line, Counter(held), turns)
    registry._runs, registry.scheduler._queue = {}, []


@pytest.mark.parametrize(
    ("inputs", "stored"),
    [("👩‍💻 run", "👩💻 run"), ("a\u200bb\n", "ab"), ("\u200b", "reverse 1–5, 1 × 2")],
)
def test_run_name_with_unprintable_characters_survives_restart(serve, inputs, stored):
    registry = serve(slots=1)
    run = registry.start(RunConfig.from_flat(SMALL | {"max_steps": 1}), "ada", name=inputs)
    wait_for_the_end(run)
    registry.shutdown()
    assert [run.name for run in serve(slots=1).list_for_owner("ada")] == [stored]


def test_a_run_that_does_not_fit_into_memory_is_rejected_with_the_number(registry):
    config = RunConfig.from_flat(
        {"d_model": 4096, "n_layers": 48, "d_ff": 16384, "batch_size": 65536, "max_length": 512}
    )
    with pytest.raises(
        ConfigError, match=r"needs about [\d,.]+ GB and [\d.]+ GB are free"
    ) as caught:
        registry.start(config, "ada")
    assert caught.value.field == "batch_size"
    assert registry.list_for_owner("ada") == []


def test_run_short_of_memory_does_not_block_smaller_runs(serve, monkeypatch):
    def scarce(config: RunConfig, reserved_bytes: int = 0) -> None:
        if config.training.batch_size > 8:
            raise ConfigError("batch_size", "this run needs about 9.0 GB and 1.0 GB are free")

    registry = serve(slots=1)
    going, large, small = slow(registry), slow(registry, batch_size=16), slow(registry)
    monkeypatch.setattr(scheduler, "ensure_memory_available", scarce)
    wait_for_steps(going)
    registry.control(going, "stop")
    wait_for_steps(small)
    response = Page(registry, large).poll()
    # for a place, once more
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


def test_run_short_of_memory_is_overtaken_for_a_limited_time(serve, monkeypatch):
    live = []

    def scarce(config: RunConfig, reserved_bytes: int = 0) -> None:
        if config.training.batch_size > 8 and live and live[0].has_worker:
            raise ConfigError("batch_size", "this run needs about 9.0 GB and 1.0 GB are free")

    registry = serve(slots=3)
    live.append(slow(registry))
    wait_for_steps(live[0])
    registry.control(live[0], "pause")
    wait_for_status(live[0], "paused")
    monkeypatch.setattr(scheduler, "BYPASS_WINDOW_S", 3600.0)
    monkeypatch.setattr(scheduler, "ensure_memory_available", scarce)
    monkeypatch.setattr(registry, "validate_size", lambda config: None)
    large, small = slow(registry, batch_size=16), slow(registry)
    wait_for_steps(small)  # it went first
    assert large.status == "waiting"
    monkeypatch.setattr(scheduler, "BYPASS_WINDOW_S", 0.0)  # two minutes later
    wait_for_steps(large)  # for the paused run has given its memory back
    assert not live[0].has_worker


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "runs").write_text("in the way")
    registry = Registry(tmp_path, slots=1)
    with pytest.raises(UserError, match=r"folder .* could not be created"):
        start(registry)
    assert registry.list_for_owner("ada") == []
    registry.shutdown()


# Without viewers


def test_unwatched_run_pauses_with_reason_and_releases_its_worker(serve):
    registry = serve(slots=2, idle_timeout_s=3, release_after_s=1)
    run, watched = slow(registry), slow(registry)
    page = Page(registry, watched)
    page.poll_until(lambda response: not run.has_worker and run.step)
    assert run.status == "paused"
    assert "paused automatically after 3 s without viewers" in run.message
    assert newest(run) == run.step
    assert watched.status == "training"
    assert "without viewers" in Run.read(run.folder).message
    response = Page(registry, run).poll()
    assert (response["status"], response["has_worker"], response["points"]["count"]) == (
        "paused",
        False,
        run.step,
    )
    before = run.step
    registry.control(run, "resume")
    Page(registry, run).poll_until(lambda response: response["step"] > before + 2)
    assert run.message == ""


def test_polling_the_list_renews_the_lease_of_its_runs(serve):
    registry = serve(slots=2, idle_timeout_s=8)
    mine, theirs = slow(registry, "ada"), slow(registry, "bob")
    wait_for(
        lambda: registry.summaries("ada") and theirs.status == "paused",
        description="the pause of a run without viewers",
    )
    assert mine.status == "training"


def test_an_unwatched_waiting_run_leaves_the_queue_with_a_reason(serve):
    registry = serve(slots=1, idle_timeout_s=600)
    going, left, behind = (slow(registry) for _ in range(3))
    left.last_viewed_at -= 1000
    text_rendered = (
        "removed from the queue after 10 min without viewers; press Resume to queue it again"
    )
    wait_until(left, lambda: Run.read(left.folder).message == text_rendered, "to leave the line")
    assert (
        left.status,
        left.message,
        registry.scheduler.position(left),
        registry.scheduler.position(behind),
    ) == ("stopped", text_rendered, None, 1)
    assert Run.read(left.folder).status == "stopped"
    page = Page(registry, left)
    page.poll()  # it is on the screen of who presses Resume
    registry.control(left, "resume")
    assert (left.status, left.message, registry.scheduler.position(left)) == ("waiting", "", 2)
    registry.control(behind, "stop")
    registry.control(going, "stop")
    page.poll_until(lambda response: response["step"])


def test_a_run_resumed_after_a_long_time_stays_queued(serve):
    registry = serve(slots=1, idle_timeout_s=600)
    going, resumed, alone = (slow(registry) for _ in range(3))
    registry.control(resumed, "stop")
    resumed.last_viewed_at -= 1000
    registry.control(resumed, "resume")
    alone.last_viewed_at -= 1000
    wait_for_status(alone, "stopped")  # housekeeping has processed both
    assert (resumed.status, registry.scheduler.position(resumed), going.has_worker) == (
        "waiting",
        1,
        True,
    )


def test_a_queued_run_of_an_active_owner_stays_queued(serve):
    registry = serve(slots=1, idle_timeout_s=0)
    going, mine, theirs = slow(registry), slow(registry), slow(registry, "bob")
    for run in (mine, theirs):
        run.last_viewed_at -= 1000
    assert registry.summaries("ada")[0]["queue_position"] is not None
    registry.settings.idle_timeout_s = 600
    wait_for_status(theirs, "stopped")  # housekeeping has processed both
    assert (mine.status, registry.scheduler.position(mine), mine.message, going.has_worker) == (
        "waiting",
        1,
        "",
        True,
    )


def test_without_a_lease_no_viewer_is_needed(serve):
    registry = serve(slots=1, idle_timeout_s=0, release_after_s=0, hang_timeout_s=0)
    run = slow(registry)
    wait_for_steps(run)
    run.last_viewed_at -= 10**6
    wait_for(lambda: not run.viewer_active, description="a round of housekeeping")
    wait_for_steps(run, run.step + 5)
    held(registry, run)
    run.paused_at -= 10**6
    other = start(registry, "bob", max_steps=1)
    wait_for_status(other, "done")


def test_unwatched_runs_leave_the_memory_and_return(registry):
    run = wait_for_the_end(wait_for_status(start(registry, max_steps=40), "done"))
    page = Page(registry, run)
    page.poll_until(lambda response: response["snapshot"])
    response, at, before = (page.attends, page.known), page.epoch, page.losses
    run.last_viewed_at -= 1000
    wait_for(lambda: run.live.points is None, description="letting go")
    assert (run.live.snapshot, run.live.probe_info, run.live.weight_steps) == (None, None, None)
    assert registry.summaries("ada")[0]["step"] == 40
    assert response == (page.attends, 40)
    page.poll_until(lambda response: response["snapshot"])
    assert page.epoch != at
    assert (page.begun, page.losses) == (2, before)


# After a restart


def test_restarted_server_has_runs_paused_and_resumes_bit_exactly(serve):
    registry = serve(slots=3)
    undisturbed = wait_for_the_end(
        wait_for_status(start(registry, max_steps=60, dropout=0.1), "done")
    )
    going, paused, stepping = (
        start(registry, changes=SLOWLY, max_steps=60, dropout=0.1) for _ in range(3)
    )
    wait_for_steps(going, 5)
    held(registry, paused, 3)
    held(registry, stepping)
    at = stepping.step
    registry.control(stepping, "step")
    wait_for_steps(stepping, at + 1)
    registry.update_metadata(paused, name="Mine", hidden=True)
    workers = [run.worker for run in (going, paused, stepping)]
    assert registry.shutdown(60) == (3, 0)
    assert all(removed(worker.process.pid) for worker in workers)
    before = {run.id: run for run in (going, paused, stepping)}

    registry = serve(slots=3)
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
        page = Page(registry, run)
        page.poll()
        assert page.losses == losses(undisturbed)[: old.step]
    assert registry.find(paused.id, "ada").hidden is True
    assert registry.find(undisturbed.id, "ada").status == "done"
    for run_id in before:
        registry.control(registry.find(run_id, "ada"), "resume")
    for run_id in before:
        assert losses(wait_for_status(registry.find(run_id, "ada"), "done")) == losses(undisturbed)


def test_workers_save_after_server_kill_and_next_server_resumes(serve, tmp_path):
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
    wait_for(lambda: removed(int(pid)), description="the worker's end")
    registry = serve(slots=2)
    run, waiting = registry.find(run_id, "ada"), registry.find(waiting_id, "ada")
    assert (run.status, waiting.status, waiting.step) == ("paused", "paused", 0)
    assert newest(run) == run.load_points().last >= 5
    registry.control(run, "resume")
    registry.control(waiting, "resume")
    wait_for_status(run, "done")
    wait_for_status(waiting, "done")
    assert newest(run) == 60
    assert len(losses(run)) == 60
    assert losses(run) == losses(waiting)


def test_shutdown_lets_every_run_save_and_leaves_no_process(registry):
    runs = [slow(registry) for _ in range(3)]
    waiting = slow(registry)
    for run in runs:
        wait_for_steps(run)
    pids = [run.worker.process.pid for run in runs]
    assert registry.shutdown(60) == (3, 0)
    for run, pid in zip(runs, pids, strict=True):
        assert newest(run) >= run.step > 0
        assert removed(pid)
        assert Run.read(run.folder).status == "paused"
    assert (waiting.status, waiting.has_worker) == ("paused", False)


def test_a_run_that_another_server_trains_is_not_trained_twice(serve):
    first = serve(slots=1)
    run = held(first, slow(first))
    second = serve(slots=1)
    same = second.find(run.id, "ada")
    second.control(same, "resume")
    wait_for_the_end(wait_for_status(same, "failed"))
    assert "another process is training this run; end that one first" in same.message
    at = run.step
    first.control(run, "resume")
    wait_for_steps(run, at + 2)


def test_a_broken_newest_checkpoint_is_passed_over_with_a_word(registry):
    undisturbed = start(registry, max_steps=60, dropout=0.1)
    run = start(registry, changes=SLOWLY, max_steps=60, dropout=0.1)
    held(registry, run, 3)
    wait_for(lambda: run.live.checkpoint_version >= 1, description="a checkpoint")
    registry.control(run, "resume")
    held(registry, run, run.step + 5)
    wait_for(lambda: run.live.checkpoint_version >= 2, description="another checkpoint")
    run.send_command("park")
    wait_for_the_end(run)
    (last, _), (_, before) = run.checkpoints()
    (last / "training.safetensors").write_bytes((last / "training.safetensors").read_bytes()[:-100])
    page = Page(registry, run)
    page.poll()
    registry.control(run, "step")
    wait_for_pause_at(run, before.step + 1)
    assert f"{last.name}{os.sep}training.safetensors" in run.message
    assert str(registry.root) not in run.message
    assert "An earlier checkpoint was used" in run.message
    page.poll()
    assert page.steps == list(range(1, before.step + 2))
    assert weight_steps(run.folder)[-1] == before.step + 1
    finished(registry, run)
    assert losses(run) == losses(wait_for_status(undisturbed, "done"))
    assert len(list(read_lines(run.folder))) == 60


def test_without_a_usable_checkpoint_the_run_uses_its_history(registry):
    run = parked(registry, slow(registry, max_steps=ENDLESS))
    registry.control(run, "resume")
    wait_for_steps(run, 40)
    run.send_command("park")
    wait_for_the_end(run)
    for path, _ in run.checkpoints():
        (path / "model.safetensors").write_bytes(b"")
    states = state_steps(run.folder)
    assert states
    registry.control(run, "step")
    wait_for_pause_at(run, states[-1] + 1)
    assert "An earlier checkpoint was used" in run.message
    run.send_command("park")
    wait_for_the_end(run)
    shutil.rmtree(run.folder / "history")
    for path in (run.folder / "checkpoints").iterdir():
        (path / "model.safetensors").write_bytes(b"")
    registry.control(run, "resume")
    wait_for_status(run, "failed")
    assert "no checkpoint of this run can be used" in run.message


# Branches


@pytest.mark.parametrize("settings", [{}, AVERAGED_MUON], ids=str)
def test_branch_repeats_its_parent_unless_a_setting_changes(registry, settings):
    parent = start(registry, max_steps=60, dropout=0.1, eval_every=10, **settings)
    parent = wait_for_the_end(wait_for_status(parent, "done"))
    for step in (0, 16, 23):  # before the first, with a state, without one
        same, other = registry.branch(parent, step, "ada"), registry.branch(parent, step, "ada")
        for branch in (same, other):
            wait_for_pause_at(branch, step)
            assert losses(branch) == losses(parent)[:step]
            assert branch.load_points().evaluations == [
                score for score in parent.load_points().evaluations if score[0] <= step
            ]
            assert branch.name.startswith(f"{parent.name} from {step}")
        registry.change_setting(other, "learning_rate", 0.05)
        finished(registry, same)
        finished(registry, other)
        assert losses(same) == losses(parent)
        assert same.scores == parent.scores
        assert losses(other)[: step + 1] == losses(parent)[: step + 1]
        assert losses(other)[step + 2 :] != losses(parent)[step + 2 :]
        assert list(other.changes) == [SettingChange(step, "learning_rate", 0.05)]
        for branch in (same, other):
            assert set(weight_steps(branch.folder)) >= {
                s for s in weight_steps(parent.folder) if s <= min(step, 16)
            }
    assert parent.changes == ()


def test_a_branch_keeps_the_changes_until_its_step_and_none_after(registry):
    changes = [SettingChange(10, "learning_rate", 0.02), SettingChange(30, "learning_rate", 0.05)]
    parent = wait_for_status(start(registry, max_steps=50, changes=changes), "done")
    branch = registry.branch(parent, 20, "ada")
    wait_for_pause_at(branch, 20)
    finished(registry, branch)
    assert list(branch.changes) == changes[:1]
    assert losses(branch)[:31] == losses(parent)[:31]
    assert losses(branch)[32:] != losses(parent)[32:]


def test_a_run_that_is_going_can_be_branched_and_is_not_disturbed(registry):
    parent = slow(registry)
    wait_for_steps(parent, 12)
    branch = registry.branch(parent, 9, "bob")
    wait_for_pause_at(branch, 9)
    assert losses(branch) == losses(parent)[:9]
    assert parent.status == "training"
    assert registry.list_for_owner("bob") == [branch]
    assert (branch.id, branch.share_id) != (parent.id, parent.share_id)


def test_a_branch_from_the_last_step_continues(registry):
    parent = wait_for_status(start(registry, max_steps=30), "done")
    branch = registry.branch(parent, 30, "ada")
    wait_for_pause_at(branch, 30)
    assert branch.steps == 60
    finished(registry, branch)
    assert len(losses(branch)) == 60
    assert losses(branch)[:30] == losses(parent)
    assert list(branch.changes) == [SettingChange(30, "max_steps", 60)]


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
    assert finished(registry, branch).step == 80
    assert losses(branch)[:last] == losses(parent)
    wait_for_pause_at(earlier, last - 1)
    assert finished(registry, earlier).step == last


@pytest.mark.parametrize("step", [-1, 31, 10**9])
def test_a_step_that_was_not_reached_has_no_branch(registry, step):
    parent = wait_for_status(start(registry, max_steps=30), "done")
    with pytest.raises(
        UserError, match=f"step {step} is not in this run; choose a step from 0 to 30"
    ):
        registry.branch(parent, step, "ada")


def test_branch_that_released_its_worker_continues_at_first_resume(registry):
    parent = wait_for_the_end(wait_for_status(start(registry, max_steps=30), "done"))
    branch = registry.branch(parent, 9, "ada")
    wait_for_pause_at(branch, 9)
    branch.send_command("park")
    wait_for_the_end(branch)
    registry.control(branch, "resume")
    wait_for_status(branch, "done")
    assert losses(branch) == losses(parent)


def test_a_branch_outlives_its_parent(registry):
    parent = wait_for_the_end(wait_for_status(start(registry, max_steps=40), "done"))
    branch = registry.branch(parent, 20, "ada")
    wait_for_pause_at(branch, 20)
    expected = losses(parent)
    registry.delete(parent)
    parent.deleted_at_monotonic -= UNDO_TTL_S + 1
    wait_for(lambda: not parent.folder.exists(), description="the parent's folder to go")
    assert answer(registry.snapshots.snapshot_at(branch, 10))["snapshot"]["step"] == 10
    finished(registry, branch)
    assert losses(branch) == expected


# Changes on the way


def test_a_change_takes_effect_at_the_next_step_and_again_repeats_it(registry):
    plain = wait_for_status(start(registry, max_steps=60), "done")
    run = start(registry, max_steps=60, changes=SLOWLY)
    wait_for_steps(run, 5)
    registry.change_setting(run, "learning_rate", 0.05)
    wait_for(lambda: run.changes != SLOWLY, description="the change")
    registry.change_setting(run, "speed", 0)
    registry.change_setting(run, "max_steps", 70)
    wait_for_the_end(wait_for_status(run, "done"))
    (rate,) = (change for change in run.changes if change.setting == "learning_rate")
    assert (rate.value, run.step) == (0.05, 70)
    assert 5 <= rate.step < 60
    assert losses(run)[: rate.step + 1] == losses(plain)[: rate.step + 1]
    assert losses(run)[rate.step + 2 : 60] != losses(plain)[rate.step + 2 :]
    again = registry.rerun(run, "ada")
    assert again.changes == run.changes
    assert losses(wait_for_status(again, "done")) == losses(run)
    assert again.id != run.id
    assert Run.read(run.folder).changes == run.changes


def test_a_change_of_a_stopped_run_applies_on_resume(registry):
    run = parked(registry, slow(registry))
    at = run.step
    registry.change_setting(run, "learning_rate", 0.01)
    registry.change_setting(run, "learning_rate", 0.05)
    registry.change_setting(run, "max_steps", at + 5)
    registry.change_setting(run, "speed", 0)
    assert list(run.changes) == [
        *SLOWLY,
        SettingChange(at, "learning_rate", 0.05),
        SettingChange(at, "max_steps", at + 5),
        SettingChange(at, "speed", 0),
    ]
    assert (run.learning_rate, run.steps, run.max_steps_per_second) == (0.05, at + 5, 0.0)
    finished(registry, run)
    assert run.step == at + 5
    rates = list(run.load_points().columns["learning_rate"])
    assert rates[at] / rates[at - 1] > 5
    assert run.changes == Run.read(run.folder).changes


def test_a_run_that_is_done_can_be_made_longer(registry):
    run = wait_for_the_end(wait_for_status(start(registry, max_steps=20), "done"))
    registry.change_setting(run, "max_steps", 35)
    assert run.status == "paused"
    finished(registry, run)
    assert len(losses(run)) == 35


def test_run_extended_after_its_end_has_no_scores_until_next_end(registry):
    run = wait_for_the_end(wait_for_status(start(registry, max_steps=20), "done"))
    page = Page(registry, run)
    assert page.poll()["scores"] == run.scores
    assert run.scores["n"] == 2000
    registry.change_setting(run, "max_steps", ENDLESS)
    registry.change_setting(run, "speed", 40)
    registry.control(run, "resume")
    assert page.poll_until(lambda response: response["step"] > 20)["scores"] is None
    held(registry, run, 21)
    assert run.scores is Run.read(run.folder).scores is None
    assert registry.summaries("ada")[0]["best"] == run.best is not None
    registry.change_setting(run, "max_steps", run.step + 5)
    registry.change_setting(run, "speed", 0)
    finished(registry, run)
    assert run.scores["n"] == Run.read(run.folder).scores["n"] == 2000


@pytest.mark.parametrize("live", [True, False])
def test_an_invalid_change_is_rejected_in_every_status(registry, live):
    run = held(registry, slow(registry)) if live else parked(registry, slow(registry))
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


@pytest.mark.parametrize("live", [True, False])
def test_a_change_that_was_still_to_come_gives_way_to_a_new_one(registry, live):
    run = start(
        registry,
        max_steps=ENDLESS,
        changes=[
            *SLOWLY,
            SettingChange(90_000, "learning_rate", 0.5),
            SettingChange(90_000, "max_steps", 95_000),
        ],
    )
    held(registry, run) if live else parked(registry, run)
    at = run.step
    registry.change_setting(run, "learning_rate", 0.05)
    registry.control(run, "resume")
    wait_for_steps(run, at + 2)
    assert sorted(run.changes, key=lambda c: c.step) == [
        *SLOWLY,
        SettingChange(at, "learning_rate", 0.05),
        SettingChange(90_000, "max_steps", 95_000),
    ]


def test_slow_motion_shows_every_step_and_full_speed_ends_it(registry):
    run = start(registry, max_steps=200, changes=[SettingChange(0, "speed", 10)])
    page = Page(registry, run)
    page.poll_until(lambda response: response["step"] >= 5)
    assert page.poll()["speed"] == 10
    held(registry, run)
    assert set(range(1, run.step + 1)) <= set(run.load_weight_steps())
    registry.control(run, "resume")
    registry.change_setting(run, "speed", 0)
    wait_for_status(run, "done")


# Looking and asking


def test_every_stored_step_can_be_inspected_and_evaluated(registry):
    run = wait_for_the_end(
        wait_for_status(start(registry, max_steps=120, learning_rate=0.02), "done")
    )
    recorded = run.load_weight_steps()
    assert recorded[0] == 0
    assert recorded[-1] == 120
    assert set(range(40)) <= set(recorded)
    seen = {}
    for step in (0, 1, 37, 120, 0):
        response = answer(registry.snapshots.snapshot_at(run, step))
        assert response["snapshot"]["step"] == step
        assert seen.setdefault(step, response) == response
        assert answer(registry.snapshots.predict(run, "1 2 3", step))["step"] == step
    assert len({json.dumps(seen[step]["snapshot"]["attention"]) for step in (0, 37, 120)}) == 3
    heads = seen[120]["snapshot"]["attention"]["cross"]
    source, written = (
        len(seen[120]["probe_info"]["source"]),
        len(seen[120]["probe_info"]["axes"]["cross"][0]),
    )
    assert [len(heads), len(heads[0]), len(heads[0][0])] == [1, 2, source * written]
    for row in range(written):
        assert abs(sum(heads[0][0][row * source : (row + 1) * source]) - 1000) <= source
    assert answer(registry.snapshots.predict(run, "1 2 3"))["step"] == 120
    thinned = (
        next(step for step in range(1, 120) if step not in recorded)
        if len(recorded) < 121
        else None
    )
    for missing, near in [(10**9, 120), (-5, 0)] + ([(thinned, None)] if thinned else []):
        actual = answer(registry.snapshots.snapshot_at(run, missing))["snapshot"]["step"]
        assert actual in recorded
        assert near in (None, actual)


def test_broken_weights_are_reported_and_do_not_affect_later_views(registry):
    run = wait_for_the_end(wait_for_status(start(registry, max_steps=20), "done"))
    whole = answer(registry.snapshots.snapshot_at(run, 10))
    weights_path(run.folder, 11).write_bytes(b"12345678")
    assert "11.safetensors" in answer(registry.snapshots.snapshot_at(run, 11))["error"]
    assert answer(registry.snapshots.snapshot_at(run, 10)) == whole
    weights_path(run.folder, 11).unlink()
    assert answer(registry.snapshots.snapshot_at(run, 11))["snapshot"]["step"] == 10


def test_a_run_without_weights_has_a_message(serve):
    registry = serve(slots=1)
    first, waiting = slow(registry), slow(registry)
    assert "has no weights yet" in answer(registry.snapshots.predict(waiting, "1 2"))["error"]
    assert (
        "this run has no stored weights yet"
        in answer(registry.snapshots.snapshot_at(waiting, 3))["error"]
    )
    assert Page(registry, waiting).poll()["snapshot"] is None
    assert first.has_worker


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        ("3 x 4", "'x' is not a token"),
        ("", "type a sequence"),
        ("1 2 3 4 5 6", "this model has positions for 5"),
        ("<b>", "'<' is not"),
    ],
)
def test_impossible_requests_are_explained(registry, text, expected_message):
    run = slow(registry)
    wait_for(lambda: run.live.latest_weights_step is not None, description="weights")
    assert expected_message in answer(registry.snapshots.predict(run, text))["error"]


def test_a_response_without_a_client_harms_nothing(registry):
    run = slow(registry)
    wait_for(lambda: run.live.latest_weights_step is not None, description="weights")
    for _ in range(3):
        registry.snapshots.predict(run, "1 2 3").cancel()
    assert answer(registry.snapshots.predict(run, "1 2 3"))["target"] == ["3", "2", "1"]
    assert run.has_worker


def test_a_flood_of_requests_is_limited_and_runs_continue(registry):
    run, other = slow(registry), slow(registry, "bob")
    wait_for(
        lambda: (
            run.live.latest_weights_step is not None and other.live.latest_weights_step is not None
        ),
        description="weights",
    )
    replies = [registry.snapshots.predict(run, "1 2 3") for _ in range(300)]
    assert "prediction" in answer(registry.snapshots.predict(other, "1 2"))
    response = [answer(reply) for reply in replies]
    # the run's own snapshot may hold one of the places
    assert sum("prediction" in reply for reply in response) >= MAX_PER_CLIENT - 2
    assert any(
        "busy with earlier requests" in reply.get("error", "") and reply["retryable"]
        for reply in response
    )
    registry.control(run, "stop")
    wait_for_status(run, "stopped")


def test_request_after_inspector_is_killed_gets_new_process(registry):
    run = slow(registry)
    page = Page(registry, run)
    page.poll_until(lambda response: response["snapshot"])
    child = registry.snapshots.inspector.process._process
    child.process.kill()
    child.exited.wait(60)
    assert answer(registry.snapshots.predict(run, "1 2"))["target"] == ["2", "1"]
    attends = page.attends
    page.poll_until(lambda response: response["snapshot_version"] > attends + 1)
    assert run.status == "training"


def test_finished_run_is_inspectable_after_inspector_is_killed(registry, monkeypatch):
    run = start(registry, max_steps=4)
    wait_for_status(run, "done")
    assert "prediction" in answer(registry.snapshots.predict(run, "1 2 3"))
    with monkeypatch.context() as patch:
        # the process is at it for as long as it lives
        patch.setattr(WorkerProcess, "send", lambda child, *message: True)
        run.update_live(snapshot=None)  # so that a snapshot is due
        registry.snapshots.refresh(run)
    registry.snapshots.inspector.process._process.kill()
    wait_for(lambda: not run.snapshot_pending, description="the end of that look")
    assert "prediction" in answer(registry.snapshots.predict(run, "1 2 3"))


def test_retry_when_inspector_ends_uses_the_next_process(registry, monkeypatch):
    requested_again = Future()
    # nothing comes of the first question
    monkeypatch.setattr(WorkerProcess, "send", lambda child, *message: True)
    first = registry.snapshots.inspector.request("warm", {})
    monkeypatch.undo()
    first.add_done_callback(
        lambda _: requested_again.set_result(registry.snapshots.inspector.request("warm", {}))
    )
    registry.snapshots.inspector.process._process.kill()
    assert "was killed" in answer(first)["error"]
    assert answer(requested_again.result(60)) == {}


def test_slow_request_ends_the_process_and_the_next_gets_a_new_one(monkeypatch):
    inspector = InspectorClient(60)
    try:
        with monkeypatch.context() as patch:
            # the process never gets it
            patch.setattr(WorkerProcess, "send", lambda child, *message: True)
            stuck = inspector.request("warm", {}, timeout_s=1.0)
        child, waiting = inspector.process._process, inspector.request("warm", {})
        assert "longer than 1 s" in answer(stuck)["error"]
        assert answer(waiting) == {}
        assert inspector.process._process is not child
    finally:
        inspector.stop()


def test_inspection_and_prediction_change_no_bit(registry):
    watched, alone = (
        start(registry, max_steps=80, dropout=0.1),
        start(registry, max_steps=80, dropout=0.1, changes=[SettingChange(0, "speed", 0)]),
    )
    page = Page(registry, watched)
    while watched.status != "done":
        page.poll()
        registry.snapshots.predict(watched, "1 2 3")
        registry.snapshots.snapshot_at(watched, 0)
        time.sleep(0.005)
    assert losses(watched) == losses(wait_for_status(alone, "done"))


def test_a_long_probe_with_many_heads_stays_small_on_the_way_to_the_page(registry):
    run = start(
        registry,
        max_steps=1,
        min_length=200,
        max_length=200,
        n_layers=4,
        n_heads=8,
        d_model=64,
        batch_size=2,
    )
    response = Page(registry, run).poll_until(lambda response: response["snapshot"])
    assert (
        sum(
            len(head)
            for kind in response["snapshot"]["attention"].values()
            for layer in kind
            for head in layer
        )
        <= 100_000
    )
    assert len(response["probe_info"]["source"]) > 20


# Responses to a page


def test_a_page_that_polls_has_every_point_once(registry):
    run = start(registry, max_steps=120)
    page = Page(registry, run)
    page.poll_until(
        lambda response: (
            response["status"] == "done"
            and response["points"]["count"] == 120
            and run.live.snapshot["step"] == 120
        )
    )
    assert page.steps == list(range(1, 121))
    assert page.begun == 1
    response = page.poll()
    assert (response["snapshot"], response["probe_info"], response["points"]["steps"]) == (
        None,
        None,
        [],
    )
    assert (
        response["step"],
        response["max_steps"],
        response["weight_steps"][-1],
        response["scores"],
    ) == (
        120,
        120,
        120,
        run.scores,
    )
    assert Page(registry, run).poll()["points"]["steps"] == page.steps


def test_page_has_every_point_once_after_a_kill_and_resume(registry):
    undisturbed = start(registry, max_steps=80, dropout=0.1)
    run = start(registry, max_steps=80, dropout=0.1, changes=SLOWLY)
    page = Page(registry, run)
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
    epoch, seen = page.epoch, list(page.losses)
    registry.control(run, "resume")
    page.poll_until(
        lambda response: response["status"] == "done" and response["points"]["count"] == 80
    )
    assert page.epoch != epoch
    assert len(page.losses) == 80
    assert page.losses[: len(seen)] == seen
    assert page.losses == losses(wait_for_status(undisturbed, "done"))


def test_page_starts_over_after_kill_before_first_checkpoint(registry):
    run = start(registry, max_steps=60, changes=SLOWLY)
    page = Page(registry, run)
    page.poll_until(lambda response: response["points"]["count"] >= 5)
    os.kill(run.worker.process.pid, signal.SIGKILL)
    page.poll_until(lambda response: response["status"] == "failed" and not response["has_worker"])
    assert "it has no checkpoint yet" in run.message
    seen = list(page.losses)
    registry.control(run, "resume")
    page.poll_until(
        lambda response: response["status"] == "done" and response["points"]["count"] == 60
    )
    assert page.steps == list(range(1, 61))
    assert page.losses[: len(seen)] == seen
    assert page.begun > 1


# Whose is what


def test_owners_see_their_own_runs_only(registry):
    mine, theirs = start(registry, "ada", max_steps=5), start(registry, "bob", max_steps=5)
    assert registry.list_for_owner("ada") == [mine]
    assert registry.list_for_owner("bob") == [theirs]
    assert registry.list_for_owner("") == []
    assert registry.find(mine.id, "ada") is mine
    for guess in (
        "",
        None,
        7,
        mine.folder.name,
        mine.id[:-1],
        mine.share_id,
        {"id": mine.id},
        theirs.id,
    ):
        assert registry.find(guess, "ada") is None
    assert registry.find(mine.id, "bob") is registry.find(mine.id, "") is None
    assert mine.id not in str(mine.folder)
    assert mine.share_id not in str(mine.folder)


def test_an_owner_of_any_letters_harms_nothing(registry):
    for owner in ("\u00e9", "\ud800", "x" * 100_000, "\0"):
        start(registry, owner, max_steps=1)
        assert registry.list_for_owner("ada") == []
        assert len(registry.list_for_owner(owner)) == 1


def test_a_link_to_watch_leads_to_the_run_and_to_nothing_of_its_owners(registry):
    run, other = start(registry, max_steps=5), start(registry, max_steps=5)
    assert registry.find_shared(run.share_id) is run
    assert registry.find_shared(other.share_id) is other
    for guess in (
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
        assert registry.find_shared(guess) is None
    assert registry.find(run.share_id, "ada") is None
    response = json.dumps(Page(registry, run).poll())
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


def test_a_run_can_be_renamed_and_hidden_and_that_lasts(serve):
    registry = serve(slots=1)
    run = wait_for_the_end(wait_for_status(start(registry, max_steps=1), "done"))
    registry.update_metadata(run, name="  My \n best\trun ")
    registry.update_metadata(run, hidden=True)
    assert (run.name, run.hidden) == ("My best run", True)
    for name in ("", " \n ", "x" * (MAX_NAME_LENGTH + 1)):
        with pytest.raises(UserError, match="use 1 to 80 printable characters"):
            registry.update_metadata(run, name=name)
    assert run.name == "My best run"
    later = serve(slots=1).find(run.id, "ada")
    assert (later.name, later.hidden) == ("My best run", True)
    registry.update_metadata(run, hidden=False)
    assert registry.summaries("ada")[0]["hidden"] is False


def test_deleted_run_stops_and_can_be_restored_until_undo_expires(serve):
    registry = serve(slots=1)
    run, waiting = slow(registry), slow(registry)
    wait_for_steps(run)
    registry.delete(waiting)
    registry.delete(run)
    wait_for_the_end(run)
    assert [row["deleted"] for row in registry.summaries("ada")] == [True, True]
    for each in (run, waiting):
        registry.control(each, "resume")
        assert each.status in ("stopped", "paused")
    registry.restore(run)
    assert registry.summaries("ada")[1]["deleted"] is False
    at = run.step
    registry.control(run, "resume")
    wait_for_steps(run, at + 2)
    registry.delete(run)
    wait_for_the_end(run)
    assert run.folder.exists()
    assert serve(slots=1).find(run.id, "ada").deleted_at is not None
    run.deleted_at_monotonic -= UNDO_TTL_S + 1
    wait_for(lambda: not run.folder.exists(), description="the folder to go")
    assert registry.find(run.id, "ada") is None
    assert registry.find(waiting.id, "ada") is waiting


# Checkpoints from elsewhere


@pytest.fixture
def trained(small_run):
    """A trainer after twelve of thirty steps, with its metrics."""
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
    page = Page(registry, run)
    response = page.poll_until(lambda response: response["snapshot"])
    assert (response["snapshot"]["step"], page.steps, response["learning_rate"]) == (
        12,
        list(range(1, 13)),
        0.02,
    )
    assert answer(registry.snapshots.predict(run, "1 2"))["step"] == 12
    finished(registry, run)
    expected = metrics + list(trainer)
    assert losses(run) == pytest.approx([each.loss for each in expected], rel=1e-5)
    assert registry.find(run.id, "ada") is run
    assert registry.find(run.id, "bob") is None


def test_checkpoint_without_metrics_gives_points_after_its_step(registry, trained, tmp_path):
    trainer, _ = trained
    save_checkpoint(tmp_path / "upload", trainer, None)
    run = registry.import_checkpoint(tmp_path / "upload", "ada", "")
    assert run.name
    assert registry.poll(run, 0, -1, 0)["points"]["steps"] == []
    finished(registry, run)
    assert registry.poll(run, 0, -1, 0)["points"]["steps"] == list(range(13, 31))
    branch = registry.branch(run, 20, "ada")
    wait_for_pause_at(branch, 20)


def test_weights_alone_can_be_inspected_but_not_resumed(registry, trained, tmp_path):
    trainer, metrics = trained
    save_checkpoint(tmp_path / "upload", trainer, metrics, resumable=False)
    run = registry.import_checkpoint(tmp_path / "upload", "ada", "Weights")
    assert answer(registry.snapshots.predict(run, "1 2"))["target"] == ["2", "1"]
    assert not run.has_worker
    before = run.changes
    ways = [
        lambda: registry.change_setting(run, "max_steps", 100),
        lambda: registry.control(run, "resume"),
        lambda: registry.control(run, "step"),
    ]
    for way in ways:
        with pytest.raises(UserError, match="holds weights only"):
            way()
    assert (run.has_worker, run.status, run.changes) == (False, "done", before)


def test_a_folder_without_a_checkpoint_is_not_imported(registry, tmp_path):
    (tmp_path / "upload").mkdir()
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        registry.import_checkpoint(tmp_path / "upload", "ada", "x")
    assert registry.list_for_owner("ada") == []


def test_shared_checkpoint_can_be_inspected_and_broken_one_fails(registry, trained, tmp_path):
    trainer, metrics = trained
    save_checkpoint(tmp_path / "shared", trainer, metrics)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "config.json").write_text("{}")
    assert registry.storage.list_checkpoints() == {"shared": tmp_path / "shared"}
    assert (
        answer(registry.snapshots.inspector.request("snapshot", tmp_path / "shared"))["snapshot"][
            "step"
        ]
        == 12
    )
    assert answer(registry.snapshots.inspector.request("check", tmp_path / "shared")) == {
        "step": 12,
        "resumable": True,
    }
    (tmp_path / "shared" / "model.safetensors").write_bytes(b"12345678")
    os.utime(tmp_path / "shared" / "config.json")
    for kind in ("snapshot", "check"):
        assert (
            "model.safetensors"
            in answer(registry.snapshots.inspector.request(kind, tmp_path / "shared"))["error"]
        )
    assert (
        "no config.json"
        in answer(registry.snapshots.inspector.request("snapshot", tmp_path / "nothing"))["error"]
    )


# When things go wrong


def test_a_worker_that_hangs_is_ended_and_the_others_are_left_alone(serve):
    registry = serve(slots=3)
    hung, other = slow(registry), slow(registry)
    held(registry, hung)
    wait_for(lambda: hung.live.checkpoint_version, description="a checkpoint")
    registry.control(hung, "resume")
    wait_for_status(hung, "training")
    wait_for_steps(other)
    pid, theirs = hung.worker.process.pid, other.worker.process.pid
    os.kill(pid, signal.SIGSTOP)
    registry.settings.hang_timeout_s = 6
    wait_for_the_end(wait_for_status(hung, "failed"))
    registry.settings.hang_timeout_s = 60
    assert (
        "the training process hung for 6 s and was ended; its checkpoint of step " in hung.message
    )
    assert removed(pid)
    assert (other.status, other.worker.process.pid) == ("training", theirs)
    wait_for_steps(other, other.step + 2)
    registry.control(hung, "resume")
    wait_for_steps(hung, newest(hung) + 2)


def test_a_run_in_very_slow_motion_does_not_hang(serve):
    registry = serve(slots=1)
    run = start(registry, max_steps=ENDLESS, changes=[SettingChange(1, "speed", 0.01)])
    wait_for_steps(run, 1)
    registry.settings.hang_timeout_s, began = 5, time.monotonic()
    wait_for(
        lambda: (
            time.monotonic() > began + 2 * registry.settings.hang_timeout_s or not run.has_worker
        ),
        description="twice the patience to pass",
    )
    assert (run.status, run.message) == ("training", "")
    registry.change_setting(run, "speed", 0)
    wait_for_steps(run, 3)


def test_a_run_that_cannot_save_reports_it_and_saves_later(registry):
    run = held(registry, slow(registry))
    wait_for(lambda: run.live.checkpoint_version, description="the checkpoint")
    folder = run.folder / "checkpoints"
    os.rename(folder, run.folder / "aside")
    folder.write_text("in the way")  # as a full disk would, it makes every save fail, for root too
    at = run.step
    registry.control(run, "step")
    wait_for_steps(run, at + 1)
    registry.control(run, "stop")
    wait_for(
        lambda: "the run is paused: free disk space and resume" in run.message,
        description="the trouble",
    )
    wait_for_status(run, "paused")
    assert run.has_worker
    assert answer(registry.snapshots.predict(run, "1 2"))["target"] == ["2", "1"]
    folder.unlink()
    registry.control(run, "stop")
    wait_for_the_end(wait_for_status(run, "stopped"))
    assert newest(run) == run.step == len(losses(run))
    assert run.message == ""


def test_run_waits_on_full_disk_and_resumes_without_missing_points(tmp_path):
    root = tmp_path / "small"
    root.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", root],
        capture_output=True,
        text=True,
        check=False,
    )
    if mount.returncode:
        pytest.skip(f"no small file system can be mounted here: {mount.stderr.strip()}")
    registry = Registry(root, slots=1)
    try:
        run = start(registry, max_steps=ENDLESS)
        wait_for(
            lambda: "No space left on device" in run.message, description="the disk to be full"
        )
        wait_for_status(run, "paused")
        at = run.step
        assert run.has_worker
        subprocess.run(["mount", "-o", "remount,size=40m", root], check=True)
        registry.control(run, "resume")
        wait_for_steps(run, at + 20)
        registry.control(run, "stop")
        wait_for_the_end(wait_for_status(run, "stopped"))
        assert [line["step"] for line in read_lines(run.folder)] == list(range(1, run.step + 1))
        assert (newest(run), run.message) == (run.step, "")
    finally:
        registry.shutdown(30)
        wait_for(
            lambda: (
                subprocess.run(["umount", root], capture_output=True, check=False).returncode == 0
            ),
            description="unmounting",
        )


def test_broken_metrics_on_disk_are_reported(registry):
    run = parked(registry, slow(registry))
    path = run.folder / "metrics.jsonl"
    path.write_bytes(b"garbage\n" + path.read_bytes())
    registry.control(run, "resume")
    wait_for_the_end(wait_for_status(run, "failed"))
    assert "metrics.jsonl, line 1" in run.message


def test_the_manifests_of_a_run_hold_its_changes(registry):
    run = parked(registry, slow(registry))
    path, manifest = run.checkpoints()[0]
    assert manifest.changes == tuple(SLOWLY)
    assert read_manifest(path) == manifest
    assert not (path / "metrics.jsonl").exists()
    assert Path(run.folder / "metrics.jsonl").is_file()


# Housekeeping


def test_housekeeping_failure_is_logged_and_later_rounds_still_run(registry, caplog):
    broken = wait_for_the_end(wait_for_status(start(registry, max_steps=1), "done"))
    broken.load_points()
    broken.last_viewed_at = None  # what no round can work with
    rounds, schedule = [], registry.scheduler.schedule

    def fail():
        schedule()
        if threading.current_thread().name != "housekeeping":
            return  # the thread that reads the worker's messages schedules, too, when it exits
        rounds.append(1)
        if len(rounds) <= 2:
            raise RuntimeError("a defect of the supervisor")

    registry.scheduler.schedule = fail
    wait_for(lambda: len(rounds) >= 3, 60, "a third round after two that failed")
    assert "a defect of the supervisor" in caplog.text
    assert "supervise" in caplog.text
    other = start(registry, max_steps=1)
    wait_for_status(other, "done")


# What invented owners and stale clocks may not do


def test_invented_owners_and_turns_are_forgotten(registry, monkeypatch):
    monkeypatch.setattr(registry_module, "MAX_TRACKED_OWNERS", 5)
    monkeypatch.setattr(scheduler, "MAX_TRACKED_TURNS", 2)
    for number in range(20):
        registry.summaries(f"invented {number}")
    registry.summaries("ada")
    assert len(registry.owner_last_seen) == 5
    assert owner_id("ada") in registry.owner_last_seen
    for owner in ("ada", "bob", "eve"):
        wait_for_the_end(wait_for_status(start(registry, owner, max_steps=1), "done"))
    assert list(registry.scheduler._last_served) == [owner_id("bob"), owner_id("eve")]


def test_deleted_run_stays_restorable_if_wall_clock_jumps(registry, monkeypatch):
    run = wait_for_the_end(wait_for_status(start(registry, max_steps=1), "done"))
    registry.delete(run)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 10 * UNDO_TTL_S)
    registry.supervisor.supervise(run)
    assert registry.find(run.id, "ada") is run
    registry.restore(run)
    assert run.deleted_at is None


def test_no_more_runs_are_adopted_at_once_than_an_owner_may_have(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(registry_module, "MAX_RUNS_PER_OWNER", 2)
    registry, folders = serve(slots=1), [tmp_path / f"sent {number}" for number in range(4)]
    trainer = Trainer(RunConfig.from_flat(SMALL | {"max_steps": 1, "num_threads": 1}))
    for folder in folders:
        save_checkpoint(folder, trainer, None)
    together = threading.Barrier(len(folders))
    read = registry_module.read_manifest

    def read_together(folder):
        together.wait(60)
        return read(folder)

    moving = threading.Event()
    move = storage_folder.shutil.move

    def move_slowly(*arguments):
        moving.wait(0.5)  # long enough for the others to count the runs
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
    run = wait_for_the_end(wait_for_status(start(registry, max_steps=2), "done"))
    run.load_weight_steps()
    wait_for(lambda: registry.is_idle(run), description="rest")

    def fail(*_, **__):
        raise RuntimeError("no process")

    run.update_live(snapshot=None)  # so that a snapshot is due
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
    wait_for_the_end(wait_for_status(run, "done"))
    run.update(changes=(*run.changes, SettingChange(1, "learning_rate", 2e-3)))
    response = registry.poll(run, 0, -1, 0, changes=version)
    assert len(response["changes"]) == len(run.changes)
    assert response["changes_version"] != version


def test_a_manifest_that_has_not_changed_is_read_once(registry, monkeypatch):
    run = wait_for_the_end(wait_for_status(start(registry, max_steps=2), "done"))
    reads = []
    monkeypatch.setattr(
        manifest_module,
        "read_manifest",
        lambda folder: reads.append(folder) or read_manifest(folder),
    )
    for _ in range(3):
        assert newest(run) == 2
    folder = run.checkpoints()[0][0]
    assert reads.count(folder) <= 1
    config = folder / "config.json"
    config.write_bytes(config.read_bytes().replace(b'"step": 2', b'"step": 1'))
    os.utime(config, ns=(1, 1))
    assert newest(run) == 1


def test_a_worker_without_cpu_time_is_not_treated_as_hung(registry, monkeypatch):
    registry.settings.hang_timeout_s = 0.0  # no round of housekeeping judges
    run = slow(registry)
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
    active[0] += 30  # it has waited for a processor since
    assert not silent_for_long()
    assert silent_for_long()  # and now it neither works nor waits


def test_a_second_server_on_the_same_folder_is_warned_about(serve, tmp_path):
    first, second = serve(), serve()
    assert (first.storage.error(), first.storage.lock()) == ("", "")
    assert "another server uses" in second.storage.lock()
    assert str(tmp_path) in second.storage.lock()
    first.storage.unlock()
    assert second.storage.lock() == ""


@pytest.mark.parametrize("result", ["snapshot", "error"])
def test_late_snapshot_does_not_replace_the_last_weights_of_a_run(registry, monkeypatch, result):
    """A short run may end before the snapshot of its first weights is drawn."""
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
