import pytest

from playground.inspection.subject import open_subject
from tests.servers import ROOT


@pytest.fixture(scope="session")
def mixed():
    """The shipped model: reverse, lengths 1 to 10, two layers of four heads."""
    return open_subject(ROOT / "checkpoints" / "reverse")


@pytest.fixture(scope="session")
def one_head():
    """The shipped model of one layer with one head."""
    return open_subject(ROOT / "checkpoints" / "reverse-one-head")
