import pytest

from playground.datasets.sources import read_text
from playground.datasets.storage import load_pairs, store
from playground.inspection.inspected_model import load_inspected_model
from tests.support.app_server import ROOT
from tests.support.handcrafted_models import random_model

ROWS = "".join(f"{a} {b}\t{b} {a}\n" for a in "abcdef" for b in "abcdef" if (a, b) != ("b", "a"))


@pytest.fixture(scope="session")
def mixed():
    """The bundled model for lengths 1 to 10: two layers of four heads."""
    return load_inspected_model(ROOT / "checkpoints" / "reverse")


@pytest.fixture(scope="session")
def one_head():
    """The bundled model with one layer and one head."""
    return load_inspected_model(ROOT / "checkpoints" / "reverse-one-head")


@pytest.fixture
def rowed(tmp_path, monkeypatch):
    """A random model on a dataset of letter pairs; "b a" has no target."""
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    return random_model(**load_pairs(store(read_text(ROWS))).task_settings())
