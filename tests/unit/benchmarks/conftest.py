"""What the tests of the benchmarks share."""

import gc

import pytest


@pytest.fixture(autouse=True)
def frozen_heap():
    """Leave what other tests have made out of the collections between two rounds: each would
    take half a second.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
