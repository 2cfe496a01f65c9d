"""The queue of runs: slots, fair order, limits, memory, and runs without viewers."""

import pytest

from playground.errors import UserError
from playground.models.config_fields import ConfigError
from playground.runs import scheduler
from playground.runs.state import Run
from playground.training.run_config import RunConfig

NO_MEMORY = "this run needs about 9.0 GB and 1.0 GB are free"


def positions(registry, *runs):
    return [registry.scheduler.position(run) for run in runs]


# Slots


def test_runs_above_the_slots_are_queued_and_move_up(create_registry, workers, start):
    registry = create_registry(slots=1)
    first, second, third, fourth = runs = [start(registry) for _ in range(4)]
    assert positions(registry, *runs) == [None, 1, 2, 3]
    assert registry.poll(third, 0, -1, 0)["queue_position"] == 2
    assert [row["queue_position"] for row in registry.summaries("ada")] == [3, 2, 1, None]
    registry.control(third, "stop")
    assert (third.status, *positions(registry, third, fourth)) == ("stopped", None, 2)
    workers.control(registry, first, "stop")
    assert positions(registry, *runs) == [None, None, None, 1]
    workers.control(registry, second, "stop")
    assert [run.has_worker for run in runs] == [False, False, False, True]
    registry.control(third, "resume")
    assert (third.status, *positions(registry, third)) == ("waiting", 1)


def test_paused_queued_run_rejoins_the_queue_at_its_end(create_registry, start):
    registry = create_registry(slots=1)
    first, second, third = (start(registry) for _ in range(3))
    registry.control(second, "pause")
    assert (second.status, *positions(registry, third)) == ("paused", 1)
    for action in ("resume", "step", "save", "resume"):
        registry.control(second, action)
    assert positions(registry, second, third) == [2, 1]
    assert first.has_worker


def test_paused_run_yields_its_slot_and_resumes_afterwards(create_registry, workers, start):
    registry = create_registry(slots=2)
    training, run = start(registry), start(registry)
    workers.train(run, 3)
    workers.control(registry, run, "pause")
    other = start(registry, "bob")
    assert (run.status, run.has_worker, run.checkpoints()[0][1].step) == ("paused", False, 3)
    assert (training.status, other.status) == ("training", "training")
    registry.control(run, "resume")
    assert positions(registry, run) == [1]
    workers.finish(other)
    assert (run.status, run.step) == ("training", 3)


def test_a_run_resumed_while_it_pauses_waits_for_the_next_slot(create_registry, workers, start):
    registry = create_registry(slots=1)
    run = start(registry)
    workers.control(registry, run, "pause")
    other = registry.start(run.config, "bob")  # requests the slot of the paused run
    registry.control(run, "resume")
    workers.deliver()
    assert (run.status, *positions(registry, run)) == ("waiting", 1)
    workers.control(registry, other, "stop")
    assert run.status == "training"


def test_the_paused_run_viewed_least_recently_yields_its_slot(create_registry, workers, start):
    registry = create_registry(slots=2)
    seen, unseen = start(registry), start(registry)
    for run in (seen, unseen):
        workers.control(registry, run, "pause")
    registry.poll(seen, 0, -1, 0)
    start(registry, "bob")
    assert (seen.has_worker, unseen.has_worker) == (True, False)


# Fair order


def test_owners_with_fewer_slots_start_first(create_registry, workers, start):
    registry = create_registry(slots=2)
    running, _ = start(registry), start(registry)
    ada, ada_2, bob, bob_2, eve = (
        start(registry, owner) for owner in ("ada", "ada", "bob", "bob", "eve")
    )
    assert positions(registry, bob, eve, bob_2, ada, ada_2) == [1, 2, 3, 4, 5]
    workers.control(registry, running, "stop")
    assert positions(registry, bob, eve, ada, bob_2, ada_2) == [None, 1, 2, 3, 4]
    workers.control(registry, bob, "stop")
    # bob has no slot either and arrived earlier, but has had a turn
    assert positions(registry, eve, bob_2, ada, ada_2) == [None, 1, 2, 3]


def test_one_user_cannot_fill_the_queue(create_registry, start):
    registry = create_registry(slots=2, slots_per_owner=1)
    for _ in range(1 + 16):
        start(registry)
    with pytest.raises(UserError, match="16 queued runs, which is the maximum"):
        start(registry)
    assert start(registry, "bob").status == "training"


@pytest.mark.timeout(900)  # the simulation of Windows examines every open file
def test_a_class_behind_one_address_starts_and_finishes(
    create_registry, workers, start, client_address
):
    registry = create_registry(slots=1)
    client_address.set("192.0.2.1")
    runs = [start(registry, f"pupil {number}") for number in range(200)]
    for at, pupil in enumerate(runs):
        assert [run for run in runs if run.has_worker] == [pupil]
        assert [registry.scheduler.position(run) for run in runs[at + 1 :]] == [*range(1, 200 - at)]
        workers.finish(pupil)
    assert {run.status for run in runs} == {"done"}


# Memory


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


@pytest.fixture
def lack_memory(monkeypatch):
    """Let large batches lack memory while a condition holds."""

    def lack_memory(condition):
        def reject(config, reserved_bytes=0):
            if config.training.batch_size > 8 and condition():
                raise ConfigError("batch_size", NO_MEMORY)

        monkeypatch.setattr(scheduler, "ensure_memory_available", reject)

    return lack_memory


def test_run_short_of_memory_does_not_block_smaller_runs(
    create_registry, workers, start, lack_memory
):
    registry = create_registry(slots=1)
    running, large, small = start(registry), start(registry, batch_size=16), start(registry)
    is_short = [True]
    lack_memory(lambda: is_short[0])
    workers.control(registry, running, "stop")
    assert small.status == "training"
    workers.housekeep(registry)
    # it waits for a slot, not for memory
    assert (large.status, large.message, *positions(registry, large)) == ("waiting", "", 1)
    registry.settings.slots = registry.settings.slots_per_owner = 2
    workers.housekeep(registry)
    assert large.message == f"waiting for memory: {NO_MEMORY}"
    is_short[0] = False
    workers.housekeep(registry)
    assert (large.message, large.status) == ("", "training")


def test_a_paused_run_releases_its_memory_for_one_that_lacks_it(
    registry, workers, start, lack_memory
):
    paused = start(registry)
    workers.control(registry, paused, "pause")
    lack_memory(lambda: paused.has_worker)
    large, small = start(registry, batch_size=16), start(registry)
    assert (large.status, small.status, paused.has_worker) == ("training", "training", False)


# Without viewers


def test_an_unwatched_waiting_run_leaves_the_queue_with_a_reason(
    create_registry, workers, start, clock
):
    registry = create_registry(slots=1, idle_timeout_s=600)
    running, unviewed, viewed = start(registry), start(registry, "bob"), start(registry)
    clock.advance(601)
    registry.summaries("ada")
    workers.housekeep(registry)
    message = "removed from the queue after 600 s without viewers; press Resume to queue it again"
    stored = Run.read(unviewed.folder)
    assert (stored.status, stored.message) == ("stopped", message)
    assert positions(registry, unviewed, viewed) == [None, 1]
    assert running.status == "training"
    registry.control(unviewed, "resume")
    assert (unviewed.status, unviewed.message, *positions(registry, viewed)) == ("waiting", "", 2)
