"""The state of one run in the server process, and its record on disk.

A run's folder contains:

    run.json                   the record: owner, configuration and status (this module)
    metrics.jsonl  history/    metrics and weights by step (`weight_history.py`)
    checkpoints/               a folder per checkpoint, named by its step; see
                               `checkpoints/checkpoint.py`
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from playground.architectures import ARCHITECTURES
from playground.checkpoints.manifest import (
    CheckpointError,
    Manifest,
    is_number,
    read_json,
    read_manifest,
    validate_scores,
)
from playground.common.atomic_write import write_file
from playground.common.devices import ZERO_GPU, is_zero_gpu
from playground.compat import upgrade_run_record
from playground.jobs.addresses import Client
from playground.jobs.process import WorkerProcess
from playground.models.config_fields import short_repr
from playground.training.config import RunConfig
from playground.training.setting_changes import (
    RESULT_NEUTRAL_SETTINGS,
    SettingChange,
    config_at_step,
)

from .metric_series import MetricSeries
from .weight_history import read_lines, weight_steps

ACTIVE_STATUSES = ("starting", "training", "stopping")  # statuses with an active worker
TERMINAL_STATUSES = ("done", "stopped", "failed")
MAX_PENDING_POINTS = 2000  # points
MAX_NAME_LENGTH = 80
DIVERGED_MESSAGE = "training diverged"  # start of the message of a diverged run
NO_USABLE_CHECKPOINT = "no checkpoint of this run can be used"
# values of `evicted`: evicted history or weights
HISTORY_THINNED, WEIGHTS_EVICTED = ("thinned", "emptied")
PINNED_SUFFIX = "-kept"  # suffix of the folder of a checkpoint that the owner saved


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_time(value: object) -> bool:
    return is_number(value) and value >= 0  # type: ignore[operator]


def _is_scores(value: object) -> bool:
    if value is not None:
        validate_scores(value)
    return True


# The fields of run.json beside the configuration, with their validators: the file is untrusted.
RECORD_FIELDS: dict[str, Callable[[Any], bool]] = {
    "id": _is_text,
    "share_id": _is_text,
    "owner": _is_text,
    "name": _is_text,
    "created": _is_time,
    "status": lambda value: value in ("waiting", "paused", *ACTIVE_STATUSES, *TERMINAL_STATUSES),
    "message": lambda value: isinstance(value, str),
    "scores": _is_scores,
    "step": _is_count,
    "best": lambda value: value is None or (is_number(value) and 0 <= value <= 1),
    "seconds": _is_time,
    "device": lambda value: isinstance(value, str),
    "hidden": lambda value: isinstance(value, bool),
    "deleted_at": lambda value: value is None or _is_time(value),
    "trained_seconds": _is_time,
    "evicted": lambda value: value in ("", HISTORY_THINNED, WEIGHTS_EVICTED),
    "imported": lambda value: isinstance(value, bool),
}
# Defaults of the fields that earlier versions did not write.
RECORD_DEFAULTS: dict[str, Any] = {"trained_seconds": 0.0, "evicted": "", "imported": False}

Response = dict[str, Any]


@dataclass(frozen=True)
class WorkerSpec:
    """The specification for a worker."""

    folder: str
    config: dict[str, Any]
    changes: list[list[Any]] = field(default_factory=list)
    first_command: str = "train"  # or "step"
    branched_from: tuple[str, int] | None = None  # folder and step that this run branches from
    trained_seconds: float = 0.0  # seconds of training so far
    time_slice_s: float = 0.0  # of a slice, after which the worker saves and exits; 0: no limit
    threads: int = 0  # the maximum, whatever the settings are; 0: no maximum


def max_score(*scores: float | None) -> float | None:
    """Return the highest of the scores that are not None."""
    return max((score for score in scores if score is not None), default=None)


def owner_id(owner_key: str) -> str:
    """Return the hash of an owner's key, which the server stores instead of the key."""
    return hashlib.sha256(owner_key.encode("utf-8", "replace")).hexdigest()


class _HeldLocks(threading.local):
    """The number of record locks of this thread, and the runs to write after their release."""

    depth = 0

    def __init__(self) -> None:
        self.pending_writes: list[Run] = []


_held_locks = _HeldLocks()


class RecordLock:
    """A reentrant lock that is never held during disk access, because the event loop takes it.

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


@dataclass(eq=False)
class Run:
    """A run, with its persistent record and its state in memory.

    `id` identifies it for its owner, and `share_id` in share links. Neither can be guessed.

    Statuses: waiting (for a slot or a ZeroGPU slice), starting, training, paused (at first with a
    worker, later without), stopping, done, stopped, failed.
    """

    id: str
    share_id: str
    owner: str  # the owner's fingerprint
    name: str
    config: RunConfig
    folder: Path
    created: float = field(default_factory=time.time)
    status: str = "waiting"
    message: str = ""
    changes: list[SettingChange] = field(default_factory=list)
    scores: dict[str, Any] | None = None
    step: int = 0
    best: float | None = None
    seconds: float = 0.0
    device: str = ""
    hidden: bool = False
    deleted_at: float | None = None  # by the wall clock
    trained_seconds: float = 0.0  # seconds of training on this server, without pauses
    evicted: str = ""  # the evicted data: THINNED, EMPTIED or nothing
    failed_snapshots: int = 0  # failed snapshots in a row
    imported: bool = False  # an imported checkpoint that was not trained further
    branched_from: tuple[str, int] | None = None  # folder name and step of the run it branched from

    # Not stored in run.json
    deleted_at_monotonic: float = (
        0.0  # time of deletion by the monotonic clock, which cannot be changed
    )
    address: str = ""  # of the client that started it
    first_command: str = "train"  # first command of its worker: "train" or "step"
    points: MetricSeries | None = None  # None: not loaded from disk
    # id of the series of points; a new one when the series restarts
    series_id: int = field(default_factory=lambda: secrets.randbelow(2**31))
    weight_steps: list[int] | None = None  # steps with weights on disk; None: not loaded
    latest_weights_step: int | None = None  # the latest of these steps
    snapshot: dict[str, Any] | None = None
    probe_info: dict[str, Any] | None = None
    snapshot_version: int = 0  # number of snapshots so far, so that a page requests only newer ones
    snapshot_pending: bool = False  # a snapshot is pending
    checkpoint_version: int = 0  # number of checkpoints written or removed
    worker: WorkerProcess | None = None
    last_viewed_at: float = field(default_factory=time.monotonic)
    viewer_client: Client | None = None  # client of the last poll, whose quota snapshots use
    viewer_active: bool = False  # the last value sent to the worker
    next_command: str = ""  # first command of the next worker, after the current one has exited
    command_sent_at: float | None = None  # time of the first command without a response
    # points that `load` will append
    pending_points: list[dict[str, Any]] = field(default_factory=list)
    memory_wait_since: float | None = None  # start of the wait for memory
    pause_pending: bool = False  # a pause was sent to the current slice
    exiting: bool = False  # the worker saves and exits
    last_message_at: float = field(default_factory=time.monotonic)  # time of the last message
    forced_status: tuple[str, str] | None = None  # status and message after the worker is killed
    cpu_seconds: float = 0.0  # CPU seconds of the worker at its last sign of activity
    paused_at: float = field(default_factory=time.monotonic)
    # pending inspection requests
    pending_requests: set[Future[Response]] = field(default_factory=set)
    size_bytes: int | None = None  # bytes on disk; None: unknown or changing
    lock: RecordLock = field(default_factory=RecordLock)
    loading_lock: threading.Lock = field(default_factory=threading.Lock)  # taken before `lock` only
    writing_lock: threading.Lock = field(default_factory=threading.Lock)  # taken before `lock` only
    # a list of changes and its number
    _changes_version: tuple[list[SettingChange] | None, int] = (None, 0)
    # Whether the pending write of the record is flushed; None: no write is pending.
    write_pending: bool | None = None

    @property
    def has_worker(self) -> bool:
        """Whether it has a worker process."""
        worker = self.worker  # another thread may clear it
        return worker is not None and not worker.exited.is_set()

    @property
    def uses_zerogpu(self) -> bool:
        """Whether it trains in ZeroGPU slices (`zerogpu.py`)."""
        return self.config.training.device == ZERO_GPU and is_zero_gpu()

    @property
    def awaits_zerogpu(self) -> bool:
        """Whether the page should request the next slice."""
        return self.uses_zerogpu and self.status == "waiting" and not self.has_worker

    @property
    def steps(self) -> int:
        """The total number of steps."""
        return config_at_step(self.config.training, self.changes, max(self.step, 0)).max_steps

    @property
    def diverged(self) -> bool:
        """Whether it ended because the loss or the gradient was not finite."""
        return self.status == "failed" and self.message.startswith(DIVERGED_MESSAGE)

    @property
    def modified_settings(self) -> list[str]:
        """The settings that were changed from `config`, without those of the live view."""
        own = self.config.training
        return sorted(
            {
                c.setting
                for c in self.changes
                if c.setting not in RESULT_NEUTRAL_SETTINGS and c.value != getattr(own, c.setting)
            }
        )

    @property
    def changes_version(self) -> int:
        """A checksum that identifies the list of changes."""
        versioned_changes, version = self._changes_version
        if versioned_changes is not self.changes:
            version = zlib.crc32(json.dumps([change.to_list() for change in self.changes]).encode())
            self._changes_version = self.changes, version
        return version

    @property
    def max_steps_per_second(self) -> float:
        """The current maximum of steps per second; 0 for no maximum."""
        return next(
            (
                c.value
                for c in reversed(self.changes)
                if c.setting == "speed" and c.step <= self.step
            ),
            0.0,
        )

    @property
    def learning_rate(self) -> float:
        """The current base learning rate of the schedule."""
        return config_at_step(self.config.training, self.changes, self.step).learning_rate

    def send_command(self, *command: Any) -> bool:
        """Send a command to the worker; return False if it cannot be delivered."""
        worker = self.worker
        return worker is not None and worker.send(*command)

    def load_points(self) -> MetricSeries:
        """Return the points, and read them from disk if they are not in memory.

        The caller must not hold the lock, because reading may take seconds.
        """
        if (points := self.points) is not None:
            return points
        with self.loading_lock:
            if (points := self.points) is not None:
                return points
            loaded, error_message = MetricSeries(), ""
            try:
                loaded.add(read_lines(self.folder))
            except (CheckpointError, ValueError, OSError) as error:
                error_message = f"the metrics are incomplete: {error}"
            with self.lock:
                with suppress(ValueError):  # a gap; the next load reads them from disk
                    loaded.add(
                        line
                        for line in self.pending_points
                        if line["step"] > loaded.last or not len(loaded)
                    )
                self.pending_points = []
                self.points, self.series_id = loaded, secrets.randbelow(2**31)
                self.message = self.message or error_message
                self.best = max_score(self.best, loaded.best)
                # A killed server may not have written the last step to run.json.
                if not self.has_worker and len(loaded):
                    self.step = loaded.last
            return loaded

    def append_points(self, lines: list[dict[str, Any]]) -> None:
        """Append the metrics of a worker's message. Needs the lock."""
        if self.points is None:
            # older ones are on disk
            self.pending_points = [*self.pending_points, *lines][-MAX_PENDING_POINTS:]
        else:
            points = self.points
            try:  # points that were loaded from disk may include those of this message
                points.add(line for line in lines if not len(points) or line["step"] > points.last)
            except ValueError:
                self.points, self.pending_points = None, list(lines)
        if lines:
            self.scores, self.imported = None, False  # the scores were of an earlier step
            scores = [line["exact_match"] for line in lines if "exact_match" in line]
            self.step, self.seconds = lines[-1]["step"], lines[-1]["seconds"]
            self.best = max_score(self.best, *scores)

    def load_weight_steps(self) -> list[int]:
        """Return the steps with stored weights.

        The caller must not hold the lock, because this may read the disk.
        """
        cached_steps = self.weight_steps
        while cached_steps is None:
            with self.loading_lock:
                steps = weight_steps(self.folder)
                with self.lock:
                    if self.weight_steps is None:
                        self.weight_steps, self.latest_weights_step = (
                            steps,
                            steps[-1] if steps else None,
                        )
                    cached_steps = self.weight_steps
        return cached_steps

    def score_at(self, step: int) -> float | None:
        """Return the exact match at a step; None if it was not evaluated there."""
        return next(
            (score for at, score, _, _ in reversed(self.load_points().evaluations) if at == step),
            None,
        )

    # run.json

    def write(self, flush: bool = False) -> None:
        """Write the record as soon as this thread holds no record lock.

        Args:
            flush: whether to flush it to disk, so that it survives a power failure.
        """
        with self.lock:
            self.write_pending = bool(self.write_pending) or flush
            _held_locks.pending_writes.append(self)

    def write_now(self) -> None:
        """Write the record if a write is pending. The caller must not hold the lock.

        A failed write only sets the message of the run, because the worker reports the same error.
        """
        with self.writing_lock:
            with self.lock:
                flush, self.write_pending = self.write_pending, None
                data = self.to_json() if flush is not None else b""
            if flush is None or not self.folder.is_dir():
                return
            try:
                write_file(self.folder / "run.json", data, flush=flush)
            except OSError as error:
                self.message = self.message or (
                    f"could not write {self.folder.name}{os.sep}run.json: {error.strerror or error}"
                )

    def to_json(self) -> bytes:
        """Return the content of run.json."""
        content: dict[str, Any] = {
            name: getattr(self, name) for name in (*RECORD_FIELDS, "branched_from")
        }
        content |= {
            "config": self.config.to_flat(),
            "changes": [change.to_list() for change in self.changes],
        }
        return json.dumps(content, indent=1).encode() + b"\n"

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Read the run of a folder; a run that was active becomes paused.

        Raises:
            ValueError: if run.json is missing or invalid.
        """
        content = read_json(folder / "run.json")
        if not isinstance(content, dict):
            raise ValueError(f"{folder / 'run.json'} is not a run record")
        try:
            config = RunConfig.from_flat(content.pop("config"))
            changes = SettingChange.parse(content.pop("changes"))
            content = upgrade_run_record(content)
            branched_from = content.pop("branched_from")
            # A newer version may have written more fields.
            content = RECORD_DEFAULTS | {
                name: value for name, value in content.items() if name in RECORD_FIELDS
            }
            for name, is_valid in RECORD_FIELDS.items():
                if not is_valid(content[name]):
                    raise TypeError(f"{name} is {short_repr(content[name])}")
            if branched_from is not None and not (
                _is_text(branched_from[0])
                and Path(branched_from[0]).name == branched_from[0]
                and _is_count(branched_from[1])
                and len(branched_from) == 2
            ):
                raise TypeError(f"branched_from is {short_repr(branched_from)}")
            run = cls(
                **content,
                config=config,
                changes=changes,
                folder=folder,
                branched_from=tuple(branched_from) if branched_from else None,
            )
        except (TypeError, KeyError, AttributeError, IndexError) as error:
            raise ValueError(f"{folder / 'run.json'} is not a run record: {error}") from None
        if run.status not in TERMINAL_STATUSES:
            run.status = "paused"
        if run.deleted_at is not None:
            run.deleted_at_monotonic = time.monotonic() - max(0.0, time.time() - run.deleted_at)
        return run

    # Checkpoints

    def checkpoints(self) -> list[tuple[Path, Manifest]]:
        """Return the readable checkpoints, newest first."""
        checkpoints = []
        for path in sorted((self.folder / "checkpoints").glob("[0-9]*"), reverse=True):
            try:
                checkpoints.append((path, cached_manifest(path)))
            except (CheckpointError, OSError):
                continue  # the worker reports it and uses the checkpoint before
        return sorted(
            checkpoints,
            key=lambda each: (each[1].step, not each[0].name.endswith(PINNED_SUFFIX)),
            reverse=True,
        )

    def last_checkpoint_message(self) -> str:
        """Return the last checkpoint of a run that failed, as the end of a sentence."""
        checkpoints = self.checkpoints()
        return (
            f"its checkpoint of step {checkpoints[0][1].step} is saved, Resume continues from there"
            if checkpoints
            else "it has no checkpoint yet"
        )


def cached_manifest(folder: Path) -> Manifest:
    """Return the result of `read_manifest`, cached while config.json does not change.

    An uncached read takes milliseconds. The caller must not modify the result.

    Raises:
        CheckpointError: if config.json is missing or invalid.
    """
    try:
        stat = os.stat(folder / "config.json")
    except OSError:
        return read_manifest(folder)  # raises an error with the reason
    return _manifest_of(folder, stat.st_mtime_ns, stat.st_size, stat.st_ino)


@lru_cache(maxsize=1024)
def _manifest_of(folder: Path, *_version: int) -> Manifest:
    return read_manifest(folder)


def flat_directory_size(folder: Path) -> int:
    """Return the bytes of a folder's files, without subfolders."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def task_label(config: RunConfig) -> str:
    """Return the task and its lengths, as in `reverse 1–10`."""
    task = config.task
    return f"{task.task} " + (
        f"{task.min_length}–{task.max_length}"
        if task.min_length < task.max_length
        else f"{task.max_length}"
    )


def architecture_suffix(config: RunConfig) -> str:
    """Return a suffix with the architecture; empty for the default one."""
    return (
        ""
        if config.architecture == RunConfig().architecture
        else f", {ARCHITECTURES[config.architecture].title.lower()}"
    )


def to_summary(run: Run) -> dict[str, Any]:
    """Return the entry of a run in the list of runs."""
    model = run.config.model
    return {
        "subject": f"run:{run.id}",
        "name": run.name,
        "status": run.status,
        "task": task_label(run.config),
        "shape": [model.n_layers, model.attention_heads, model.d_model],
        "parameters": model.parameter_count(),
        "step": run.step,
        "max_steps": run.steps,
        "best": run.scores["exact_match"] if run.scores else run.best,
        "eval_size": run.scores["n"] if run.scores else run.config.training.eval_size,
        "created": run.created,
        "hidden": run.hidden,
        "deleted": run.deleted_at is not None,
        "evicted": run.evicted,
    }
