"""200 kinds of damage to each kind of record: the rest is listed, and the damaged one is named."""

import json
import shutil

import pytest

from playground.checkpoints.checkpoint import load_model
from playground.checkpoints.manifest import CheckpointError
from playground.datasets.pairs import DatasetError
from playground.datasets.sources import read_text
from playground.datasets.storage import load_pairs, to_files
from playground.experiments.service import ExperimentService
from playground.runs.dataset_library import DatasetLibrary
from playground.runs.owner_keys import machine_owner_key, new_owner_key
from playground.runs.record import owner_id
from playground.server.app import build_handlers
from tests.support.app_server import AppServer
from tests.support.coroutines import run_in_thread
from tests.support.damage import damage

SEEDS = range(200)
OWNER = new_owner_key()


@pytest.fixture
def root(registries, trained_checkpoint, tmp_path, monkeypatch):
    """A folder with a shared checkpoint, and a run and an experiment of an owner."""
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    shutil.copytree(trained_checkpoint, tmp_path / "good")
    registry = registries()
    registry.import_checkpoint(shutil.copytree(trained_checkpoint, tmp_path / ".sent"), OWNER, "a")
    service = ExperimentService(registry)
    service.runner.stop()
    service.start({"name": "e", "grid": {"d_model": [8, 16]}}, OWNER)
    return tmp_path


@pytest.fixture
def restart(root, registries, monkeypatch):
    """Start a server on the folder; return its registry and a function that sends requests."""
    services = []

    def start(single_owner=OWNER):
        registry = registries(root)
        registry.single_owner = single_owner
        registry.scheduler.schedule = lambda: None
        services.append(ExperimentService(registry))
        handlers = build_handlers(registry, services[-1], public=False)

        def send(route, owner=OWNER, **fields):
            response = run_in_thread(handlers[route]({"owner": owner, **fields}, None))
            json.dumps(response, allow_nan=False)
            return response

        return registry, send

    yield start
    for service in services:
        service.close()


def copy_run(root, seed):
    """Copy the run of the folder, with its own ids; return the folder of the copy."""
    source = max((root / "runs").glob("2*"))  # copies have an earlier date
    folder = shutil.copytree(source, root / "runs" / f"20200101-000000-copy-{seed:06x}")
    record = json.loads((folder / "run.json").read_text())
    record |= {"id": f"id-{seed}", "share_id": f"share-{seed}", "name": f"run {seed}"}
    (folder / "run.json").write_text(json.dumps(record, indent=1))
    return folder


def assert_named(reason, root, name, caplog):
    """Assert that a message names what is damaged, in one line, without a path."""
    assert reason
    assert str(root) not in reason
    assert "\n" not in reason
    assert not any(word in reason for word in ("Error:", "pydantic", "NoneType", "recursion"))
    assert name in caplog.text


def files_of_a_run(folder):
    return {
        "record": folder / "run.json",
        "metrics": folder / "metrics.jsonl",
        "weights": next((folder / "history").iterdir()),
        "checkpoint": next((folder / "checkpoints").iterdir()) / "config.json",
        "state": next((folder / "checkpoints").iterdir()) / "training.safetensors",
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("file", ["record", "metrics", "weights", "checkpoint", "state"])
def test_damaged_runs_are_named_and_others_listed(root, restart, caplog, file):
    folders = [copy_run(root, seed) for seed in SEEDS]
    for seed, folder in enumerate(folders):
        damage(files_of_a_run(folder)[file], seed)
    registry, send = restart()
    listed = {run.folder.name: run for run in registry.all_runs() if run.owner == owner_id(OWNER)}
    assert len(send("runs/list")["runs"]) == len(listed) >= 1
    damaged = {row["name"]: row for row in send("damaged/list")["damaged"]}
    assert len(listed) + len(damaged) == len(folders) + 1
    assert bool(damaged) == (file == "record")
    for row in damaged.values():
        assert row["kind"] == "run"
        assert row["bytes"] >= 0
        assert_named(row["reason"], root, row["name"], caplog)
    used = registry.storage_quota._bytes_by_owner([])
    assert used.total() == sum(row["bytes"] for row in damaged.values())
    for run in listed.values():
        model = f"run:{run.id}"
        assert send("runs/poll", subject=model)["status"] != "not-found"
        details = send("runs/details", subject=model)
        assert "error" not in details
        assert len(details["checkpoints"]) + len(details["damaged"]) == 1
        for row in details["damaged"]:
            assert_named(row["reason"], root, "", caplog)
            remove = {"action": "remove", "checkpoint": row["name"], "subject": model}
            assert send("runs/action", **remove) == {}
    for name in damaged:
        assert send("damaged/remove", new_owner_key(), kind="run", name=name)["error"]
        assert send("damaged/remove", kind="run", name=name) == {}
        assert not (root / "runs" / name).exists()
    assert send("damaged/list") == {"damaged": []}


def test_an_owner_of_a_shared_server_gets_the_own_damaged_records_only(root, restart):
    for seed, text in enumerate(("[", '{"version": 9}')):
        (copy_run(root, seed) / "run.json").write_text(text)
    own = copy_run(root, 2)
    content = json.loads((own / "run.json").read_text())
    (own / "run.json").write_text(json.dumps(content | {"step": "six"}))
    registry, send = restart(single_owner="")
    assert len(registry.damaged) == 3
    damaged = send("damaged/list")["damaged"]
    assert [row["name"] for row in damaged] == [own.name]
    assert "step is 'six'; give a whole number from 0" in damaged[0]["reason"]
    assert send("damaged/list", new_owner_key()) == {"damaged": []}
    assert send("damaged/remove", kind="run", name="20200101-000000-copy-000000")["error"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors", "metrics.jsonl", "replay.json"]
)
def test_damaged_checkpoints_are_named_and_others_listed(root, restart, caplog, file):
    (root / "good/replay.json").write_text(
        '{"frames": [{"step": 0, "attention": {}, "samples": []}]}'
    )
    for seed in SEEDS:
        folder = shutil.copytree(root / "good", root / f"copy-{seed}")
        damage(folder / file, seed)
    _, send = restart()
    listed = {row["name"] for row in send("runs/list")["checkpoints"]}
    damaged = {row["name"]: row for row in send("damaged/list")["damaged"]}
    missing = {f"copy-{seed}" for seed in SEEDS if not (root / f"copy-{seed}" / file).exists()}
    assert "good" in listed
    assert not listed & set(damaged)
    assert len(listed | set(damaged) | missing) == len(SEEDS) + 1
    for name, row in damaged.items():
        assert_named(row["reason"], root, name, caplog)
    for name in sorted(listed)[:: 1 if file == "model.safetensors" else 4]:  # a poll takes long
        model = f"checkpoint:{name}"
        route = "runs/details" if file == "config.json" else "runs/poll"
        assert str(root) not in str(send(route, subject=model).get("error", ""))
        if file == "model.safetensors":
            try:
                load_model(root / name)
            except CheckpointError as error:
                assert_named(str(error), root, "", caplog)
    for name in damaged:
        assert send("damaged/remove", kind="checkpoint", name=name) == {}
    assert send("damaged/list") == {"damaged": []}
    assert (root / "good").is_dir()


def test_damaged_experiments_are_named_and_others_listed(root, restart, caplog):
    source = next((root / "experiments").glob("*.json"))
    for seed in SEEDS:
        path = source.with_name(f"copy-{seed}.json")
        path.write_text(source.read_text().replace(source.stem, path.stem))
        damage(path, seed)
    _, send = restart()
    listed = {row["id"] for row in send("experiments/poll")["experiments"]}
    damaged = {row["name"]: row for row in send("damaged/list")["damaged"]}
    names = [f"copy-{seed}" for seed in SEEDS]
    missing = {each for each in names if not source.with_name(each + ".json").exists()}
    assert source.stem in listed
    known = listed | {name.removesuffix(".json") for name in damaged} | missing
    assert len(known) >= len(SEEDS)  # a flipped digit makes one that of another owner
    for name, row in damaged.items():
        assert row["kind"] == "experiment"
        assert_named(row["reason"], root, name, caplog)
        assert send("damaged/remove", kind="experiment", name=name) == {}
    for each in listed:
        assert send("experiments/poll", open=each)["open"] is not None
        assert "error" not in send("experiments/csv", experiment=each)
    assert send("damaged/list") == {"damaged": []}


@pytest.mark.parametrize("file", ["rows.json", "rows.safetensors"])
def test_damaged_datasets_are_named_and_can_be_removed(root, restart, monkeypatch, caplog, file):
    registry, _ = restart()
    library = DatasetLibrary(registry)
    monkeypatch.setenv("PLAYGROUND_LIMITS", "datasets.per-owner=1000")
    files = to_files(read_text("".join(f"{a} {b}\t{b}\n" for a in range(30) for b in range(20))))
    names = [f"{seed:064x}" for seed in SEEDS]
    for seed, name in enumerate(names):
        folder = root / "rows" / name
        folder.mkdir(parents=True)
        for each, data in files.items():
            (folder / each).write_bytes(data)
        damage(folder / file, seed)
    rows = library.list_datasets(OWNER)
    assert sorted(row["sha256"] for row in rows) == names
    json.dumps(rows, allow_nan=False)
    for row in rows:
        if reason := row.get("damaged"):
            assert_named(reason, root, "", caplog)
        else:
            assert all(isinstance(token, str) for token in row["vocabulary"])
        with pytest.raises(DatasetError) as caught:  # at least its name is wrong
            load_pairs(row["sha256"])
        assert_named(str(caught.value), root, "", caplog)
        library.remove(OWNER, row["sha256"])
    assert library.list_datasets(OWNER) == []


def test_a_damaged_owner_file_is_no_owner_key(root):
    for seed in SEEDS:
        folder = root / f"machine-{seed}"
        machine_owner_key(folder)
        damage(folder / "runs/.owner", seed)
        assert machine_owner_key(folder) == "" or len(machine_owner_key(folder)) == 32
        shutil.rmtree(folder)


@pytest.mark.timeout(300)
def test_the_app_starts_beside_one_damaged_record_of_each_kind(root, tmp_path_factory):
    nested = "[" * 900 + "]" * 900
    for path in (
        copy_run(root, 1) / "run.json",
        copy_run(root, 2) / "metrics.jsonl",
        root / "nested-checkpoint" / "config.json",
        root / "experiments" / "nested.json",
        root / "rows" / ("0" * 64) / "rows.json",
    ):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(nested)
    (root / "rows" / ("0" * 64) / "rows.safetensors").touch()
    (copy_run(root, 3) / "run.json").write_bytes(b"")
    app = AppServer(tmp_path_factory.mktemp("app"), PLAYGROUND_CHECKPOINTS=str(root))
    try:
        owner = {"owner": machine_owner_key(root)}
        listed = app.request("runs/list", owner)
        assert "good" in {row["name"] for row in listed["checkpoints"]}
        damaged = {
            (row["kind"], row["name"]) for row in app.request("damaged/list", owner)["damaged"]
        }
        assert damaged == {
            ("run", "20200101-000000-copy-000001"),
            ("run", "20200101-000000-copy-000003"),
            ("checkpoint", "nested-checkpoint"),
            ("experiment", "nested.json"),
        }
        (dataset,) = app.request("datasets/action", owner | {"action": "list"})["datasets"]
        assert "nested too deeply" in dataset["damaged"]
        assert app.request("experiments/poll", owner)["experiments"] == []  # of another owner
    finally:
        assert app.stop() == 0
    log = app.log.read_text()
    assert "Traceback" not in log
    assert all(name in log for _, name in damaged)
