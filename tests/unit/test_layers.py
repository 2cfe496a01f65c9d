"""The layers of the package, read from its imports, and the layers of the tests.

A module imports only lower layers, and each test file has a layer.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import playground
from tests.support.durations import CHANGES
from tests.support.layers import LAYERS as TEST_LAYERS
from tests.support.layers import TESTS, layer_of
from tests.support.seeded_bugs import BUGS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "playground"
LAYERS = {
    name: int(layer)
    for layer, name in re.findall(r"^ +(\d+)  (\w+)/? ", playground.__doc__, re.MULTILINE)
}
FILES = sorted(PACKAGE.rglob("*.py"))
WEB = {"gradio", "starlette", "fastapi", "uvicorn"}
WITH_TRANSFORMERS = {
    path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "pretrained").rglob("*.py")
}
# The files that may import each heavy package.
AUTOMODELS = ("", "_base", "_recurrent", "_single_stack", "_torch_transformer")
ONLY_IN = {
    "transformers": {
        *(f"models/automodel{kind}.py" for kind in AUTOMODELS),
        "hub/export.py",
        "architectures/huggingface.py",
    }
    | WITH_TRANSFORMERS,
    "huggingface_hub": {
        *("experiments/backends/hf_jobs.py", "hub/client.py", "hub/errors.py"),
        *("hub/existing_card.py", "hub/plan.py", "hub/transport.py", "hub/upload_tasks.py"),
        *("hub/model_card.py", "hub/dataset_repository.py", "hub/repo_ids.py"),
        *("pretrained/loading/cache.py", "pretrained/loading/download.py"),
    },
    "datasets": {"hub/dataset_repository.py"},
}


def imports(path):
    """Yield the full names of all imports of a file: "playground.tasks.PAD", "torch.Tensor"."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) + "." if node.level else ""
            yield from (
                f"{base}{node.module or ''}.{alias.name}".replace("..", ".") for alias in node.names
            )
    # imported later by its name
    yield from re.findall(r'"(playground\.[\w.]+):\w+"', path.read_text())


def package_of(path):
    """Return the package or module of a file; None for playground/__init__.py."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return None if first == "__init__" else first


def test_the_docstring_of_the_package_lists_all_its_modules():
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert set(LAYERS) == modules | folders
    assert list(LAYERS.values()) == sorted(LAYERS.values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_imports_only_lower_layers_and_its_own_package(path):
    for name in imports(path):
        top, *inner = name.split(".")
        if top == "playground" and inner and inner[0] in LAYERS:
            assert package_of(path) == inner[0] or LAYERS[inner[0]] < LAYERS.get(
                package_of(path), 0
            ), f"{path} imports {name}"
        assert path.relative_to(PACKAGE).as_posix() in ONLY_IN.get(
            top, {path.relative_to(PACKAGE).as_posix()}
        ), f"{path} imports {name}"
        assert top not in WEB or package_of(path) in ("ui", "server"), f"{path} imports {name}"


def test_files_in_models_import_each_other_from_their_own_folder_only():
    for path in (PACKAGE / "models").glob("*.py"):
        assert "playground." not in "".join(
            line for line in path.read_text().splitlines() if re.match(r"\s*(from|import) ", line)
        )
        assert all(
            node.level <= 1
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
        )


def test_modules_of_the_first_page_import_no_heavy_package():
    modules = (
        "tasks models architectures training.run_config training.presets checkpoints.manifest "
        "inspection runs.registry pretrained.jobs experiments.service experiments.presets "
        "experiments.replications lessons.service"
    )
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(f'playground.{name}')\n"
        "    heavy = {'torch', 'transformers', 'tokenizers', 'datasets'} & {*sys.modules}\n"
        "    assert not heavy, (name, heavy)\n"
    )
    command = [sys.executable, "-c", code, *modules.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# The layers of the tests

TEST_FILES = sorted(TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_every_file_has_a_layer(path):
    assert layer_of(path) in TEST_LAYERS


def test_the_tests_of_each_kind_of_change_exist():
    paths = [path for paths in CHANGES.values() for path in paths.split()]
    assert [path for path in paths if not (TESTS / path).exists()] == []


def test_no_test_name_is_longer_than_70_characters():
    names = [
        name
        for path in TEST_FILES
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    ]
    assert [name for name in names if len(name) > 70] == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_seeded_bug_replaces_a_line_that_exists(bug):
    assert (TESTS.parent / bug.file).read_text().count(bug.correct) == 1
    assert all((TESTS / path).exists() for path in bug.tests)


def test_the_default_selection_holds_in_every_process(tmp_path):
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
    command = [sys.executable, "-m", "pytest", "-n", "2", "--import-mode=importlib"]
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
