import subprocess
import sys

import pytest

from tests.support.app_server import ROOT


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]],
    ids=["ruff check", "ruff format", "mypy"],
)
def test_the_checkers_are_silent(command, pytestconfig):
    cache = pytestconfig.cache.mkdir(f"{command[0]}-of-the-checkout")
    done = subprocess.run(
        [sys.executable, "-m", *command, "--cache-dir", str(cache)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
