"""Fixtures of the fault tests: registries, and all routes of the page without processes."""

import shutil
import threading

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.experiments.service import ExperimentService
from playground.inspection.views import head_analysis
from playground.jobs.executors import ProcessPerJob, ResidentProcess
from playground.jobs.process import warm_up
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server.app import build_handlers, launch_options
from playground.server.rate_limit import LoadLimits
from tests.support.inspectors import InProcessInspector


@pytest.fixture(scope="session", autouse=True)
def quick_workers():
    """Fork workers from a process that has imported torch, as the app does."""
    warm_up().join()


@pytest.fixture
def registries(tmp_path):
    """Create registries, each on its own root, and shut them down."""
    made = []

    def make(root=tmp_path, **settings):
        made.append(Registry(root, **{"idle_timeout_s": 0, "release_after_s": 0} | settings))
        return made[-1]

    yield make
    for registry in made:
        registry.shutdown(120)


def finish_immediately(executor, job):
    """End each job immediately; there is no network."""
    no_network = ("failed", {"error": "there is no network"})
    results = {"report": {"json": "{}"}, "page": {"json": "{}"}, "check": {}}
    last = ("result", results[job.kind]) if job.kind in results else no_network
    threading.Thread(target=executor.on_end, args=(job, last, None)).start()
    return True


@pytest.fixture
def server(registries, trained_checkpoint, tmp_path, monkeypatch):
    """Serve all routes of the page, with a checkpoint and a run of an owner.

    Nothing trains, and no process is started.
    """
    shutil.copytree(trained_checkpoint, tmp_path / "small")
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr(ResidentProcess, "start", lambda executor, job: True)
    monkeypatch.setattr(ProcessPerJob, "start", finish_immediately)
    monkeypatch.setattr(head_analysis, "TIME_BUDGET", 0.0)
    registry = registries()
    registry.scheduler.schedule = lambda: None
    registry.snapshots.inspector = registry.snapshots.slow_inspector = InProcessInspector()
    experiments = ExperimentService(registry)
    owner = new_owner_key()
    run = registry.import_checkpoint(
        shutil.copytree(trained_checkpoint, tmp_path / ".sent"), owner, "my run"
    )
    handlers = build_handlers(registry, experiments, public=False)
    options = launch_options(registry, handlers, None, 7910, LoadLimits(0, 0))
    app = Starlette(routes=options["app_kwargs"]["routes"])
    app.state.handlers = handlers
    with TestClient(app) as client:  # raises uncaught errors of the server
        yield client, registry, run, owner
    experiments.close()
