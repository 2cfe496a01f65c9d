import pytest

from playground.inspection.subject import open_subject
from playground.origins import from_text, keep
from playground.tasks.rows import kept_rows
from tests.support.app_server import ROOT
from tests.support.handmade import random_subject

ROWS = "".join(f"{a} {b}\t{b} {a}\n" for a in "abcdef" for b in "abcdef" if (a, b) != ("b", "a"))


@pytest.fixture(scope="session")
def mixed():
    """The shipped model: reverse, lengths 1 to 10, two layers of four heads."""
    return open_subject(ROOT / "checkpoints" / "reverse")


@pytest.fixture(scope="session")
def one_head():
    """The shipped model of one layer with one head."""
    return open_subject(ROOT / "checkpoints" / "reverse-one-head")


@pytest.fixture
def rowed(tmp_path, monkeypatch):
    """A model of random weights whose task is rows of two letters; of b a there is no row, so nobody knows its right answer."""
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    return random_subject(**kept_rows(keep(from_text(ROWS))).settings())
