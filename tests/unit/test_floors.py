"""The rules for imports, checked on the sources. This file imports only the standard library and
pytest.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import playground

ROOT = Path(__file__).resolve().parents[2]
INSIDE = ROOT / "playground"
LAYERS = {
    name: int(floor)
    for floor, name in re.findall(r"^ +(\d+)  (\w+)/? ", playground.__doc__, re.MULTILINE)
}
FILES = sorted(INSIDE.rglob("*.py"))
WEB = {"gradio", "starlette", "fastapi", "uvicorn"}
WITH_TRANSFORMERS = {
    f"{folder}/{path.name}"
    for folder in ("pretrained", "finetuning", "probing", "comparison")
    for path in (INSIDE / folder).glob("*.py")
}
# Heavy ones, and the few files that may import them.
AUTOMODELS = (
    "",
    "_base",
    "_cache",
    "_decoder_only",
    "_encoder_only",
    "_generation",
    "_prebuilt",
    "_recurrent",
)
ONLY_IN = {
    "transformers": {
        *(f"models/automodel{kind}.py" for kind in AUTOMODELS),
        "hub/export.py",
        "architectures/huggingface.py",
    }
    | WITH_TRANSFORMERS - {"comparison/job_queue.py"},
    "huggingface_hub": {
        "hub/client.py",
        "hub/errors.py",
        "hub/plan.py",
        "hub/transport.py",
        "hub/upload.py",
        "hub/model_card.py",
        "hub/dataset_export.py",
        "datasets/hub_stream.py",
        "server/hub_api.py",
        "cli/hub.py",
        "pretrained/cache.py",
        "pretrained/download.py",
    },
    "datasets": {"hub/dataset_export.py", "datasets/hub_stream.py"},
    "spaces": {"runs/zerogpu.py"},
}


def imports(path):
    """Full names of what a file imports, wherever in it, with the names taken from it:
    "playground.tasks.PAD", "torch.Tensor".
    """
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = ".".join(package[: len(package) + 1 - node.level]) + "." if node.level else ""
            yield from (
                f"{origin}{node.module or ''}.{alias.name}".replace("..", ".")
                for alias in node.names
            )
    # what is imported by its name later
    yield from re.findall(r'"(playground\.[\w.]+):\w+"', path.read_text())


def package_of(path):
    """Return the layer of a file; None for playground/__init__.py."""
    first = path.relative_to(INSIDE).parts[0].removesuffix(".py")
    return None if first == "__init__" else first


def test_the_docstring_of_the_package_lists_what_is_in_the_folder():
    modules = {path.stem for path in INSIDE.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in INSIDE.glob("*/*.py")}
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
        assert path.relative_to(INSIDE).as_posix() in ONLY_IN.get(
            top, {path.relative_to(INSIDE).as_posix()}
        ), f"{path} imports {name}"
        assert top not in WEB or package_of(path) in ("ui", "server"), f"{path} imports {name}"


def test_files_in_models_import_each_other_from_their_own_folder_only():
    for path in (INSIDE / "models").glob("*.py"):
        assert "playground." not in "".join(
            line for line in path.read_text().splitlines() if re.match(r"\s*(from|import) ", line)
        )
        assert all(
            node.level <= 1
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
        )


@pytest.mark.parametrize(
    "module",
    [
        "tasks",
        "models",
        "architectures",
        "training.config",
        "training.presets",
        "checkpoints.manifest",
        "inspection",
        "runs.registry",
        "comparison.job_queue",
        "experiments.service",
        "experiments.presets",
        "experiments.replications",
        "lessons.service",
    ],
)
def test_what_the_page_needs_before_the_first_run_does_not_load_torch(module):
    code = f"import sys, playground.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
