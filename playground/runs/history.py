"""The history of a run on disk: metrics, weights and training states by step.

A run can go back to these steps, also after a restart. This module imports no torch.

    metrics.jsonl                  a line for every step
    history/143.safetensors        the weights of step 143, from which views are computed
    history/143.state.safetensors  at some steps, the rest of the training state

Weights are stored at every step at first, and thinned on a log scale later: a fixed number per
doubling of the step, as many as the budget allows. States are stored at equal intervals, which
double when the budget is full.
"""

from __future__ import annotations

import bisect
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from playground.training.environment import env_bytes
from playground.training.files import write_file
from playground.training.manifest import CheckpointError, parse_json

# Weights stored per doubling of the step; the first value applies until the budget is full.
FINENESS = (24, 12, 6, 3, 2, 1)
STATE_STRIDE = 16
BUDGET = env_bytes("HISTORY_MB")  # bytes per run: two thirds weights, one third states
PASSING = 3  # number of the latest weights stored for the live view only
LONGEST_LINE = 10_000  # bytes of metrics.jsonl, which may be an untrusted upload
WEIGHTS, STATE = ".safetensors", ".state.safetensors"


def on_grid(step: int, fineness: int) -> bool:
    """Return whether `step` is on the grid of `fineness` steps per doubling.

    A finer grid contains every step of a coarser one.
    """
    return step % (1 << max(0, (step // fineness).bit_length() - 1)) == 0


def weights_path(run: Path, step: int) -> Path:
    return Path(run) / "history" / f"{step}{WEIGHTS}"


def state_path(run: Path, step: int) -> Path:
    return Path(run) / "history" / f"{step}{STATE}"


def kept_steps(run: Path) -> list[int]:
    """Return the steps whose weights are on disk, in order."""
    return _steps(run, WEIGHTS)


def kept_states(run: Path) -> list[int]:
    """Return the steps from which training can resume exactly, in order."""
    return sorted(set(_steps(run, STATE)) & set(_steps(run, WEIGHTS)))


def _steps(run: Path, suffix: str) -> list[int]:
    try:
        names = os.listdir(Path(run) / "history")
    except FileNotFoundError:
        return []
    return sorted(step for name in names if (step := _step(name, suffix)) is not None)


def _step(name: str, suffix: str) -> int | None:
    """Return the step of a file with this suffix; None for any other file."""
    stem = name.removesuffix(suffix)
    return int(stem) if name.endswith(suffix) and stem.isdecimal() and stem.isascii() else None


def nearest(steps: list[int], step: int) -> int | None:
    """Return the nearest of `steps` (sorted); the earlier one of two."""
    at = bisect.bisect_left(steps, step)
    around = steps[max(0, at - 1) : at + 1]
    return min(around, key=lambda s: abs(s - step)) if around else None


def thinned(steps: list[int], most: int = 24) -> list[int]:
    """Return at most `most` evenly spaced steps, with the first and the last.

    Fewer than two steps give an empty list.
    """
    if len(steps) < 2:
        return []
    return (
        steps
        if len(steps) <= most
        else [steps[i * (len(steps) - 1) // (most - 1)] for i in range(most)]
    )


def read_lines(run: Path) -> Iterator[dict[str, Any]]:
    """Yield the metrics on disk, step by step.

    An incomplete last line, as a killed process leaves it, is skipped.

    Raises:
        CheckpointError: for any other invalid line, with its number.
    """
    path = Path(run) / "metrics.jsonl"
    if not path.is_file():
        return
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
            if len(line) > LONGEST_LINE:
                raise CheckpointError(
                    f"{path}, line {number}: it is longer than a step's metrics are"
                )
            if not line.endswith(b"\n"):
                return
            try:
                content = parse_json(line)
                if not isinstance(content, dict) or type(content["step"]) is not int:
                    raise ValueError("it is no step's metrics")
            except (ValueError, KeyError) as error:
                raise CheckpointError(f"{path}, line {number}: {error}") from None
            yield content


class History:
    """The writer of a history, for the one process that trains the run.

    Every method that writes raises OSError if the write fails. The earlier files then remain, and
    unwritten metrics are written by the next call.
    """

    def __init__(self, run: Path, budget: int = BUDGET) -> None:
        self.run, self.folder = Path(run), Path(run) / "history"
        self.budget = budget
        self._fineness = FINENESS[0]
        self._stride = STATE_STRIDE
        # bytes of the stored files, by step
        self._sizes: dict[str, dict[int, int]] = {WEIGHTS: {}, STATE: {}}
        self._bytes = {WEIGHTS: 0, STATE: 0}
        self._passing: list[int] = []
        self._unwritten: list[bytes] = []
        self._written = 0  # bytes of complete lines in metrics.jsonl

    def open(self, step: int, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        """Open the history at `step` and remove everything after it.

        Args:
            lines: the metrics up to `step` of a run that has none on disk yet.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in os.listdir(self.folder):
            suffix = STATE if name.endswith(STATE) else WEIGHTS
            at = _step(name, suffix)
            if at is not None and at <= step:
                self._count(suffix, at, (self.folder / name).stat().st_size)
            else:
                os.unlink(self.folder / name)
        for suffix in (WEIGHTS, STATE):
            self._thin(suffix)
        path = self.run / "metrics.jsonl"
        kept = [as_bytes(line) for line in lines] or [
            as_bytes(line) for line in read_lines(self.run) if line["step"] <= step
        ]
        data = b"".join(kept)
        if not path.is_file() or path.stat().st_size != len(data):
            write_file(path, data)
        self._written = len(data)

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append metrics to the file."""
        self._unwritten += [as_bytes(line) for line in lines]
        if not self._unwritten:
            return
        data = b"".join(self._unwritten)
        with open(self.run / "metrics.jsonl", "r+b", buffering=0) as file:
            file.seek(self._written)
            try:
                if file.write(data) != len(data):
                    # Raises the error that interrupted the first write.
                    file.write(data[file.tell() - self._written :])
            except OSError:
                file.truncate(self._written)
                raise
        self._written += len(data)
        self._unwritten.clear()

    def flush(self) -> None:
        """Flush the written metrics to the disk, so that they survive a power failure."""
        with open(self.run / "metrics.jsonl", "r+b") as file:
            os.fsync(file.fileno())

    def wants_weights(self, step: int) -> bool:
        """Return whether the history stores the weights of this step."""
        return on_grid(step, self._fineness)

    def wants_state(self, step: int) -> bool:
        return step > 0 and step % self._stride == 0

    def put_weights(self, step: int, data: bytes, keep: bool = False) -> None:
        """Store weights: permanently, or until newer ones replace them.

        They are permanent with `keep`, on the grid of the history, or if a state needs them.
        """
        self._put(WEIGHTS, step, data)
        if keep or self.wants_weights(step) or step in self._sizes[STATE]:
            self._passing = [other for other in self._passing if other != step]
        elif step not in self._passing:
            self._passing.append(step)
        while len(self._passing) > PASSING:
            self._drop(WEIGHTS, self._passing.pop(0))
        self._thin(WEIGHTS)

    def put_state(self, step: int, data: bytes) -> None:
        """Store the training state of this step, which its weights do not contain."""
        self._put(STATE, step, data)
        self._thin(STATE)

    def kept(self) -> list[int]:
        """Return the steps whose weights are stored, in order."""
        return sorted(self._sizes[WEIGHTS])

    def _put(self, suffix: str, step: int, data: bytes) -> None:
        write_file(self.folder / f"{step}{suffix}", data, flush=False)
        self._count(suffix, step, len(data))

    def _drop(self, suffix: str, step: int) -> None:
        self._count(suffix, step, 0)
        with suppress(FileNotFoundError):
            os.unlink(self.folder / f"{step}{suffix}")

    def _count(self, suffix: str, step: int, size: int) -> None:
        self._bytes[suffix] += size - self._sizes[suffix].pop(step, 0)
        if size:
            self._sizes[suffix][step] = size

    def _thin(self, suffix: str) -> None:
        """Coarsen the grid until the files fit into the budget.

        The first and the latest weights stay whatever their size. A step with a state keeps its
        weights.
        """
        share = self.budget * (1 if suffix == STATE else 2) // 3
        while self._bytes[suffix] > share:
            steps = list(self._sizes[suffix])
            if suffix == STATE:
                self._stride *= 2
                out = [step for step in steps if step % self._stride]
            else:
                coarser = [fineness for fineness in FINENESS if fineness < self._fineness]
                self._fineness = coarser[0] if coarser else self._fineness
                stay = {0, max(steps), *self._passing, *self._sizes[STATE]}
                out = [
                    step
                    for step in steps
                    if step not in stay and not (coarser and on_grid(step, self._fineness))
                ]
                if not coarser and not out:
                    return
            for step in out:
                self._drop(suffix, step)


def as_bytes(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, separators=(", ", ": ")).encode() + b"\n"
