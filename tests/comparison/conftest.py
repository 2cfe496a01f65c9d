"""Two tiny fixtures, made once in a test session: no pretrained BERT or GPT-2, see fixtures.py."""

import pytest

from tests.comparison import fixtures


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory):
    """A folder with tiny-gpt2/ and tiny-bert/."""
    return fixtures.make(tmp_path_factory.mktemp("tiny-models"))


@pytest.fixture(scope="session")
def tiny_gpt2(tiny_models):
    return str(tiny_models / "tiny-gpt2")


@pytest.fixture(scope="session")
def tiny_bert(tiny_models):
    return str(tiny_models / "tiny-bert")
