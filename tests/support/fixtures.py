"""Fixtures that several layers share: the fake Hub, and a client that uses no other.

A plugin of pytest, loaded by tests/conftest.py. Fixtures of few tests import what they need.
"""

import gc
import os
import sys

import pytest

from tests.support.fake_hub import FakeHub


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Start a fake Hub that this process and its children use, without the token of the machine.

    huggingface_hub reads the environment when it is imported, so its constants are patched too.
    Tests still pass `endpoint=` to functions that accept it.
    """
    from huggingface_hub import constants, hf_api
    from huggingface_hub.utils import close_session

    home = tmp_path_factory.mktemp("hf-home")
    with FakeHub() as hub, pytest.MonkeyPatch.context() as patch:
        for name, value in hub.environment(home).items():
            patch.setenv(name, value)
        for name, value in {
            "ENDPOINT": hub.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_DISABLE_TELEMETRY": True,
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": True,
            "HF_HUB_DISABLE_PROGRESS_BARS": True,
        }.items():
            patch.setattr(constants, name, value)
        patch.setattr(
            hf_api.api, "endpoint", hub.url
        )  # the instance behind the functions of the package
        yield hub
        close_session()


@pytest.fixture(scope="module")
def served_hub():
    """Start a fake Hub for the servers of a test; this process does not use it."""
    with FakeHub() as hub:
        yield hub


@pytest.fixture(scope="session")
def trained_checkpoint(tmp_path_factory):
    """Save a checkpoint of six steps with its scores, as a run does. Do not change it."""
    from playground.checkpoints.checkpoint import save_checkpoint
    from playground.training.trainer import Trainer
    from tests.support.small_runs import tiny_config

    folder = tmp_path_factory.mktemp("run") / "0000006"
    trainer = Trainer(tiny_config(max_steps=20))
    metrics = [trainer.train_step() for _ in range(6)]
    save_checkpoint(folder, trainer, metrics, trainer.evaluate(64))
    return folder


@pytest.fixture(scope="session")
def published_files(trained_checkpoint, tmp_path_factory):
    """Return the files of the repository ada/digits, to which the checkpoint is published."""
    from playground.hub.export import build_package
    from playground.hub.model_card import write_card

    folder = tmp_path_factory.mktemp("package")
    build_package(trained_checkpoint, folder)
    write_card(folder, trained_checkpoint, repo="ada/digits")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def registry(tmp_path):
    """Create a registry with two slots in an empty folder."""
    from playground.jobs.process import warm_up
    from playground.runs.registry import Registry

    warm_up().join()
    registry = Registry(tmp_path, slots=2)
    yield registry
    registry.shutdown()


@pytest.fixture
def started(monkeypatch):
    """Replace the processes of all executors; list those that were started."""
    from tests.support.fake_jobs import fake_processes

    return fake_processes(monkeypatch)


@pytest.fixture
def workers(monkeypatch):
    """Replace the training processes of all registries; list those that were launched."""
    from tests.support.fake_workers import FakeWorkers

    return FakeWorkers(monkeypatch)


@pytest.fixture
def frozen_heap():
    """Exclude the objects of other tests from garbage collection, which delays timed rounds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def clear_hub_faults(request):
    """End every fault of the Hub with its test."""
    hub = request.getfixturevalue("hub") if "hub" in request.fixturenames else None
    yield
    if hub is not None:
        hub.clear_faults()


@pytest.fixture(autouse=True)
def restore_hub_client():
    """Restore the client of huggingface_hub if the test configures it, as a hub task does."""
    http = sys.modules.get("huggingface_hub.utils._http")
    before = http._GLOBAL_CLIENT_FACTORY if http else None
    yield
    http = sys.modules.get("huggingface_hub.utils._http")
    if http and http._GLOBAL_CLIENT_FACTORY is not (before or http.default_client_factory):
        http.set_client_factory(before or http.default_client_factory)


@pytest.fixture
def run_task_in_process(monkeypatch):
    """Return a function that runs a hub task in this process and returns its last message.

    Its second argument is the folder of temporary files, which is created.
    """
    from transformers.utils import logging

    from playground.hub.tasks import run_task
    from playground.jobs.entry import last_message
    from playground.jobs.progress import ProgressReporter

    verbosity = logging.get_verbosity()
    monkeypatch.setattr(os, "environ", os.environ.copy())

    def run(task, scratch):
        scratch.mkdir(exist_ok=True)
        reporter = ProgressReporter(scratch=scratch)
        kind, *content = last_message(lambda: run_task(task, reporter))
        if kind == "failed":
            return kind, content[0]["error"], content[0].get("retryable", False)
        return kind, *content

    yield run
    logging.set_verbosity(verbosity)
