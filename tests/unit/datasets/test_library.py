"""The datasets of the users of a shared instance: quotas, and what is removed for new ones."""

import os
import shutil
import time
from contextlib import nullcontext
from unittest.mock import Mock

import pytest

from playground.checkpoints.checkpoint import save_checkpoint
from playground.common.storage import directory_size
from playground.datasets.sources import read_text
from playground.datasets.storage import load_pairs, store, to_files
from playground.errors import UserError
from playground.runs import dataset_library
from playground.runs.dataset_library import MB, MIN_RETENTION_S, DatasetLibrary
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.runs.storage_folder import describe_damage
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.small_runs import TINY_SETTINGS


class DatasetStore:
    """Store datasets of several users of a shared instance."""

    def __init__(self, root):
        self.root = root
        self.start()

    def start(self, single_owner=""):
        self.registry = Registry(self.root)
        self.registry.single_owner = single_owner
        self.library = DatasetLibrary(self.registry)

    def delete_run(self, run):
        """Delete a run for good."""
        self.registry.delete(run)
        self.registry.storage_quota.evict_if_idle(run, self.registry.storage_quota.delete_run)
        assert not run.folder.exists()

    def upload(self, symbol, owner, times=1):
        """Upload a dataset with a token of its own; return its SHA-256."""
        lines = (f"{n:04d}{symbol}\t{symbol}{n:04d}\n" for n in range(300 * times))
        dataset = read_text("".join(lines))
        folder = self.root / "rows" / f".{symbol}.tmp"
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        for name, data in to_files(dataset).items():
            (folder / "rows" / name).write_bytes(data)
        self.library.set_pending(owner, dataset.sha256, folder)
        return dataset.sha256

    def use(self, symbol, owner, since=0.0):
        """Store a dataset as if its last use was `since` seconds ago."""
        sha256 = self.upload(symbol, owner)
        self.library.store(owner, sha256)
        self.set_last_use(sha256, since)
        return sha256

    def set_last_use(self, sha256, since):
        for path in [self.root / "rows" / sha256, *self.root.glob(f"rows/.owners/*/{sha256}")]:
            os.utime(path, (time.time() - since,) * 2)

    def start_run(self, sha256, owner):
        """Start a run on a dataset."""
        folder = self.root / ".made"
        settings = TINY_SETTINGS | {"max_steps": 6} | load_pairs(sha256).task_settings()
        save_checkpoint(folder, Trainer(RunConfig.from_flat(settings)), [])
        return self.registry.import_checkpoint(folder, owner, "my run")

    def set_free_space(self, n_datasets):
        """Set the quota so that this many more datasets fit, possibly a fraction."""
        sizes = [directory_size(self.root / "rows" / sha256) for sha256 in self.stored_datasets()]
        self.library.all_mb = (sum(sizes) + n_datasets * max(sizes)) / MB

    def stored_datasets(self):
        return {path.name for path in (self.root / "rows").glob("[!.]*")}

    def listed(self, owner):
        return [row["sha256"] for row in self.library.list_datasets(owner)]


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    datasets = DatasetStore(tmp_path)
    yield datasets
    datasets.registry.shutdown()


def test_unused_datasets_are_evicted_oldest_first(datasets):
    ada, bob = new_owner_key(), new_owner_key()
    trained = datasets.use("a", ada, since=9 * MIN_RETENTION_S)
    datasets.start_run(trained, ada)
    oldest, older = (
        datasets.use("b", ada, since=3 * MIN_RETENTION_S),
        datasets.use("c", ada, since=2 * MIN_RETENTION_S),
    )
    shared = datasets.use("d", ada, since=8 * MIN_RETENTION_S)
    datasets.library.store(bob, datasets.upload("d", bob))
    recent = datasets.use("e", ada, since=MIN_RETENTION_S / 2)
    datasets.set_free_space(0.5)
    new = datasets.use("f", bob)
    assert datasets.stored_datasets() == {trained, older, shared, recent, new}
    assert oldest not in datasets.listed(ada)
    newer = datasets.use("g", bob)
    assert datasets.stored_datasets() == {trained, shared, recent, new, newer}
    with pytest.raises(UserError, match="has no space for more datasets"):
        datasets.use("h", bob)
    assert datasets.stored_datasets() == {trained, shared, recent, new, newer}


def test_a_dataset_above_the_evictable_space_is_rejected(datasets):
    ada, bob = new_owner_key(), new_owner_key()
    old, recent = datasets.use("a", ada, since=2 * MIN_RETENTION_S), datasets.use("b", ada)
    datasets.set_free_space(0.5)
    sha256 = datasets.upload("c", bob, times=2)
    with pytest.raises(UserError, match="has no space for more datasets; try again later"):
        datasets.library.store(bob, sha256)
    assert datasets.stored_datasets() == set(datasets.listed(ada)) == {old, recent}
    assert datasets.listed(bob) == []


def test_every_dataset_is_listed_and_can_be_removed(datasets, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "datasets.per-owner=1")
    datasets.registry.single_owner = ada = new_owner_key()
    stored = {datasets.use(symbol, ada) for symbol in "abc"}
    assert {*datasets.listed(ada)} == stored
    for sha256 in stored:
        datasets.library.remove(ada, sha256)
    assert datasets.stored_datasets() == set()


def test_a_clock_that_is_set_back_neither_locks_nor_reorders_datasets(datasets):
    ada, bob = new_owner_key(), new_owner_key()
    times = (9, 8, 10)  # hours in the future
    first, oldest, last = (
        datasets.use(symbol, ada, since=-3600 * hours)
        for symbol, hours in zip("abc", times, strict=True)
    )
    datasets.set_free_space(0.5)
    new = datasets.use("d", bob)
    assert datasets.stored_datasets() == {first, last, new}
    assert datasets.listed(ada) == [last, first]
    assert oldest not in datasets.stored_datasets()


def test_a_removed_dataset_counts_for_the_address_whose_run_uses_it(datasets, client_address):
    client_address.set("192.0.2.9")
    owners = [new_owner_key() for _ in range(3)]
    for symbol, owner in zip("ab", owners, strict=False):
        sha256 = datasets.use(symbol, owner)
        datasets.start_run(sha256, owner)
        datasets.library.remove(owner, sha256)
    datasets.set_free_space(2)  # four in all, of which the address has its two
    sha256 = datasets.upload("c", owners[2])
    with pytest.raises(UserError, match="datasets from your address take all"):
        datasets.library.store(owners[2], sha256)


def test_a_removed_dataset_is_deleted_with_the_last_run_that_uses_it(datasets):
    ada, bob = new_owner_key(), new_owner_key()
    added_by_command, removed = datasets.use("a", ada), datasets.use("b", ada)
    for marker in datasets.root.glob(f"rows/.owners/*/{added_by_command}"):
        marker.unlink()
    runs = [datasets.start_run(removed, ada) for _ in range(2)]
    datasets.library.remove(ada, removed)
    datasets.delete_run(runs[0])
    assert datasets.stored_datasets() == {added_by_command, removed}
    assert datasets.listed(ada) == []
    datasets.delete_run(runs[1])
    assert datasets.stored_datasets() == {added_by_command}
    # one that a user stores again stays
    stored_again = datasets.use("c", ada)
    run = datasets.start_run(stored_again, ada)
    datasets.library.remove(ada, stored_again)
    datasets.library.store(bob, datasets.upload("c", bob))
    datasets.delete_run(run)
    assert datasets.listed(bob) == [stored_again]
    datasets.library.remove(bob, stored_again)
    assert datasets.stored_datasets() == {added_by_command}
    assert not list(datasets.root.glob("rows/.owners/*/*"))


def test_removed_datasets_without_runs_are_deleted_at_the_next_start(datasets):
    ada = new_owner_key()
    added_by_command, used, unused = (datasets.use(symbol, ada) for symbol in "abc")
    for marker in datasets.root.glob(f"rows/.owners/*/{added_by_command}"):
        marker.unlink()
    datasets.start_run(used, ada)
    run = datasets.start_run(unused, ada)
    for sha256 in (used, unused):
        datasets.library.remove(ada, sha256)
    datasets.registry.shutdown()
    shutil.rmtree(run.folder)  # the server was killed before it deleted the dataset
    for owner, expected in [
        (ada, {added_by_command, used, unused}),  # the owner of a local instance keeps all
        ("", {added_by_command, used}),
    ]:
        datasets.start(owner)
        assert datasets.stored_datasets() == expected
        datasets.registry.shutdown()


def test_a_user_cannot_delete_a_dataset_that_a_command_stored(datasets):
    ada = new_owner_key()
    sha256 = datasets.use("a", ada)
    store(load_pairs(sha256))  # as the command does
    datasets.library.remove(ada, sha256)
    assert datasets.stored_datasets() == {sha256}


def test_a_damaged_run_keeps_the_dataset_that_it_may_use(datasets):
    ada = new_owner_key()
    sha256 = datasets.use("a", ada)
    run = datasets.start_run(sha256, ada)
    datasets.library.remove(ada, sha256)
    datasets.registry.shutdown()
    (run.folder / "run.json").write_text("{}")
    (datasets.root / "rows" / ".owners" / "removed" / "x").mkdir()
    datasets.start("")
    assert datasets.stored_datasets() == {sha256}


def test_the_address_with_most_pending_uploads_loses_its_oldest(
    datasets, client_address, monkeypatch
):
    monkeypatch.setattr(dataset_library, "MAX_UNSAVED_BYTES", 400)
    monkeypatch.setattr(dataset_library, "MIN_UNSAVED_BYTES", 100)
    monkeypatch.setattr(dataset_library, "directory_size", lambda folder: 0)
    ada, bob, *invented = (new_owner_key() for _ in range(9))
    client_address.set("192.0.2.1")
    uploads = {ada: datasets.upload("a", ada)}
    client_address.set("192.0.2.9")
    uploads |= {
        owner: datasets.upload(symbol, owner)
        for symbol, owner in zip("cdefghi", invented, strict=True)
    }
    client_address.set("192.0.2.2")
    uploads[bob] = datasets.upload("b", bob)
    remaining = {ada, bob, *invented[-2:]}
    for owner, sha256 in uploads.items():
        with (
            nullcontext()
            if owner in remaining
            else pytest.raises(UserError, match="upload it again")
        ):
            datasets.library.store(owner, sha256)
    assert len(list(datasets.root.glob("rows/.?.tmp"))) == len(remaining)


def test_an_unreadable_dataset_names_no_folder_of_the_machine(datasets, monkeypatch):
    ada = new_owner_key()
    sha256 = datasets.use("a", ada)
    path = datasets.root / "rows" / sha256 / "rows.json"
    error = PermissionError(13, "Permission denied", str(path))
    monkeypatch.setattr(dataset_library, "load_metadata", Mock(side_effect=error))
    reasons = [
        datasets.library.list_datasets(ada)[0]["damaged"],
        describe_damage(path, path, error).reason,
    ]
    assert reasons == ["rows.json could not be read or written: Permission denied; try again"] * 2
