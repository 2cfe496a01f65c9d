"""The layers of the tests themselves: every file has a layer, and the default selection a test
of each.
"""

import os
import re
import subprocess
import sys

import pytest

from tests.support.layers import LAYERS, TESTS, layer_of
from tests.support.seeded_bugs import BUGS

FILES = sorted(TESTS.rglob("test_*.py"))
# Whole files of the full gate alone: each of them costs half a minute, or measures the machine.
WITHOUT_SMOKE = {
    "browser/test_accessibility.py",
    "browser/test_hidden.py",
    "browser/test_markup.py",
    "browser/test_zero.py",
    "faults/test_load.py",
    "faults/test_one_client.py",
    "faults/test_page_loads.py",
    "integration/hub/test_every_family.py",
    "integration/hub/test_published.py",
    "integration/test_code.py",
    "train/architectures/test_learning.py",
    "train/test_from_python.py",
    "train/training/test_parts_learn.py",
    "gpu/test_gpu.py",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_every_file_has_a_layer_and_a_thin_path(path):
    assert layer_of(path) in LAYERS
    name = path.relative_to(TESTS).as_posix()
    has_smoke = "@pytest.mark.smoke\n" in path.read_text()
    assert has_smoke is (layer_of(path) != "unit" and name not in WITHOUT_SMOKE)


def test_no_test_name_is_longer_than_70_characters():
    names = [
        name for path in FILES for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    ]
    assert [name for name in names if len(name) > 70] == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_seeded_bug_replaces_a_line_that_exists(bug):
    assert (TESTS.parent / bug.file).read_text().count(bug.correct_line) == 1
    assert all((TESTS / path).exists() for path in bug.tests)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_default_selection_holds_in_every_process(tmp_path, processes):
    """A test session of its own: two files, one of them without a smoke test."""
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "tests/faults").mkdir()
    (tmp_path / "tests/unit/test_a.py").write_text("def test_unit(): pass\n")
    (tmp_path / "tests/faults/test_b.py").write_text("def test_fault(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    plugin = (
        "import tests.support.layers as layers\nfrom pathlib import Path\nlayers.TESTS = "
        "Path('tests').resolve()\n"
    )
    (tmp_path / "conftest.py").write_text(plugin + "from tests.support.layers import *\n")
    command = [sys.executable, "-m", "pytest", "-n", processes, "--import-mode=importlib"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "1 tests did not run: faults 1" in done.stdout
