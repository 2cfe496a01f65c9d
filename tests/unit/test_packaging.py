"""The metadata of the package, and the files of its wheel."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import playground
from playground.__main__ import run
from tests.support.app_server import BUNDLED_CHECKPOINTS, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {
    "markdown_it": "markdown-it-py",
    "yaml": "pyyaml",
}  # of modules that do not bear their name


def parsed(lines):
    """Requirements by canonical name."""
    return {canonicalize_name(each.name): each for each in map(Requirement, lines)}


def pins(*files):
    """The pinned version of each distribution in these files."""
    lines = [
        line
        for file in files
        for line in (ROOT / file).read_text().splitlines()
        if line and not line.startswith(("#", "-"))
    ]
    return {name: str(each.specifier).removeprefix("==") for name, each in parsed(lines).items()}


def imported_distributions():
    """Return the distribution of every third-party import of the package."""
    modules = set()
    for path in [ROOT / "app.py", *(ROOT / "playground").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add(node.module.split(".")[0])
    return {
        canonicalize_name(DISTRIBUTIONS.get(name, name))
        for name in modules - sys.stdlib_module_names - {"playground"}
    }


def test_every_imported_package_is_declared():
    # gradio[mcp] installs mcp
    declared = set(parsed(PROJECT["dependencies"])) | {"mcp"}
    assert imported_distributions() <= declared


def test_no_dependency_is_declared_in_vain():
    assert set(parsed(PROJECT["dependencies"])) <= imported_distributions()


def test_declared_ranges_hold_the_pinned_versions():
    pinned = pins("requirements.txt", "constraints.txt")
    for name, requirement in parsed(PROJECT["dependencies"]).items():
        assert requirement.specifier.contains(pinned[name]), requirement
    for name, requirement in parsed(PROJECT["optional-dependencies"]["dev"]).items():
        assert requirement.specifier.contains(pins("requirements-dev.txt")[name]), requirement


def test_declared_packages_are_those_of_the_requirements_files():
    assert set(pins("requirements.txt")) <= set(parsed(PROJECT["dependencies"]))
    assert set(pins("requirements-dev.txt")) == set(parsed(PROJECT["optional-dependencies"]["dev"]))


@pytest.fixture(scope="module")
def wheel_files():
    """Return each path in the wheel, with its source file."""
    builder = WheelBuilder(str(ROOT))
    return {file.distribution_path: file.path for file in builder.recurse_included_files()}


def test_wheel_holds_every_file_of_the_package(wheel_files):
    tracked = subprocess.run(
        ["git", "ls-files", "playground"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(tracked) > 200
    assert set(tracked) <= set(wheel_files)
    beyond = set(wheel_files) - {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "playground").rglob("*")
    }
    assert all(path.startswith("playground/bundled/") for path in beyond)


def test_wheel_holds_the_files_that_the_package_reads_outside_its_folder(wheel_files):
    bundled = {
        path.removeprefix("playground/bundled/"): file
        for path, file in wheel_files.items()
        if "/bundled/" in path
    }
    results = {f"benchmarks/results/{name}.json" for name in ("published", "tasks")}
    notebook = {f"docs/notebooks/{name}" for name in ("published.json", "sources.ipynb")}
    expected = {"LICENSE"} | results | notebook
    expected |= {
        path.relative_to(ROOT).as_posix()
        for name in BUNDLED_CHECKPOINTS
        for path in (ROOT / "checkpoints" / name).iterdir()
    }
    assert set(bundled) == expected
    assert all(
        (playground.ASSETS_DIR / path).read_bytes() == (ROOT / path).read_bytes()
        for path in expected
    )
    # A new use of ASSETS_DIR needs its file in pyproject.toml.
    uses = [
        actual
        for path in (ROOT / "playground").rglob("*.py")
        for actual in re.findall(r'ASSETS_DIR / "(\w+)"', path.read_text(encoding="utf-8"))
    ]
    assert sorted(set(uses)) == ["LICENSE", "benchmarks", "checkpoints"]


def test_version_has_one_source():
    assert PROJECT["dynamic"] == ["version"]
    assert WheelBuilder(str(ROOT)).metadata.version == playground.__version__


def test_installed_package_keeps_checkpoints_in_the_working_directory(wheel_files, tmp_path):
    """A copy of the package with the bundled files, as pip unpacks a wheel."""
    site = tmp_path / "site-packages"
    for path, source in wheel_files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, site / path)
    code = "from playground.common.storage import resolve_storage; print(resolve_storage().root)"
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=work,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("checkpoints\n", "")
    assert {path.name for path in (work / "checkpoints").iterdir()} == set(BUNDLED_CHECKPOINTS)
    for name in BUNDLED_CHECKPOINTS:
        assert (work / "checkpoints" / name / "config.json").read_bytes() == (
            ROOT / "checkpoints" / name / "config.json"
        ).read_bytes()


def test_entry_point_names_itself_in_usage(capsys):
    assert PROJECT["scripts"] == {"transformer-playground": "playground.entry_point:main"}
    with pytest.raises(SystemExit) as ended:
        run(["train", "--no-such-option"], name="transformer-playground")
    assert ended.value.code == 2
    assert "--no-such-option" in capsys.readouterr().err
    run(["--help"], name="transformer-playground")
    assert capsys.readouterr().out.startswith("Usage: transformer-playground [OPTIONS] COMMAND")


def test_citation_names_the_version_and_the_license():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == playground.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]


ISSUE_FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_*.yml"))


@pytest.mark.parametrize("path", ISSUE_FORMS, ids=lambda path: path.stem)
def test_issue_form_has_the_fields_that_github_requires(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form["name"]
    assert form["description"]
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert fields
    assert len({each["id"] for each in fields}) == len(fields)
    assert all(each["attributes"]["label"] for each in fields)
    assert {each["type"] for each in fields} <= {"input", "textarea", "dropdown", "checkboxes"}
