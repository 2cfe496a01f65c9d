"""The actions of an owner on a run."""

from types import SimpleNamespace

import pytest

from playground.errors import UserError
from playground.runs.registry import MAX_STEPS
from playground.server.runs_api import ACTIONS


def test_run_with_the_maximum_of_steps_cannot_be_extended():
    registry = SimpleNamespace(commands=SimpleNamespace(ensure_trainable=lambda run: None))
    with pytest.raises(UserError, match=r"has 1,000,000 steps, .* start a new run"):
        ACTIONS["extend"](registry, SimpleNamespace(step=MAX_STEPS), None)
