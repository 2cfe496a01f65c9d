"""Seed bugs, one at a time, and list the tests that notice them: python -m
tests.support.seeded_bugs [--full] [--engine] [NAME ...]

tests/data/seeded_bugs.toml has the bugs; engine_bugs.toml has those of the browser's engine.
Each is seeded in a copy of the checkout, where the tests that it names run: those of the default
selection, with --full those of the full gate. Writes how many cases of which tests fail to a JSON
file beside the bugs. Exits with 0 if the default selection notices at least 34 bugs, or the full
gate all of them. All bugs of the engine must be noticed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.layers import DEFAULT_MARKERS, FULL_MARKERS, TESTS

ROOT = TESTS.parent
DATA = TESTS / "data"
MIN_NOTICED = 34  # by the default selection
NOT_COPIED = ("*_cache", "__pycache__", "coverage", "node_modules")


@dataclass(frozen=True)
class Bug:
    """A replacement in one file, and the tests that concern it: paths below tests."""

    name: str
    file: str
    correct: str
    buggy: str
    tests: list[str]


def read_bugs(name: str) -> list[Bug]:
    return [Bug(**entry) for entry in tomllib.loads((DATA / name).read_text())["bug"]]


BUGS = read_bugs("seeded_bugs.toml")
ENGINE_BUGS = read_bugs("engine_bugs.toml")


def failing_tests(bug: Bug, copy: Path, markers: str) -> Counter[str]:
    """Seed a bug in a copy of the checkout; return how many cases of which tests fail there.

    Raises:
        RuntimeError: if the tests did not run.
    """
    path = copy / bug.file
    text = path.read_text()
    path.write_text(text.replace(bug.correct, bug.buggy))
    scripts = [f"tests/{name}" for name in bug.tests if name.endswith(".js")]
    modules = [f"tests/{name}" for name in bug.tests if not name.endswith(".js")]
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "0"]
    commands = [
        (["node", "--test", "--test-reporter=tap", *scripts], r"^ *not ok \d+ - (.+)$"),
        (
            [*pytest, "-o", f"cache_dir={copy.parent}/cache", "-m", markers, *modules],
            r"^(?:FAILED|ERROR) tests/([^\s\[]+)",
        ),
    ]
    failed: Counter[str] = Counter()
    for command, pattern in commands:
        if not command[-1].startswith("tests/"):
            continue
        result = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        names = re.findall(pattern, result.stdout, re.M)
        if bool(names) is not (result.returncode == 1):
            output = result.stdout[-2000:] + result.stderr
            raise RuntimeError(f"the tests of {bug.name!r} did not run: {output}")
        failed.update(names)
    path.write_text(text)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description="Seed bugs and list the tests that notice them.")
    parser.add_argument("--full", action="store_true", help="run the tests of the full gate")
    parser.add_argument("--engine", action="store_true", help="seed the bugs of the engine")
    parser.add_argument("names", nargs="*", help="names of bugs; all by default")
    arguments = parser.parse_args()
    selection = "full" if arguments.full else "default"
    markers = FULL_MARKERS if arguments.full else DEFAULT_MARKERS
    bugs = ENGINE_BUGS if arguments.engine else BUGS
    path = DATA / ("engine_bugs.json" if arguments.engine else "seeded_bugs.json")
    noticed = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        shutil.rmtree(copy / "checkpoints" / "runs", ignore_errors=True)
        (copy / "node_modules").symlink_to(ROOT / "node_modules")
        for bug in bugs:
            if arguments.names and bug.name not in arguments.names:
                continue
            failed = failing_tests(bug, copy, markers)
            noticed.setdefault(bug.name, {})[selection] = failed
            print(f"{bug.name}: {', '.join(failed) or 'not noticed'}", flush=True)
            path.write_text(json.dumps(noticed, indent=1, ensure_ascii=False) + "\n")
    n_noticed = sum(bool(noticed.get(bug.name, {}).get(selection)) for bug in bugs)
    print(f"{n_noticed} of {len(bugs)} noticed by the {selection} selection")
    needs_all = arguments.full or arguments.engine
    return int(n_noticed < (len(bugs) if needs_all else MIN_NOTICED))


if __name__ == "__main__":
    sys.exit(main())
