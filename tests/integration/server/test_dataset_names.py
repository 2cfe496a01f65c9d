"""A run on own data has the name of the dataset, which only its owner sees."""

import asyncio
import json

import pytest

from playground.datasets.sources import read_text
from playground.datasets.storage import load_pairs, to_files
from playground.runs.dataset_library import DatasetLibrary
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.runs.scheduler import RunScheduler
from playground.server.live_api import live_handlers
from playground.training.run_config import RunConfig
from tests.support.coroutines import run_in_thread
from tests.support.small_runs import TINY_SETTINGS

ROUTES = ("runs/poll", "runs/details", "runs/curves")


@pytest.fixture
def registry(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr(RunScheduler, "schedule", lambda self: None)
    registry = Registry(tmp_path)
    yield registry
    registry.shutdown()


def start_run(registry, owner, name):
    """Store a dataset under a name, and start a run on it."""
    dataset = read_text("".join(f"{n:03d}\t{n % 7}\n" for n in range(400)))
    folder = registry.storage.root / f"{name}.tmp"
    (folder / "rows").mkdir(parents=True)
    for file_name, data in to_files(dataset).items():
        (folder / "rows" / file_name).write_bytes(data)
    library = DatasetLibrary(registry)
    library.set_pending(owner, dataset.sha256, folder, name)
    library.store(owner, dataset.sha256)
    settings = TINY_SETTINGS | load_pairs(dataset.sha256).task_settings()
    return registry.start(RunConfig.from_flat(settings), owner)


def test_a_run_is_named_after_the_dataset_of_its_owner(registry):
    owner, other = new_owner_key(), new_owner_key()
    first = start_run(registry, owner, "secret-plan.csv")
    assert "secret-plan.csv" in first.name
    assert "klasse 9b.tsv" in start_run(registry, other, "klasse 9b.tsv").name
    assert registry.start(first.config, owner).name == f"{first.name} (2)"
    # one who has the settings, but not the dataset
    assert "secret" not in start_run(registry, new_owner_key(), "").name


def test_viewers_do_not_see_the_name_of_the_dataset(registry):
    owner = new_owner_key()
    run = start_run(registry, owner, "secret-plan.csv")
    handlers = live_handlers(registry)

    async def request_all(subject):
        common = {"owner": owner, "n_points": 0, "series_id": -1, "snapshot_version": 0}
        subjects = {"subject": subject, "subjects": [subject]}
        return {name: json.dumps(await handlers[name](common | subjects, None)) for name in ROUTES}

    def responses(subject):
        return run_in_thread(asyncio.wait_for(request_all(subject), 60))

    assert all("secret-plan.csv" in each for each in responses(f"run:{run.id}").values())
    for name, response in responses(f"watch:{run.share_id}").items():
        assert ", dataset 3" in response, name
        assert "secret" not in response, name
