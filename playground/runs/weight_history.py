"""The history of a run on disk: metrics, weights and training states by step.

A run can go back to these steps, also after a restart.

    metrics.jsonl                  a line for every step
    history/143.safetensors        the weights of step 143, from which views are computed
    history/143.state.safetensors  at some steps, the rest of the training state

Weights are stored at every step at first, and thinned on a log scale later: a fixed number per
doubling of the step, as many as the budget allows. States are stored at equal intervals, which
double when the budget is full.
"""

import bisect
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from playground.checkpoints.metrics import read_metrics
from playground.common.atomic_write import append, write_file
from playground.common.env import env_bytes

# Weights stored per doubling of the step; the first value applies until the budget is full.
WEIGHTS_PER_DOUBLING = (24, 12, 6, 3, 2, 1)
STATE_EVERY_N_WEIGHTS = 16
BUDGET_BYTES = env_bytes("HISTORY_MB")  # bytes per run: two thirds weights, one third states
TRANSIENT_WEIGHTS = 3  # number of the latest weights stored for the live view only
NO_WEIGHTS = "this run has no stored weights yet"
WEIGHTS_SUFFIX, STATE_SUFFIX = ".safetensors", ".state.safetensors"


def is_retained(step: int, weights_per_doubling: int) -> bool:
    """Return whether `step` is on the grid of `weights_per_doubling` steps per doubling.

    A finer grid contains every step of a coarser one.
    """
    return step % (1 << max(0, (step // weights_per_doubling).bit_length() - 1)) == 0


def weights_path(run: Path, step: int) -> Path:
    return Path(run) / "history" / f"{step}{WEIGHTS_SUFFIX}"


def state_path(run: Path, step: int) -> Path:
    return Path(run) / "history" / f"{step}{STATE_SUFFIX}"


def weight_steps(run: Path) -> list[int]:
    """Return the steps whose weights are on disk, in order."""
    return _steps(run, WEIGHTS_SUFFIX)


def state_steps(run: Path) -> list[int]:
    """Return the steps from which training can resume exactly, in order."""
    return sorted(set(_steps(run, STATE_SUFFIX)) & set(_steps(run, WEIGHTS_SUFFIX)))


def _steps(run: Path, suffix: str) -> list[int]:
    try:
        names = os.listdir(Path(run) / "history")
    except FileNotFoundError:
        return []
    return sorted(step for name in names if (step := _parse_step(name, suffix)) is not None)


def _parse_step(name: str, suffix: str) -> int | None:
    """Return the step of a file with this suffix; None for any other file."""
    stem = name.removesuffix(suffix)
    return int(stem) if name.endswith(suffix) and stem.isdecimal() and stem.isascii() else None


def nearest_step(steps: list[int], step: int) -> int | None:
    """Return the nearest of `steps` (sorted); the earlier one of two."""
    at = bisect.bisect_left(steps, step)
    around = steps[max(0, at - 1) : at + 1]
    return min(around, key=lambda s: abs(s - step)) if around else None


def find_weights(run: Path, step: int) -> int | None:
    """Return the step with weights on disk that is nearest to `step`; None if there is none."""
    return step if weights_path(run, step).is_file() else nearest_step(weight_steps(run), step)


class WeightHistory:
    """The writer of a history, for the one process that trains the run.

    Every method that writes raises OSError if the write fails. The earlier files then remain, and
    unwritten metrics are written by the next call.
    """

    def __init__(self, run: Path, budget: int = BUDGET_BYTES) -> None:
        self.run, self.folder = Path(run), Path(run) / "history"
        self.budget = budget
        self._density_level = WEIGHTS_PER_DOUBLING[0]
        self._stride = STATE_EVERY_N_WEIGHTS
        # bytes of the stored files, by step
        self._sizes: dict[str, dict[int, int]] = {WEIGHTS_SUFFIX: {}, STATE_SUFFIX: {}}
        self._bytes = {WEIGHTS_SUFFIX: 0, STATE_SUFFIX: 0}
        self._transient: list[int] = []
        self._pending_lines: list[bytes] = []
        self._written_bytes = 0  # bytes of complete lines in metrics.jsonl

    def open(self, step: int, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        """Open the history at `step` and remove everything after it.

        `lines`: the metrics up to `step` of a run that has none on disk yet.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in os.listdir(self.folder):
            suffix = STATE_SUFFIX if name.endswith(STATE_SUFFIX) else WEIGHTS_SUFFIX
            at = _parse_step(name, suffix)
            if at is not None and at <= step:
                self._count_bytes(suffix, at, (self.folder / name).stat().st_size)
            else:
                os.unlink(self.folder / name)
        for suffix in (WEIGHTS_SUFFIX, STATE_SUFFIX):
            self._coarsen(suffix)
        path = self.run / "metrics.jsonl"
        saved_lines = [encode_line(line) for line in lines] or [
            encode_line(line) for line in read_metrics(self.run, step)
        ]
        data = b"".join(saved_lines)
        if not path.is_file() or path.stat().st_size != len(data):
            write_file(path, data)
        self._written_bytes = len(data)

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append metrics to the file."""
        self._pending_lines += [encode_line(line) for line in lines]
        if not self._pending_lines:
            return
        data = b"".join(self._pending_lines)
        append(self.run / "metrics.jsonl", data, self._written_bytes)
        self._written_bytes += len(data)
        self._pending_lines.clear()

    def flush(self) -> None:
        """Flush the written metrics to the disk, so that they survive a power failure."""
        with open(self.run / "metrics.jsonl", "r+b") as file:
            os.fsync(file.fileno())

    def should_save_weights(self, step: int) -> bool:
        return is_retained(step, self._density_level)

    def should_save_state(self, step: int) -> bool:
        return step > 0 and step % self._stride == 0

    def save_weights(self, step: int, data: bytes, keep: bool = False) -> None:
        """Store weights: permanently, or until newer ones replace them.

        They are permanent with `keep`, on the grid of the history, or if a state needs them.
        """
        self._save(WEIGHTS_SUFFIX, step, data)
        if keep or self.should_save_weights(step) or step in self._sizes[STATE_SUFFIX]:
            self._transient = [other for other in self._transient if other != step]
        elif step not in self._transient:
            self._transient.append(step)
        while len(self._transient) > TRANSIENT_WEIGHTS:
            self._remove(WEIGHTS_SUFFIX, self._transient.pop(0))
        self._coarsen(WEIGHTS_SUFFIX)

    def save_state(self, step: int, data: bytes) -> None:
        """Store the training state of this step, which its weights do not contain."""
        self._save(STATE_SUFFIX, step, data)
        self._coarsen(STATE_SUFFIX)

    def steps(self) -> list[int]:
        """Return the steps whose weights are stored, in order."""
        return sorted(self._sizes[WEIGHTS_SUFFIX])

    def _save(self, suffix: str, step: int, data: bytes) -> None:
        write_file(self.folder / f"{step}{suffix}", data, flush=False)
        self._count_bytes(suffix, step, len(data))

    def _remove(self, suffix: str, step: int) -> None:
        self._count_bytes(suffix, step, 0)
        with suppress(FileNotFoundError):
            os.unlink(self.folder / f"{step}{suffix}")

    def _count_bytes(self, suffix: str, step: int, size: int) -> None:
        self._bytes[suffix] += size - self._sizes[suffix].pop(step, 0)
        if size:
            self._sizes[suffix][step] = size

    def _coarsen(self, suffix: str) -> None:
        """Coarsen the grid until the files fit into the budget.

        The first and the latest weights are never removed. A step with a state keeps its
        weights.
        """
        share = self.budget * (1 if suffix == STATE_SUFFIX else 2) // 3
        while self._bytes[suffix] > share:
            steps = list(self._sizes[suffix])
            if suffix == STATE_SUFFIX:
                self._stride *= 2
                out = [step for step in steps if step % self._stride]
            else:
                coarser = [each for each in WEIGHTS_PER_DOUBLING if each < self._density_level]
                self._density_level = coarser[0] if coarser else self._density_level
                stay = {0, max(steps), *self._transient, *self._sizes[STATE_SUFFIX]}
                stay |= {s for s in steps if coarser and is_retained(s, self._density_level)}
                out = [step for step in steps if step not in stay]
                if not coarser and not out:
                    return
            for step in out:
                self._remove(suffix, step)


def encode_line(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, separators=(", ", ": ")).encode() + b"\n"
