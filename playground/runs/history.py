"""What a run leaves on disk of every step, so that one can go back to it, also after a restart. No torch in here.

    metrics.jsonl                  a line for every step
    history/143.safetensors        the weights of step 143; attention and answers are computed from them when somebody looks
    history/143.state.safetensors  at a few of these steps, what training on needs beside the weights

Weights are kept at every step early on and thinned on a log scale later: so many in each doubling of the step, as many as
the budget allows. States are kept at equal distances that double when the budget is full.
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

FINENESS = (
    24,
    12,
    6,
    3,
    2,
    1,
)  # weights kept in each doubling of the step; the first is kept until the budget is full
STATE_STRIDE = 16
BUDGET = env_bytes("HISTORY_MB")  # bytes for a run: two thirds weights, one third states
PASSING = 3  # weights that only the live view needs: so many of the latest stay
LONGEST_LINE = 10_000  # bytes of metrics.jsonl; it may be anybody's
WEIGHTS, STATE = ".safetensors", ".state.safetensors"


def on_grid(step: int, fineness: int) -> bool:
    """Whether `step` is among the `fineness` steps kept of its doubling; a finer grid holds every step of a coarser one."""
    return step % (1 << max(0, (step // fineness).bit_length() - 1)) == 0


def weights_path(run: Path, step: int) -> Path:
    return Path(run) / "history" / f"{step}{WEIGHTS}"


def state_path(run: Path, step: int) -> Path:
    return Path(run) / "history" / f"{step}{STATE}"


def kept_steps(run: Path) -> list[int]:
    """The steps whose weights are on disk, in order."""
    return _steps(run, WEIGHTS)


def kept_states(run: Path) -> list[int]:
    """The steps from which training can go on exactly, in order."""
    return sorted(set(_steps(run, STATE)) & set(_steps(run, WEIGHTS)))


def _steps(run: Path, suffix: str) -> list[int]:
    try:
        names = os.listdir(Path(run) / "history")
    except FileNotFoundError:
        return []
    return sorted(step for name in names if (step := _step(name, suffix)) is not None)


def _step(name: str, suffix: str) -> int | None:
    """The step that a file of this kind is of; None for any other file."""
    stem = name.removesuffix(suffix)
    return int(stem) if name.endswith(suffix) and stem.isdecimal() and stem.isascii() else None


def nearest(steps: list[int], step: int) -> int | None:
    """The step among `steps` (in order) that is nearest; the earlier one of two."""
    at = bisect.bisect_left(steps, step)
    around = steps[max(0, at - 1) : at + 1]
    return min(around, key=lambda s: abs(s - step)) if around else None


def thinned(steps: list[int], most: int = 24) -> list[int]:
    """At most so many of these steps, evenly chosen, the first and the last among them; none where there are fewer than two."""
    if len(steps) < 2:
        return []
    return (
        steps
        if len(steps) <= most
        else [steps[i * (len(steps) - 1) // (most - 1)] for i in range(most)]
    )


def read_lines(run: Path) -> Iterator[dict[str, Any]]:
    """The metrics on disk, step by step. A last line that was cut off, as a killed process leaves it, is left out.

    Raises:
        CheckpointError: for any other line that is none, naming it.
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
    """The writing side, for the one process that trains the run.

    Every method that writes raises OSError when the disk does not take it; what was there before is then still there, and
    metrics that could not be written wait for the next call.
    """

    def __init__(self, run: Path, budget: int = BUDGET) -> None:
        self.run, self.folder = Path(run), Path(run) / "history"
        self.budget = budget
        self._fineness = FINENESS[0]
        self._stride = STATE_STRIDE
        self._sizes: dict[str, dict[int, int]] = {
            WEIGHTS: {},
            STATE: {},
        }  # bytes of the files kept, by step
        self._bytes = {WEIGHTS: 0, STATE: 0}
        self._passing: list[int] = []
        self._unwritten: list[bytes] = []
        self._written = 0  # bytes of metrics.jsonl that are whole lines

    def open(self, step: int, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        """Take up a run at `step`: whatever lies beyond is removed, for it will come again. `lines` are the metrics until
        there of a run that has none on disk yet."""
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
        """Append the metrics of some steps."""
        self._unwritten += [as_bytes(line) for line in lines]
        if not self._unwritten:
            return
        data = b"".join(self._unwritten)
        with open(self.run / "metrics.jsonl", "r+b", buffering=0) as file:
            file.seek(self._written)
            try:
                if file.write(data) != len(data):
                    file.write(
                        data[file.tell() - self._written :]
                    )  # raises what made the first one stop short
            except OSError:
                file.truncate(self._written)
                raise
        self._written += len(data)
        self._unwritten.clear()

    def flush(self) -> None:
        """Make the metrics written so far outlive a power cut."""
        with open(self.run / "metrics.jsonl", "r+b") as file:
            os.fsync(file.fileno())

    def wants_weights(self, step: int) -> bool:
        """Whether the weights of this step belong into the history."""
        return on_grid(step, self._fineness)

    def wants_state(self, step: int) -> bool:
        return step > 0 and step % self._stride == 0

    def put_weights(self, step: int, data: bytes, keep: bool = False) -> None:
        """Keep weights, if they belong into the history or a state needs them; otherwise until newer ones have come."""
        self._put(WEIGHTS, step, data)
        if keep or self.wants_weights(step) or step in self._sizes[STATE]:
            self._passing = [other for other in self._passing if other != step]
        elif step not in self._passing:
            self._passing.append(step)
        while len(self._passing) > PASSING:
            self._drop(WEIGHTS, self._passing.pop(0))
        self._thin(WEIGHTS)

    def put_state(self, step: int, data: bytes) -> None:
        """Keep what training on from this step needs beside its weights."""
        self._put(STATE, step, data)
        self._thin(STATE)

    def kept(self) -> list[int]:
        """The steps whose weights are there."""
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
        """Coarsen until what is kept fits. The first and the latest weights stay whatever they weigh, and a step with a state
        keeps its weights."""
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
