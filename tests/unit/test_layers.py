"""The layers of the tests themselves: every file has a layer, and the default selection a test of each."""

import re

import pytest

from tests.support.layers import LAYERS, TESTS, layer_of

FILES = sorted(TESTS.rglob("test_*.py"))
# Whole files of the full gate alone: each of them costs half a minute, or measures the machine.
WITHOUT_SMOKE = {
    "browser/test_accessibility.py", "browser/test_hidden.py", "browser/test_markup.py", "browser/test_zero.py",
    "faults/test_load.py", "faults/test_one_client.py", "faults/test_page_loads.py",
    "integration/test_code.py", "train/families/test_learning.py", "train/test_from_python.py", "train/training/test_parts_learn.py",
    "gpu/test_gpu.py",
}  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_every_file_has_a_layer_and_a_thin_path(path):
    assert layer_of(path) in LAYERS
    name = path.relative_to(TESTS).as_posix()
    has_smoke = "@pytest.mark.smoke\n" in path.read_text()
    assert has_smoke is (layer_of(path) != "unit" and name not in WITHOUT_SMOKE)


def test_no_test_name_is_longer_than_70_characters():
    names = [name for path in FILES for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)]
    assert [name for name in names if len(name) > 70] == []
