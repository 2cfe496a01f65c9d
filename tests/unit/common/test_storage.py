import json
import os

import pytest

from playground.checkpoints.manifest import read_manifest
from playground.common.storage import BUNDLED_CHECKPOINTS, DEFAULT_ROOT, resolve_storage
from playground.runs.registry import Registry
from tests.support import app_server
from tests.support.app_server import ROOT


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("SPACE_ID", "PLAYGROUND_CHECKPOINTS", "HF_HOME"):
        monkeypatch.setenv(name, "x")  # so that the variable is restored after the test
        monkeypatch.delenv(name)


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """A Space with persistent storage."""
    monkeypatch.setenv("SPACE_ID", "ada/play")
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_the_shipped_checkpoints_are_those_of_the_repository():
    assert set(BUNDLED_CHECKPOINTS) == set(app_server.BUNDLED_CHECKPOINTS)
    assert DEFAULT_ROOT == ROOT / "checkpoints"


def test_local_storage_is_beside_code_even_if_data_folder_exists(tmp_path):
    home = resolve_storage(tmp_path, mounted=lambda path: True)
    assert (home.root, home.note) == (DEFAULT_ROOT, "")
    assert "HF_HOME" not in os.environ


def test_space_storage_holds_runs_downloads_and_shipped_checkpoints(storage):
    home = resolve_storage(storage, mounted=lambda path: path == storage)
    assert (home.root, home.note) == (storage / "checkpoints", "")
    # rows and fetched models go by it
    assert os.environ["PLAYGROUND_CHECKPOINTS"] == str(storage / "checkpoints")
    assert os.environ["HF_HOME"] == str(storage / ".huggingface")
    registry = Registry(home.root)
    assert set(registry.storage.list_checkpoints()) == set(BUNDLED_CHECKPOINTS)
    for name, folder in registry.storage.list_checkpoints().items():
        assert read_manifest(folder) == read_manifest(ROOT / "checkpoints" / name)
    registry.shutdown()


def test_files_in_the_storage_are_unchanged(storage):
    own = storage / "checkpoints" / "reverse"
    own.mkdir(parents=True)
    (own / "config.json").write_text(json.dumps("mine"))
    resolve_storage(storage, mounted=lambda path: True)
    assert [path.name for path in own.iterdir()] == ["config.json"]
    assert (own / "config.json").read_text() == '"mine"'


def test_unmounted_or_read_only_storage_is_not_used(storage, monkeypatch):
    assert resolve_storage(storage).root == DEFAULT_ROOT  # a folder, but no mount
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    home = resolve_storage(storage, mounted=lambda path: True)
    assert home.root == DEFAULT_ROOT
    assert home.note.startswith("This Space has no persistent storage")
    assert "HF_HOME" not in os.environ


@pytest.mark.parametrize(
    ("chosen", "lasts"), [("checkpoints", True), ("runs/of/mine", True), ("../elsewhere", False)]
)
def test_an_owner_chosen_folder_is_used_and_checked(storage, monkeypatch, chosen, lasts):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(storage / chosen))
    home = resolve_storage(storage, mounted=lambda path: True)
    assert home.root == storage / chosen
    assert (home.note == "") is lasts
