"""A registry with fake workers, whose training and clock the test controls."""

import pytest

from playground.runs.registry import Registry
from tests.support.fake_workers import FakeWorkers, fake_time
from tests.support.small_runs import tiny_config


@pytest.fixture
def clock(monkeypatch):
    return fake_time(monkeypatch)


@pytest.fixture
def workers(monkeypatch, clock):
    return FakeWorkers(monkeypatch)


@pytest.fixture
def create_registry(tmp_path, workers):
    """Create registries on the same folder, with settings of their own."""
    registries = []
    usual = {"slots": 3, "idle_timeout_s": 0, "release_after_s": 0, "hang_timeout_s": 0}

    def create(**settings) -> Registry:
        registries.append(Registry(tmp_path, **(usual | settings)))
        return registries[-1]

    yield create
    for registry in registries:
        registry.shutdown()


@pytest.fixture
def registry(create_registry):
    return create_registry()


@pytest.fixture
def start(workers):
    """Start a run of 60 steps, and its worker if a slot is free."""

    def start(registry, owner="ada", changes=(), name="", **fields):
        config = tiny_config(**({"max_steps": 60, "eval_every": 10} | fields))
        run = registry.start(config, owner, name=name, changes=changes)
        workers.deliver()
        return run

    return start
