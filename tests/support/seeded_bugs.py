"""Seed ten bugs, one at a time, and list which tests fail: python -m tests.support.seeded_bugs
[--full]

Each bug is seeded in a copy of the checkout, and the tests that may catch it run there: those of
the default selection, with --full those of the full gate. Exits with 0 if the default selection
catches at least eight, or the full gate all ten.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.layers import DEFAULT_MARKERS, FULL_MARKERS, TESTS

ROOT = TESTS.parent
MIN_CAUGHT = {DEFAULT_MARKERS: 8, FULL_MARKERS: 10}


@dataclass(frozen=True)
class Bug:
    """A replacement in one file, and the files of tests that it concerns."""

    name: str
    file: str
    correct_line: str
    buggy_line: str
    tests: tuple[str, ...]


BUGS = (
    Bug(
        "no causal mask",
        "playground/models/attention.py",
        "device=device).tril()",
        "device=device)",
        ("unit/models",),
    ),
    Bug(
        "a write that is not atomic",
        "playground/common/atomic_write.py",
        '    try:\n        with open(staging, "xb")',
        '    path.write_bytes(data)\n    try:\n        with open(staging, "xb")',
        ("unit/common/test_atomic_write.py",),
    ),
    Bug(
        "token=None",
        "playground/hub/client.py",
        "token=token or False",
        "token=token or None",
        ("integration/hub",),
    ),
    Bug(
        "innerHTML for a name",
        "playground/ui/static/train/run_list.js",
        "            title=${run.name}\n",
        "            dangerouslySetInnerHTML=${{ __html: run.name }}\n",
        ("unit/ui", "browser/test_markup.py"),
    ),
    Bug(
        "a cursor off by one",
        "playground/runs/metric_series.py",
        "self.columns[name][n_points:count]",
        "self.columns[name][n_points + 1 : count]",
        ("unit/runs",),
    ),
    Bug(
        "a swallowed worker failure",
        "playground/runs/supervisor.py",
        'run.update(status="failed", message=reason)',
        'run.update(status="stopped", message="")',
        ("integration/runs/test_registry.py", "faults/test_workers.py"),
    ),
    Bug(
        "a wrong chance level",
        "playground/comparison/baselines.py",
        '"token_accuracy": 1 / symbols,',
        '"token_accuracy": 1 / (symbols + 3),',
        ("integration/comparison/test_models.py",),
    ),
    Bug(
        "a held-out sequence in the training batch",
        "playground/tasks/held_out.py",
        "loss_weight_B = (~held_out_B).float()",
        "loss_weight_B = torch.ones(len(lengths_B))",
        ("unit/tasks", "unit/training"),
    ),
    Bug(
        "a missing rate limit",
        "playground/server/rate_limit.py",
        "        return 0.0 if is_enough else (tokens - level) / self.per_second",
        "        return 0.0",
        ("unit/ui", "integration/server/test_api.py"),
    ),
    Bug(
        "an export without its first row",
        "playground/figures/figures.py",
        "table.writerows(data)",
        "table.writerows(data[1:])",
        ("unit/figures", "integration/test_command_line.py"),
    ),
)


def ignored_names(folder: str, names: list[str]) -> set[str]:
    """Return what a copy of the checkout does without: caches, and the runs of a server."""
    ignored = set(shutil.ignore_patterns(".git", "*_cache", "__pycache__")(folder, names))
    return ignored | ({"runs"} if Path(folder) in (ROOT, ROOT / "checkpoints") else set())


def failing_tests(bug: Bug, markers: str) -> list[str]:
    """Seed a bug in a copy of the checkout; return the names of the tests that fail there."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=ignored_names)
        path = copy / bug.file
        text = path.read_text()
        assert text.count(bug.correct_line) == 1, f"{bug.file} has changed: {bug.correct_line}"
        path.write_text(text.replace(bug.correct_line, bug.buggy_line))
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--maxfail=3", "-m", markers]
        command += [f"tests/{test_path}" for test_path in bug.tests]
        result = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        failed = re.findall(r"^FAILED (\S+)", result.stdout, re.M)
        if result.returncode not in (0, 1) or bool(failed) is not bool(result.returncode):
            raise RuntimeError(
                f"the tests of {bug.name!r} did not run: {result.stdout}{result.stderr}"
            )
        return failed


def main(markers: str) -> int:
    caught = 0
    for bug in BUGS:
        failed = failing_tests(bug, markers)
        caught += bool(failed)
        print(f"{bug.name}: {failed[0] if failed else 'not caught'}", flush=True)
    print(f"{caught} of {len(BUGS)} caught by {markers}")
    return int(caught < MIN_CAUGHT[markers])


if __name__ == "__main__":
    sys.exit(main(FULL_MARKERS if "--full" in sys.argv else DEFAULT_MARKERS))
