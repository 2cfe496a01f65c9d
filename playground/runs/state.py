"""A run in the server process: its record, and the state of its worker and its viewers.

Polls take no lock. They read two immutable objects that other threads replace as a whole: the
record (`record.py`) and `LiveData`.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from playground.checkpoints.manifest import CheckpointError, Manifest, cached_manifest
from playground.checkpoints.metrics import read_metrics
from playground.common.atomic_write import storing, write_file
from playground.jobs.admission import Client
from playground.jobs.job import Response
from playground.jobs.process import WorkerProcess
from playground.training.run_config import RunConfig
from playground.training.setting_changes import SettingChange

from .metric_series import MetricSeries, thin_scores
from .record import WEIGHTS_EVICTED, RunRecord
from .weight_history import state_steps, weight_steps
from .worker_protocol import PINNED_SUFFIX

MAX_PENDING_POINTS = 2000  # points
RESUMABLE_STATUSES = ("paused", "stopped", "failed")
Value = TypeVar("Value")


class _HeldLocks(threading.local):
    """The number of record locks of this thread, and the runs to write after their release."""

    def __init__(self) -> None:
        self.depth, self.pending_writes = 0, list["Run"]()


_held_locks = _HeldLocks()


class _UseClock:
    """The time of the last use of runs, which the quota sorts by. It never goes back."""

    def __init__(self) -> None:
        self._latest, self._lock = 0.0, threading.Lock()

    def observe(self, used_at: float) -> None:
        with self._lock:
            self._latest = max(self._latest, used_at)

    def tick(self) -> float:
        with self._lock:
            self._latest = max(self._latest + 1e-3, time.time())
            return self._latest


_use_clock = _UseClock()


class RecordLock:
    """A reentrant lock that is never held during disk access, so that no request waits for a disk.

    Records that change while a thread holds such locks are written when it releases the last one.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()
        _held_locks.depth += 1

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        _held_locks.depth -= 1
        if _held_locks.depth == 0 and _held_locks.pending_writes:
            due, _held_locks.pending_writes = list(dict.fromkeys(_held_locks.pending_writes)), []
            for run in due:
                run.write_now()


class RecordField(Generic[Value]):
    """A field of the record that can be read from the run itself."""

    def __set_name__(self, owner: type[Run], name: str) -> None:
        self.name = name

    def __get__(self, run: Run, owner: type[Run]) -> Value:
        value: Value = getattr(run.record, self.name)
        return value


@dataclass(frozen=True)
class LiveData:
    """What the live view of a run draws, beside the record. It is replaced as a whole.

    New points are appended to `points`, which a reader may use at the same time.
    """

    points: MetricSeries | None = None  # None: not loaded from disk
    # id of the series of points; a new one when the series restarts
    series_id: int = field(default_factory=lambda: secrets.randbelow(2**31))
    weight_steps: tuple[int, ...] | None = None  # steps with weights on disk; None: not loaded
    latest_weights_step: int | None = None  # the latest of these steps
    snapshot: dict[str, Any] | None = None
    probe_info: dict[str, Any] | None = None
    snapshot_version: int = 0  # number of snapshots so far, so that a page requests only newer ones
    checkpoint_version: int = 0  # number of checkpoints written or removed


class Run:
    """A run: its record, and its state in memory. `update` and `update_live` change them."""

    id = RecordField[str]()
    share_id = RecordField[str]()
    owner = RecordField[str]()
    name = RecordField[str]()
    config = RecordField[RunConfig]()
    created = RecordField[float]()
    status = RecordField[str]()
    message = RecordField[str]()
    changes = RecordField[tuple[SettingChange, ...]]()
    scores = RecordField[dict[str, Any] | None]()
    step = RecordField[int]()
    best = RecordField[float | None]()
    seconds = RecordField[float]()
    device = RecordField[str]()
    hidden = RecordField[bool]()
    deleted_at = RecordField[float | None]()
    branched_from = RecordField[tuple[str, int] | None]()
    trained_seconds = RecordField[float]()
    evicted = RecordField[str]()
    imported = RecordField[bool]()
    address = RecordField[str]()
    steps = RecordField[int]()
    learning_rate = RecordField[float]()
    max_steps_per_second = RecordField[float]()
    diverged = RecordField[bool]()
    modified_settings = RecordField[list[str]]()

    def __init__(self, record: RunRecord, folder: Path) -> None:
        now = time.monotonic()
        self.record, self.live, self.folder = record, LiveData(), folder
        self.size_bytes: int | None = None  # bytes on disk; None: unknown or changing
        # time of deletion by the monotonic clock, which cannot be changed
        deleted_at = record.deleted_at
        self.deleted_at_monotonic = now - max(0.0, time.time() - deleted_at) if deleted_at else 0.0
        # Locks: `loading_lock` and `writing_lock` are taken before `lock` only.
        self.lock = RecordLock()
        self.loading_lock, self.writing_lock = threading.Lock(), threading.Lock()
        # whether the pending write of the record is flushed; None: no write is pending
        self.write_pending: bool | None = None
        # points that `load_points` will append
        self.pending_points: list[dict[str, Any]] = []
        # viewers
        self.last_viewed_at = now
        self.viewer_client: Client | None = None  # of the last poll, whose quota snapshots use
        self.viewer_active = False  # the last value sent to the worker
        # inspection
        self.snapshot_pending = False
        self.failed_snapshots = 0  # failed snapshots in a row
        self.pending_requests: set[Future[Response]] = set()
        # the worker
        self.worker: WorkerProcess | None = None
        self.first_command = "train"  # first command of its worker: "train" or "step"
        self.next_command = ""  # first command of the next worker, after the current one has exited
        self.command_sent_at: float | None = None  # time of the first command without a response
        self.last_message_at = self.paused_at = now
        self.cpu_seconds = 0.0  # CPU seconds of the worker at its last sign of activity
        self.exiting = False  # the worker saves and exits
        self.forced_status: tuple[str, str] | None = None  # status and message after a kill

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Read the run of a folder; a run that was active becomes paused.

        Raises ValueError if run.json is missing or invalid.
        """
        run = cls(RunRecord.read(folder), folder)
        _use_clock.observe((folder / "run.json").stat().st_mtime)
        return run

    @property
    def has_worker(self) -> bool:
        worker = self.worker  # another thread may clear it
        return worker is not None and not worker.exited.is_set()

    @property
    def is_deleted(self) -> bool:
        """Whether its owner deleted it; it can still be restored."""
        return self.deleted_at is not None

    @property
    def is_resumable(self) -> bool:
        """Whether its owner can continue it, from what is on disk."""
        return self.status in RESUMABLE_STATUSES and self.evicted != WEIGHTS_EVICTED

    def send_command(self, *command: Any) -> bool:
        """Send a command to the worker; return False if it cannot be delivered."""
        worker = self.worker
        return worker is not None and worker.send(*command)

    # Changes

    def update(self, **changes: Any) -> None:
        """Replace fields of the record. `write` stores them."""
        with self.lock:
            self.record = self.record.replace(**changes)

    def update_live(self, **changes: Any) -> None:
        """Replace fields of the live data."""
        with self.lock:
            self.live = dataclasses.replace(self.live, **changes)

    def count_checkpoint_change(self) -> None:
        """Let pages reload the list of checkpoints, after one was written or removed."""
        with self.lock:
            self.update_live(checkpoint_version=self.live.checkpoint_version + 1)
            self.size_bytes = None

    def write(self, flush: bool = False) -> None:
        """Write the record as soon as this thread holds no record lock; `flush` it to the disk."""
        with self.lock:
            self.write_pending = bool(self.write_pending) or flush
            _held_locks.pending_writes.append(self)

    def write_now(self) -> None:
        """Write the record if a write is pending. The caller must not hold the lock.

        A failed write sets the message of the run. It stays pending, and housekeeping tries again.
        """
        with self.writing_lock:
            with self.lock:
                flush, self.write_pending = self.write_pending, None
                record = self.record
            if flush is None or not self.folder.is_dir():
                return
            try:
                self._write_record(record, flush)
            except OSError as error:
                path = f"{self.folder.name}{os.sep}run.json"
                reason = f"could not write {path}: {error.strerror or error}"
                with self.lock:
                    self.write_pending = flush
                    self.update(message=self.message or reason)

    def save(self, **changes: Any) -> None:
        """Change fields of the record as soon as they are on disk. The caller must hold no lock.

        Raises OSError if they cannot be written; the run is unchanged then.
        """
        with self.writing_lock:
            self._write_record(self.record.replace(**changes), flush=True)
            self.update(**changes)

    def store(self, what: str, **changes: Any) -> None:
        """Do the same as `save` for a user; raises UserError, in which `what` names them."""
        with storing(what):
            self.save(**changes)

    def _write_record(self, record: RunRecord, flush: bool) -> None:
        path, used_at = self.folder / "run.json", _use_clock.tick()
        write_file(path, record.to_json(), flush=flush)
        os.utime(path, (used_at, used_at))

    # Data on disk

    def load_points(self) -> MetricSeries:
        """Return the points, from disk if necessary. The caller must not hold the lock."""
        if (points := self.live.points) is not None:
            return points
        with self.loading_lock:
            if (points := self.live.points) is not None:
                return points
            loaded, error_message = MetricSeries(), ""
            try:
                loaded.add(read_metrics(self.folder))
            except (CheckpointError, ValueError, OSError) as error:
                error_message = f"the metrics are incomplete: {error}"
            stored_step = self.resume_step(loaded) if self.is_resumable else loaded.last
            with self.lock:
                with suppress(ValueError):  # a gap; the next load reads them from disk
                    loaded.add(
                        line
                        for line in self.pending_points
                        if line["step"] > loaded.last or not len(loaded)
                    )
                self.pending_points = []
                self.update_live(points=loaded, series_id=secrets.randbelow(2**31))
                self.update(
                    message=self.message or error_message,
                    best=max_score(self.best, loaded.best),
                    curve=loaded.scores,
                    # A killed server may not have written the last step to run.json.
                    step=self.step if self.has_worker or not len(loaded) else stored_step,
                )
            return loaded

    def append_points(self, lines: list[dict[str, Any]]) -> None:
        """Append the metrics of a worker's message. Needs the lock."""
        if (points := self.live.points) is None:
            # older ones are on disk
            self.pending_points = [*self.pending_points, *lines][-MAX_PENDING_POINTS:]
        else:
            try:  # points that were loaded from disk may include those of this message
                points.add(line for line in lines if not len(points) or line["step"] > points.last)
            except ValueError:
                self.update_live(points=None)
                self.pending_points = list(lines)
        if lines:
            first = lines[0]["step"]
            scores = [
                (each["step"], each["exact_match"]) for each in lines if "exact_match" in each
            ]
            earlier = (each for each in self.record.curve if each[0] < first)
            self.update(
                scores=None,  # they were of an earlier step
                imported=False,
                step=lines[-1]["step"],
                seconds=lines[-1]["seconds"],
                best=max_score(self.best, *(score for _, score in scores)),
                curve=thin_scores([*earlier, *scores]),
            )

    def load_weight_steps(self) -> tuple[int, ...]:
        """Return the steps with stored weights. The caller must not hold the lock."""
        cached_steps = self.live.weight_steps
        while cached_steps is None:
            with self.loading_lock:
                steps = tuple(weight_steps(self.folder))
                with self.lock:
                    if self.live.weight_steps is None:
                        self.update_live(
                            weight_steps=steps, latest_weights_step=steps[-1] if steps else None
                        )
                    cached_steps = self.live.weight_steps
        return cached_steps

    def score_at(self, step: int) -> float | None:
        """Return the exact match at a step; None if it was not evaluated there."""
        evaluations = reversed(self.load_points().evaluations)
        return next((score for at, score, *_ in evaluations if at == step), None)

    def checkpoint_folders(self) -> list[Path]:
        """Return the folders of the checkpoints, also of damaged ones, newest first."""
        return sorted((self.folder / "checkpoints").glob("[0-9]*"), reverse=True)

    def checkpoints(self) -> list[tuple[Path, Manifest]]:
        """Return the readable checkpoints, newest first."""
        checkpoints = []
        for path in self.checkpoint_folders():
            # The worker reports an unreadable checkpoint and uses the one before.
            with suppress(ValueError, OSError):
                checkpoints.append((path, cached_manifest(path)))
        return sorted(
            checkpoints,
            key=lambda each: (each[1].step, not each[0].name.endswith(PINNED_SUFFIX)),
            reverse=True,
        )

    def resume_step(self, points: MetricSeries | None = None) -> int:
        """Return the step at which Resume continues: of a checkpoint, or else of a state.

        `points`: those on disk; None to read them if they are needed.
        """
        steps = [
            manifest.step
            for path, manifest in self.checkpoints()
            if (path / "training.safetensors").is_file()
        ]
        if not steps:
            last_step = (self.load_points() if points is None else points).last
            steps = [step for step in state_steps(self.folder) if step <= last_step]
        return max(steps, default=0)

    def resume_message(self) -> str:
        """Return where a run without a process continues, as the end of a sentence."""
        return f"Resume continues at step {self.resume_step()}"


def max_score(*scores: float | None) -> float | None:
    """Return the highest of the scores that are not None."""
    return max((score for score in scores if score is not None), default=None)
