"""The layers of the tests: markers from paths, the default selection, and the order of the files.

A plugin of pytest, loaded by tests/conftest.py. docs/testing.md describes the layers.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
LAYERS = {
    "unit": "no server, no worker, no training beyond some seconds",
    "integration": "processes, commands, real HTTP against the stand-in Hub, real pipelines",
    "browser": "the page in Chromium",
    "faults": "hostile input, killed processes, full disks, load",
    "train": "training that takes long",
    "gpu": "needs a GPU; skipped without one",
}
DEFAULT_MARKERS = "(unit or smoke) and not soak"
FULL_MARKERS = "not soak"
# seconds by file, of one process on the machine that docs/testing.md names
DURATIONS = TESTS / "durations.json"
LAST_FILE = "faults/test_load.py"  # uses all cores
deselected_counts: Counter[str] = Counter()


def layer_of(path: Path) -> str:
    """Return the layer of a test file: the first folder below tests."""
    return path.relative_to(TESTS).parts[0]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in LAYERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    if hasattr(config, "workerinput"):
        config.option.markexpr = config.workerinput["markexpr"]
    elif not config.option.markexpr:
        names_tests = (
            config.args_source is pytest.Config.ArgsSource.ARGS
            or config.option.keyword
            or config.option.lf
        )
        config.option.markexpr = FULL_MARKERS if names_tests else DEFAULT_MARKERS
    elif "soak" not in config.option.markexpr:
        config.option.markexpr = f"({config.option.markexpr}) and {FULL_MARKERS}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (layer := layer_of(item.path)) in LAYERS:
            item.add_marker(layer)
    seconds = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}

    def rank(item: pytest.Item) -> tuple[bool, float, str]:
        name = item.path.relative_to(TESTS).as_posix()
        return name == LAST_FILE, -seconds.get(name, 0.0), name

    items.sort(
        key=rank
    )  # the longest files first, so that the processes end at about the same time


def pytest_deselected(items: list[pytest.Item]) -> None:
    deselected_counts.update(
        layer_of(item.path) for item in items if not item.get_closest_marker("soak")
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(deselected_counts)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["markexpr"] = node.config.option.markexpr  # xdist passes only the arguments


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    deselected_counts.clear()  # each process deselects the same tests
    deselected_counts.update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.option.markexpr != DEFAULT_MARKERS or not deselected_counts:
        return
    counts = ", ".join(
        f"{layer} {deselected_counts[layer]:,}" for layer in LAYERS if deselected_counts[layer]
    )
    terminalreporter.section("left out")
    terminalreporter.line(f"{deselected_counts.total():,} tests did not run: {counts}.")
    terminalreporter.line(
        f"All of them: pytest -m '{FULL_MARKERS}'. One layer: pytest -m browser. One file, whole: "
        "pytest PATH."
    )
    terminalreporter.line("Longer counts of the same checks: pytest -m soak.")
