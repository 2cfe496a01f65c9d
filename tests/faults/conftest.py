"""Fixtures of the fault tests: registries that are shut down afterwards."""

import pytest

from playground.jobs.process import warm_up
from playground.runs.registry import Registry


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
        registry.shutdown(20)
