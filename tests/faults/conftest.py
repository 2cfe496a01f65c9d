"""What the fault suite shares: a registry that is shut down afterwards."""

import pytest

from playground.jobs.process import warm_up
from playground.runs.registry import Registry


@pytest.fixture(scope="session", autouse=True)
def quick_workers():
    """Workers are forked from a process that has torch, as the app's are."""
    warm_up().join()


@pytest.fixture
def registries(tmp_path):
    """Makes registries, on a root of one's choice, and ends them all."""
    made = []

    def make(root=tmp_path, **settings):
        made.append(Registry(root, **{"idle_timeout_s": 0, "release_after_s": 0} | settings))
        return made[-1]

    yield make
    for registry in made:
        registry.shutdown(20)
