"""The order of waiting jobs and runs of several owners."""

from types import SimpleNamespace

import pytest

from playground.jobs.fair_order import FairOrder


def of(owner, name="", address="192.0.2.1"):
    return SimpleNamespace(owner=owner, address=address, name=name)


@pytest.mark.parametrize("other", ["192.0.2.1", "192.0.2.2"])
def test_a_thing_ahead_in_the_order_counts_as_an_active_one(other):
    waiting = [of("ada", "a1"), of("ada", "a2"), of("ada", "a3"), of("ben", "b1", other)]
    order = FairOrder().order(waiting, active=[of("ben", address=other)])
    assert [thing.name for thing in order] == ["a1", "b1", "a2", "a3"]
