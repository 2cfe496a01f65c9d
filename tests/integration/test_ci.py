""".ci/run with flaky tests, on a small suite."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.app_server import ROOT

FLAKY = """
def test_flaky_{n}():
    marker = Path(__file__).with_name("ran-{n}")
    ran = marker.exists()
    marker.touch()
    assert ran
"""
STUBS = {
    "chromium": "exit 0",
    "pip": "exit 0",
    # A virtual environment without packages of its own: the tests have no network to install any.
    "python3": 'if [ "$2" = venv ]; then mkdir -p "$3/bin"; touch "$3/bin/activate"; else exec '
    f'{sys.executable} "$@"; fi',
}


@pytest.fixture
def run_ci(tmp_path):
    """Run .ci/run on a suite with this many flaky tests and an optional failing one."""
    suite, stubs = tmp_path / "suite", tmp_path / "stubs"
    shutil.copytree(ROOT / ".ci", suite / ".ci")
    (suite / "requirements-dev.txt").touch()
    stubs.mkdir()
    for name, script in STUBS.items():
        (stubs / name).write_text(f"#!/bin/sh\n{script}\n")
        (stubs / name).chmod(0o755)
    here = os.path.dirname(sys.executable)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    environment["PATH"] = f"{stubs}{os.pathsep}{here}{os.pathsep}{environment['PATH']}"

    def run(flaky, fails=False):
        tests = "".join(FLAKY.format(n=n) for n in range(flaky)) + "\ndef test_good():\n    pass\n"
        tests += "\ndef test_bad():\n    assert False\n" * fails
        (suite / "test_suite.py").write_text(f"from pathlib import Path\n{tests}")
        return subprocess.run(
            ["bash", ".ci/run"],
            cwd=suite,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
        )

    return run


def flaky_names(done):
    return re.findall(r"^FLAKY (.+)$", done.stdout, re.M)


@pytest.mark.smoke
def test_a_suite_that_passes_runs_once(run_ci):
    done = run_ci(flaky=0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"\d+ passed", done.stdout) == ["1 passed"]
    assert flaky_names(done) == []


@pytest.mark.parametrize(("flaky", "code"), [(2, 0), (3, 1)])
def test_tests_passing_on_retry_are_listed_and_over_two_fail_ci(run_ci, flaky, code):
    done = run_ci(flaky)
    assert flaky_names(done) == [f"test_suite.py::test_flaky_{n}" for n in range(flaky)]
    assert done.returncode == code, done.stdout + done.stderr
    assert f"{flaky} failed, 1 passed" in done.stdout
    assert re.search(rf"^{flaky} passed", done.stdout, re.M)


def test_a_test_that_fails_twice_fails_the_run(run_ci):
    done = run_ci(flaky=1, fails=True)
    assert done.returncode == 1
    assert flaky_names(done) == ["test_suite.py::test_flaky_0"]
    assert "1 failed, 1 passed" in done.stdout
