"""One address with thirty invented owners fills the storage, while two others have theirs."""

import shutil
import threading
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.common.storage import directory_size
from playground.datasets.sources import read_text
from playground.datasets.storage import load_pairs, to_files
from playground.errors import UserError
from playground.experiments.service import ExperimentService
from playground.jobs.admission import CLIENT_ADDRESS, max_amount_per_address
from playground.jobs.executors import ProcessPerJob, ResidentProcess
from playground.runs.dataset_library import MB
from playground.runs.limits import Limits
from playground.runs.owner_keys import new_owner_key
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.server.app import build_handlers, launch_options
from playground.server.rate_limit import LoadLimits
from playground.training.run_config import RunConfig
from tests.support.app_server import wait_for
from tests.support.files import read_files, zip_files
from tests.support.small_runs import TINY_SETTINGS, tiny_config

ATTACKER, VICTIMS = "192.0.2.9", ("192.0.2.1", "192.0.2.2")
N_OWNERS = 30
MODELS_IN_ALL = 8  # models or datasets for which there is space; the victims have half of them


def pairs(number):
    return "".join(f"{number:03d}{n:03d}\t{n:03d}{number:03d}\n" for n in range(100))


class Instance:
    """The routes of a shared instance without processes, which can be started again."""

    def __init__(self, root, checkpoint, monkeypatch):
        self.root, self.checkpoint, self.number = root, checkpoint, 0
        monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(root))
        monkeypatch.setattr(ResidentProcess, "start", lambda executor, job: True)
        monkeypatch.setattr(
            ProcessPerJob, "start", lambda executor, job: self.run_job(executor, job)
        )
        self.zip_file = zip_files(read_files(checkpoint))
        self.model_bytes = self.measure_model()
        total = MODELS_IN_ALL * self.model_bytes + 400
        self.limits = Limits(bytes_per_owner=2 * self.model_bytes, bytes_total=total)
        self.dataset_bytes = MODELS_IN_ALL * sum(map(len, to_files(read_text(pairs(1))).values()))
        monkeypatch.setenv("PLAYGROUND_DATASETS_TOTAL_MB", f"{self.dataset_bytes / MB}")
        self.start()

    def measure_model(self):
        registry = Registry(self.root / "measured")
        folder = shutil.copytree(self.checkpoint, self.root / "measured" / ".sent")
        size = directory_size(registry.import_checkpoint(folder, "ada", "").folder)
        registry.shutdown()
        return size

    def start(self):
        self.registry = Registry(self.root, limits=self.limits, idle_timeout_s=0)
        self.registry.scheduler.schedule = lambda: None
        self.experiments = ExperimentService(self.registry)
        handlers = build_handlers(self.registry, self.experiments, public=False)
        options = launch_options(self.registry, handlers, None, 7910, LoadLimits(0, 0))[
            "app_kwargs"
        ]
        self.app = Starlette(routes=options["routes"], middleware=options["middleware"])

    def restart(self):
        self.experiments.close()
        self.registry.shutdown()
        self.start()

    def client(self, address):
        return TestClient(self.app, "http://127.0.0.1:7910", client=(address, 5000))

    def run_job(self, executor, job):
        """Do the work of a process, in a thread that knows no client."""

        def run():
            result = {}
            if job.kind == "pull":
                shutil.copytree(self.checkpoint, job.arguments[0].destination)
            elif job.kind == "upload":
                request = job.arguments[0]
                dataset = read_text(Path(request["file"]).read_text())
                Path(request["folder"]).mkdir()
                for name, data in to_files(dataset).items():
                    (Path(request["folder"]) / name).write_bytes(data)
                result = {"sha256": dataset.sha256}
            executor.on_end(job, ("result", result), 0)

        threading.Thread(target=run).start()
        return True

    # The ways to store something; each returns whether it was accepted.

    def upload(self, address, owner):
        headers = {"X-Owner": owner, "X-Name": "uploaded"}
        with self.client(address) as client:
            response = client.post(
                "/playground/checkpoints", content=self.zip_file, headers=headers
            )
        return "subject" in response.json()

    def pull(self, address, owner):
        with self.client(address) as client:
            submitted = {"owner": owner, "kind": "pull", "request": {"repo": "ada/digits"}}
            job = client.post("/playground/api/jobs/submit", json=submitted).json()["job"]
            polled = {"owner": owner, "job": job}

            def ended():
                state = client.post("/playground/api/jobs/poll", json=polled).json()
                return state["status"] not in ("waiting", "working") and state

            return wait_for(ended, 60)["status"] == "done"

    def store_dataset(self, address, owner):
        self.number += 1
        headers = {"X-Owner": owner, "X-Name": "pairs.tsv"}
        with self.client(address) as client:
            report = client.post(
                "/playground/datasets", content=pairs(self.number), headers=headers
            ).json()
            action = {"owner": owner, "action": "use", "sha256": report["sha256"]}
            return "error" not in client.post("/playground/api/datasets/action", json=action).json()

    def use_and_remove_dataset(self, address, owner):
        """Store a dataset, remove it while a run uses it, and delete the run for good."""
        if not self.store_dataset(address, owner):
            return
        (marker,) = self.root.glob(f"rows/.owners/{owner_id(owner)[:32]}/*")
        settings = TINY_SETTINGS | load_pairs(marker.name).task_settings()
        run = self.registry.start(RunConfig.from_flat(settings), owner)
        self.registry.scheduler.remove(run)
        action = {"owner": owner, "action": "remove", "sha256": marker.name}
        with self.client(address) as client:
            assert client.post("/playground/api/datasets/action", json=action).json() == {}
        self.registry.delete(run)
        quota = self.registry.storage_quota
        quota.evict_if_idle(run, quota.delete_run)
        assert not run.folder.exists()

    def start_run(self, address, owner):
        before = CLIENT_ADDRESS.set(address)
        try:
            run = self.registry.start(tiny_config(), owner)
        except UserError:
            return False
        finally:
            CLIENT_ADDRESS.reset(before)
        self.registry.scheduler.remove(run)  # as if it had trained
        run.save(status="done")
        rest = self.model_bytes - directory_size(run.folder)
        (run.folder / "checkpoints").mkdir()
        (run.folder / "checkpoints" / "weights").write_bytes(bytes(rest))
        return True

    def used_bytes(self, owners):
        """Return the bytes of the models and of the datasets of these owners."""
        runs = [run for owner in owners for run in self.registry.list_for_owner(owner)]
        markers = [
            marker
            for owner in owners
            for marker in self.root.glob(f"rows/.owners/{owner_id(owner)[:32]}/*")
        ]
        return (
            sum(map(self.registry.storage_quota.size_of_run, runs)),
            sum(directory_size(self.root / "rows" / marker.name) for marker in markers),
        )


@pytest.fixture
def instance(tmp_path, trained_checkpoint, monkeypatch):
    instance = Instance(tmp_path, trained_checkpoint, monkeypatch)
    yield instance
    instance.experiments.close()
    instance.registry.shutdown()


@pytest.mark.parametrize("way", ["upload", "pull", "store_dataset", "start_run"])
def test_invented_owners_store_no_more_than_the_share_of_an_address(instance, way):
    store = getattr(instance, way)
    # one address may use free space for models, but not for datasets
    n_victims = 2 if way == "store_dataset" else 4
    victims, attackers = ([new_owner_key() for _ in range(n)] for n in (n_victims, N_OWNERS))
    assert all(store(VICTIMS[number % 2], owner) for number, owner in enumerate(victims))
    used_by_victims = instance.used_bytes(victims)
    share = tuple(
        map(max_amount_per_address, (instance.limits.bytes_total, instance.dataset_bytes))
    )
    for is_restarted in (False, True):
        if is_restarted:
            instance.restart()
        accepted = [store(ATTACKER, owner) for owner in attackers[is_restarted::2]]
        assert is_restarted or any(accepted)  # later ones may replace their own
        used = instance.used_bytes(attackers)
        assert all(n <= limit for n, limit in zip(used, share, strict=True)), (used, share)
        assert instance.used_bytes(victims) == used_by_victims
    owned = [run for owner in victims for run in instance.registry.list_for_owner(owner)]
    assert all(run.evicted == "" for run in owned)
    stored = [path for path in instance.root.rglob("*") if path.is_file()]
    addresses = [address.encode() for address in (ATTACKER, *VICTIMS)]
    assert not any(address in path.read_bytes() for path in stored for address in addresses)


def test_removed_datasets_of_deleted_runs_take_no_space_of_others(instance):
    instance.limits = Limits()
    instance.restart()
    attackers, victim = [new_owner_key() for _ in range(N_OWNERS)], new_owner_key()
    share = max_amount_per_address(instance.dataset_bytes)
    for is_restarted in (False, True):
        if is_restarted:
            instance.restart()
        for owner in attackers[is_restarted::2]:
            instance.use_and_remove_dataset(ATTACKER, owner)
        stored = sum(map(directory_size, instance.root.glob("rows/[!.]*")))
        assert stored - instance.used_bytes([victim])[1] <= share
        assert instance.store_dataset(VICTIMS[0], victim)
