"""The storage quota: what is evicted, in which order, and whose."""

import os
import shutil
import time
from dataclasses import replace

import pytest

from playground.common.storage import directory_size
from playground.errors import UserError
from playground.runs.limits import Limits, estimated_run_bytes
from playground.runs.record import HISTORY_THINNED, WEIGHTS_EVICTED, owner_id
from playground.runs.storage_quota import OWNER_ACTIVE_TTL_S
from playground.runs.weight_history import state_steps, weight_steps
from tests.support.small_runs import tiny_config


def set_last_use(run, hours):
    """Set the last use of a run to so many hours ago."""
    last_use = time.time() - 3600 * hours
    os.utime(run.folder / "run.json", (last_use, last_use))


@pytest.fixture
def limit(registry):
    """Replace limits of the registry, and evict what exceeds them."""

    def limit(**limits):
        registry.settings.limits = replace(Limits(bytes_per_owner=10**9), **limits)
        if registry.settings.limits.bytes_total:
            registry.storage_quota.enforce()

    return limit


@pytest.fixture
def free(registry, limit):
    """Free some bytes of those that all runs use; return what is evicted, by name."""

    def free(n_bytes):
        total = sum(map(registry.storage_quota.size_of_run, registry.all_runs()))
        limit(bytes_total=total - n_bytes)
        return {run.name: run.evicted for run in registry.all_runs() if run.evicted}

    return free


@pytest.fixture
def create_finished(registry, workers, start, clock):
    """Create a finished run that was last used some hours ago, and whose owner is absent."""

    def create(name, owner, hours):
        run = start(registry, owner, name=name)
        workers.finish(run)
        set_last_use(run, hours)
        clock.advance(OWNER_ACTIVE_TTL_S + 1)
        return run

    return create


@pytest.fixture
def create_sized(registry, clock):
    """Create an untrained run of a given size that was last used some hours ago."""

    def create(owner, n_bytes, hours):
        folder = registry.storage.new_run_folder(tiny_config())
        run = registry._new(tiny_config(), owner, "", folder)
        (run.folder / "checkpoints").mkdir(parents=True)
        (run.folder / "checkpoints" / "weights").write_bytes(bytes(n_bytes))
        run.update(status="done")
        run.write()
        registry._add(run)
        set_last_use(run, hours)
        clock.advance(OWNER_ACTIVE_TTL_S + 1)
        return run

    return create


def test_a_start_thins_the_owners_histories_and_deletes_no_model(
    registry, create_finished, start, limit
):
    newer, older = (create_finished(f"run {hours}", "ada", hours) for hours in (3, 9))
    other = create_finished("other", "bob", 99)
    used = sum(registry.storage_quota.size_of_run(run) for run in (newer, older))
    limit(bytes_per_owner=used + estimated_run_bytes(newer.config) - 1000)
    third = start(registry)
    assert [run.evicted for run in (newer, older, other)] == ["", HISTORY_THINNED, ""]
    assert weight_steps(older.folder) == [0, 1, 2, 4, 8, 16, 32, 60]
    assert state_steps(older.folder) == []
    message = registry.storage_quota.eviction_message("ada")
    assert message.startswith("Storage limit reached: this server stores ")
    assert message.endswith(". Some earlier steps of “run 9” were deleted.")
    assert registry.storage_quota.eviction_message("bob") == ""
    limit(bytes_per_owner=60_000)
    with pytest.raises(UserError, match=r"your runs use .* per user: delete “[^”]+” \(.* or “"):
        start(registry)
    assert newer.checkpoints()
    assert older.checkpoints()
    limit(bytes_per_owner=2 * registry.storage_quota.size_of_run(third) + 1000)
    for run in (newer, older):
        registry.delete(run)  # the space is free immediately, not after the ten minutes of Undo
    start(registry)


def test_the_oldest_idle_run_is_removed_first_and_active_runs_stay(
    registry, create_finished, start, workers, free, limit
):
    runs = {
        name: create_finished(name, name, hours)
        for name, hours in (("old", 9), ("hidden", 2), ("new", 5))
    }
    runs["hidden"].store("the change", hidden=True)
    set_last_use(runs["hidden"], 2)
    active = workers.train(start(registry, "zoe"), 30)
    thinned = dict.fromkeys(runs, HISTORY_THINNED)
    assert free(1000) == {"old": HISTORY_THINNED}
    assert free(registry.storage_quota.size_of_run(runs["new"]) + 1000) == thinned
    assert free(1000) == thinned | {"hidden": WEIGHTS_EVICTED}
    assert free(1000) == thinned | {"hidden": WEIGHTS_EVICTED, "old": WEIGHTS_EVICTED}
    old = runs["old"]
    response = registry.poll(old, 0, -1, 0)
    assert "its weights were deleted because the storage limit was reached" in response["message"]
    assert response["points"]["steps"][-1] == 60  # the curves are kept
    assert "error" in registry.snapshots.request("predict", old, "1 2 3").result(0)
    assert "The weights of “old” were deleted." in registry.storage_quota.eviction_message("old")
    with pytest.raises(UserError, match="its weights were deleted"):
        registry.control(old, "resume")
    limit(bytes_total=1)
    assert registry.find(old.id, "old") is None  # its record is deleted last
    assert (active.status, active.evicted, bool(weight_steps(active.folder))) == (
        "training",
        "",
        True,
    )
    with pytest.raises(UserError, match="in total, and all of it is in use; try again later"):
        start(registry, "yan")


def test_the_excess_of_one_user_affects_no_other(registry, create_finished, limit):
    modest = create_finished("modest", "bob", 99)
    greedy = [create_finished(f"greedy {hours}", "eve", hours) for hours in (3, 2, 1)]
    size = directory_size(modest.folder)
    limit(bytes_per_owner=int(1.2 * size), bytes_total=3 * size)
    assert (modest.evicted, bool(greedy[0].evicted)) == ("", True)
    assert sum(directory_size(run.folder) for run in registry.all_runs()) <= 3 * size


def test_absent_owners_uploads_are_evicted_before_trained_weights(
    registry, create_finished, free, clock
):
    runs = {
        name: create_finished(name, name, hours)
        for name, hours in (("trained", 9), ("sent", 1), ("near", 99))
    }
    for name in ("sent", "near"):
        runs[name].update(imported=True)
        shutil.rmtree(runs[name].folder / "history")
    registry.summaries("near")  # this owner is present
    assert free(1000) == {"trained": HISTORY_THINNED}
    assert free(1000) == {"trained": HISTORY_THINNED, "sent": WEIGHTS_EVICTED}
    assert free(1000) == {"trained": WEIGHTS_EVICTED, "sent": WEIGHTS_EVICTED}
    clock.advance(OWNER_ACTIVE_TTL_S + 1)
    assert free(1000)["near"] == WEIGHTS_EVICTED


def test_a_queued_branch_keeps_its_origin(registry, create_finished, limit):
    parent = create_finished("parent", "ada", 9)
    registry.settings.slots = 0
    assert registry.branch(parent, 30, "ada").status == "waiting"
    limit(bytes_total=1)
    assert parent.evicted == ""
    assert parent.checkpoints()


def test_saving_a_checkpoint_and_an_upload_need_space_too(
    registry, workers, start, limit, tmp_path
):
    run = workers.train(start(registry))
    workers.control(registry, run, "save")
    sent = shutil.copytree(run.checkpoints()[0][0], tmp_path / "sent")
    (sent / "model.safetensors").write_bytes(bytes(30_000))
    limit(bytes_per_owner=registry.storage_quota.size_of_run(run) + 20_000)
    with pytest.raises(UserError, match="delete “"):
        registry.import_checkpoint(sent, "ada", "sent")
    assert (sent / "config.json").is_file()
    registry.import_checkpoint(sent, "bob", "sent")
    limit(bytes_per_owner=registry.storage_quota.size_of_run(run) + 1000)
    with pytest.raises(UserError, match="delete “"):
        registry.control(run, "save")


# Client addresses


def test_runs_of_one_address_evict_its_own_first(registry, create_sized, limit, client_address):
    client_address.set("192.0.2.1")
    small = create_sized("ada", 100_000, 99)
    client_address.set("192.0.2.9")
    bulk = [create_sized(f"generated {n}", 200_000, 9 - n) for n in range(3)]
    limit(bytes_per_owner=250_000, bytes_total=1_000_000)
    # one address may use more than half while no other needs the space
    registry.storage_quota.ensure_available(
        owner_id("generated 3"), registry.client_address(), 200_000
    )
    assert [run.evicted for run in (small, *bulk)] == [""] * 4
    bulk.append(create_sized("generated 3", 200_000, 1))
    registry.storage_quota.ensure_available(
        owner_id("generated 4"), registry.client_address(), 200_000
    )
    assert [run.evicted for run in (small, *bulk)] == ["", WEIGHTS_EVICTED, "", "", ""]
    client_address.set("192.0.2.1")
    registry.storage_quota.ensure_available(owner_id("bob"), registry.client_address(), 230_000)
    limit(bytes_per_owner=250_000, bytes_total=800_000)
    assert small.evicted == ""


# Clocks


def test_a_clock_that_is_set_back_makes_no_run_the_oldest(
    registry, create_registry, create_finished
):
    for hours in (-7, -8, -9):  # in the future, as of a clock that has been set back since
        create_finished(f"run {hours}", "ada", hours)
    registry = create_registry()
    runs = registry.list_for_owner("ada")
    registry.update_metadata(runs[0], name="renamed, so it was used last")
    assert registry.storage_quota._least_recently_used(runs) == [runs[1], runs[2], runs[0]]
