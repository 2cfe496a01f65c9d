"""The results of the runs of an experiment that have ended: a line of a file for each run.

They are the results of the experiment also after the runs are deleted.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from playground.common.atomic_write import append
from playground.common.platform import read_into_map

_LINE = re.compile(rb'^\{"run":"([!-~]+?)",.*\}\n', re.MULTILINE)  # as `RunSummary.line` writes it


class RunScores(BaseModel):
    """The numbers of a run; the defaults are those of a run that has not started.

    run              the name of the model, if the run exists
    changed          the settings that changed during the training
    exact_match, n   the final score, and its number of sequences
    exact_at_budget  exact match after the steps that all runs of the experiment have
    steps_to         the step that reaches 99 %
    """

    model_config = ConfigDict(allow_inf_nan=False)

    run: str | None = None
    done: bool = False
    diverged: bool = False
    changed: list[str] = []
    exact_match: float | None = None
    n: int | None = None
    exact_at_budget: float | None = None
    steps: int
    steps_to: int | None = None
    seconds: float = 0.0


class RunMetrics(RunScores):
    """The numbers of a run with its curves: exact match and mean loss at evaluations."""

    curve: list[list[float]] = []
    loss: list[list[float]] = []


class ScoreSummary(BaseModel):
    """The results of a run, without its curves.

    counts  of an experiment over lengths: how many of `n` sequences of each length are right
    """

    run: str
    step: int
    metrics: RunScores
    counts: list[dict[str, int]]


class RunSummary(ScoreSummary):
    """The results of a run, as a line of a file."""

    metrics: RunMetrics

    def line(self) -> bytes:
        return self.model_dump_json().encode() + b"\n"


def append_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Add lines to a file, which ends with a whole line afterwards.

    Raises OSError when it cannot be written; then it has none of them.
    """
    path.touch()
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 1))
        is_torn = file.read(1) not in (b"", b"\n")  # a process ended while it wrote
    append(path, b"\n" * is_torn + b"".join(lines), size)


def read_lines(path: Path) -> dict[str, memoryview]:
    """Return the line of each run in a file, without torn lines; who reads a line validates it.

    They are views of the file's bytes: as objects, they would need ten times the memory.
    """
    with suppress(OSError):
        view = read_into_map(path)
        return {each[1].decode(): view[slice(*each.span())] for each in _LINE.finditer(view)}
    return {}
