"""The actions of an owner on a run."""

from types import SimpleNamespace

import pytest

from playground.errors import UserError
from playground.runs.registry import MAX_STEPS
from playground.server.runs_api import ACTIONS, list_runs
from tests.support.coroutines import run_in_thread
from tests.support.small_runs import start_run


@pytest.mark.parametrize("owner", ["", "short", "x" * 31 + "\u00e9", "../" * 12])
def test_an_invalid_owner_key_lists_no_run_and_is_not_remembered(registry, owner):
    start_run(registry, owner=owner)
    assert run_in_thread(list_runs(registry, {"owner": owner}))["runs"] == []
    assert not registry.owner_last_seen


def test_run_with_the_maximum_of_steps_cannot_be_extended():
    registry = SimpleNamespace(commands=SimpleNamespace(ensure_trainable=lambda run: None))
    with pytest.raises(UserError, match=r"has 1,000,000 steps, .* start a new run"):
        ACTIONS["extend"](registry, SimpleNamespace(step=MAX_STEPS), None)
