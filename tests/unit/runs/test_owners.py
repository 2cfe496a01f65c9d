"""Whose run it is: ids, share links, names, and imported checkpoints."""

import errno
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from playground.checkpoints.manifest import Manifest
from playground.errors import UserError
from playground.runs import registry as registry_module
from playground.runs import state, storage_folder
from playground.runs.owner_keys import OWNER_KEY_PATTERN, machine_owner_key
from playground.runs.record import MAX_NAME_LENGTH
from playground.runs.state import Run
from playground.runs.weight_history import state_steps, weight_steps
from tests.support.fake_workers import SCORES, WEIGHTS
from tests.support.small_runs import tiny_config

# Ids


def test_share_link_finds_its_run_and_no_other_run_of_the_owner(registry, start):
    run, other = start(registry), start(registry)
    assert registry.find_shared(run.share_id) is run
    assert registry.find_shared(other.share_id) is other
    invalid = ("", None, 7, run.id, run.share_id[:-1], run.share_id + "x", "\ud800", {"id": 1})
    for identifier in (*invalid, run.folder.name):
        assert registry.find_shared(identifier) is None
    registry.delete(run)
    assert registry.find_shared(run.share_id) is None
    registry.restore(run)
    assert registry.find_shared(run.share_id) is run


def test_only_its_owner_finds_a_run(registry, start):
    run = start(registry)
    assert registry.find(run.id, "ada") is run
    for owner in ("", "bob", "ADA", " ada", run.owner):
        assert registry.find(run.id, owner) is None
        assert registry.list_for_owner(owner) == []
    for run_id in (run.share_id, run.folder.name, None, 3, []):
        assert registry.find(run_id, "ada") is None


def test_ids_are_unpredictable_and_unrelated(registry, start):
    runs = [start(registry) for _ in range(8)]
    texts = [text for run in runs for text in (run.id, run.share_id)]
    assert len({*texts}) == len(texts)
    assert min(map(len, texts)) >= 22  # 128 bits
    assert all(text not in run.folder.name for text in texts for run in runs)


# Names


def test_names_are_unique_per_owner_and_limited_in_length(registry, start):
    first, second, third = (start(registry) for _ in range(3))
    assert (second.name, third.name) == (f"{first.name} (2)", f"{first.name} (3)")
    assert start(registry, "bob").name == first.name
    long = [start(registry, "eve", name="x" * 300) for _ in range(3)]
    long.append(registry.branch(long[0], 0, "eve"))
    assert len({run.name for run in long}) == 4
    assert max(len(run.name) for run in long) <= MAX_NAME_LENGTH


def test_a_name_survives_a_restart(registry, create_registry, start):
    run = start(registry)
    registry.update_metadata(run, name="  My\n best run ")
    for name in ("", " \n ", "x" * (MAX_NAME_LENGTH + 1), "\0"):
        with pytest.raises(UserError, match="use 1 to 80 printable characters"):
            registry.update_metadata(run, name=name)
    restored = create_registry().find(run.id, "ada")
    assert restored.name == "My best run"


def test_a_folder_in_use_refuses_a_second_server_and_is_free_afterwards(tmp_path):
    with (
        storage_folder.locked_storage(tmp_path),
        pytest.raises(UserError, match=r"another server or command uses .*: end it first, or"),
        storage_folder.locked_storage(tmp_path),
    ):
        pytest.fail("two servers use one folder")
    with storage_folder.locked_storage(tmp_path):
        assert storage_folder.StorageFolder(tmp_path).error() == ""


def test_folders_without_a_record_are_removed_unless_they_have_data(create_registry, tmp_path):
    empty = tmp_path / "runs" / "20260101-120000-reverse-0123ab" / "checkpoints"
    with_data = tmp_path / "runs" / "20260101-120000-reverse-0123ac" / "history"
    others = tmp_path / "runs" / "experiments"
    for folder in (empty, with_data, others):
        folder.mkdir(parents=True)
    (empty.parent / ".lock").touch()
    (with_data / "1.safetensors").touch()
    create_registry()
    assert not empty.parent.exists()
    assert with_data.exists()
    assert others.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda registry, run: registry.update_metadata(run, name="new"),
        lambda registry, run: registry.delete(run),
        lambda registry, run: registry.restore(run),
        lambda registry, run: registry.change_setting(run, "max_steps", 99),
        lambda registry, run: registry.rerun(run, "bob"),
    ],
    ids=["metadata", "delete", "restore", "setting", "start"],
)
def test_nothing_is_acknowledged_that_the_disk_refuses(registry, start, monkeypatch, change):
    def refuse(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = start(registry)
    registry.control(run, "stop")
    run.worker.deliver_all()
    before, folders = run.record, sorted(registry.storage.runs.iterdir())
    monkeypatch.setattr(state, "write_file", refuse)
    monkeypatch.setattr(registry_module, "write_dir", refuse)
    with pytest.raises(UserError, match="could not be stored: No space left on device; free disk"):
        change(registry, run)
    assert run.record == before == Run.read(run.folder).record
    assert registry.list_for_owner("bob") == []
    assert sorted(registry.storage.runs.iterdir()) == folders


def test_a_deletion_is_stored_on_a_full_disk(registry, workers, start, monkeypatch):
    run = workers.train(start(registry), 40)
    workers.control(registry, run, "stop")
    write = state.write_file

    def write_if_thinned(*arguments, **options):
        if state_steps(run.folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(*arguments, **options)

    monkeypatch.setattr(state, "write_file", write_if_thinned)
    registry.delete(run)
    assert Run.read(run.folder).is_deleted


# Imported checkpoints


@pytest.fixture
def create_checkpoint(tmp_path):
    """Create a checkpoint of step 12, without tensors."""

    def create(name="upload", files=("model.safetensors", "training.safetensors"), **fields):
        folder = tmp_path / name
        folder.mkdir()
        manifest = Manifest(tiny_config(**fields), 12, 3.0, "cpu", SCORES)
        (folder / "config.json").write_text(manifest.to_json())
        for file in files:
            (folder / file).write_bytes(WEIGHTS)
        return folder

    return create


def test_an_imported_checkpoint_continues_from_its_step(
    registry, create_checkpoint, workers, tmp_path
):
    run = registry.import_checkpoint(create_checkpoint(), "ada", "Uploaded")
    assert not (tmp_path / "upload").exists()
    assert (run.name, run.status, run.step, run.best) == ("Uploaded", "stopped", 12, 0.5)
    assert weight_steps(run.folder) == [12]
    assert run.imported is Run.read(run.folder).imported is True
    workers.control(registry, run, "resume")
    workers.train(run)
    assert registry.poll(run, 0, -1, 0)["points"]["steps"] == [13]
    assert run.imported is False  # trained here


def test_an_imported_checkpoint_at_its_last_step_is_done(registry, create_checkpoint):
    run = registry.import_checkpoint(create_checkpoint(max_steps=12), "ada", "")
    assert (run.status, run.name) == ("done", "adam, width 8, layers 1, reverse 1–5")


def test_weights_alone_can_not_be_trained(registry, create_checkpoint):
    run = registry.import_checkpoint(create_checkpoint(files=["model.safetensors"]), "ada", "")
    actions = [
        lambda: registry.change_setting(run, "max_steps", 100),
        lambda: registry.control(run, "resume"),
        lambda: registry.control(run, "step"),
    ]
    for act in actions:
        with pytest.raises(UserError, match="holds weights only"):
            act()
    assert (run.has_worker, run.status, run.changes) == (False, "done", ())


def test_a_deleted_run_does_not_count(registry, create_checkpoint, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "runs.per-owner=1")
    first = registry.import_checkpoint(create_checkpoint("first"), "ada", "")
    with pytest.raises(UserError, match="you have 1 runs, which is the maximum; delete some first"):
        registry.import_checkpoint(create_checkpoint("second"), "ada", "")
    registry.delete(first)
    assert registry.import_checkpoint(create_checkpoint("third"), "ada", "")


def test_invented_owners_of_one_address_have_no_more_runs(
    registry, create_checkpoint, monkeypatch, client_address
):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "runs.per-address=2")
    client_address.set("192.0.2.1")
    for number in range(2):
        registry.import_checkpoint(create_checkpoint(str(number)), f"invented {number}", "")
    with pytest.raises(UserError, match="your address has 2 runs"):
        registry.import_checkpoint(create_checkpoint("late"), "invented too", "")
    client_address.set("192.0.2.2")
    assert registry.import_checkpoint(create_checkpoint("last"), "ada", "")


def test_no_more_runs_are_adopted_at_once_than_an_owner_may_have(
    registry, create_checkpoint, monkeypatch
):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "runs.per-owner=2")
    folders = [create_checkpoint(f"sent {number}") for number in range(4)]
    barrier, move = threading.Barrier(len(folders)), shutil.move

    def move_late(*arguments):
        time.sleep(0.2)  # without a lock, the others count the runs meanwhile
        return move(*arguments)

    monkeypatch.setattr(storage_folder.shutil, "move", move_late)

    def adopt(folder):
        barrier.wait(60)
        try:
            return registry.import_checkpoint(folder, "ada", "sent")
        except UserError:
            return None

    with ThreadPoolExecutor(len(folders)) as threads:
        adopted = [run for run in threads.map(adopt, folders) if run]
    assert len(adopted) == len(registry.list_for_owner("ada")) == 2


# The key of the single owner of a local instance


@pytest.mark.parametrize("content", [b"", b" \n", b"x" * 31, b"\xff" * 32, None])
def test_a_damaged_owner_key_is_replaced_and_never_missing(tmp_path, caplog, content):
    path = tmp_path / "runs" / ".owner"
    if content is None:
        path.mkdir(parents=True)
    else:
        path.parent.mkdir()
        path.write_bytes(content)
    key, again = machine_owner_key(tmp_path), machine_owner_key(tmp_path)
    assert OWNER_KEY_PATTERN.fullmatch(key)
    assert ".owner" in caplog.text
    assert path.is_dir() or (again == key and path.stat().st_mode & 0o077 == 0)
    assert [each.name for each in path.parent.iterdir()] == [".owner"]


def test_a_stored_owner_key_may_end_with_a_line_break(tmp_path, caplog):
    key = machine_owner_key(tmp_path)
    (tmp_path / "runs" / ".owner").write_text(f" {key}\n")
    assert machine_owner_key(tmp_path) == key
    assert caplog.text == ""
