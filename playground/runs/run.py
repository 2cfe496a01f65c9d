"""The state of one run in the server process, and its record on disk.

A run's folder contains:

    run.json                   the record: owner, configuration and status (this module)
    metrics.jsonl  history/    metrics and weights by step (`history.py`)
    checkpoints/               a folder per checkpoint, named by its step; see
                               `training/checkpoint.py`
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

from playground.families import FAMILIES
from playground.models.config import shown
from playground.training.config import IN_PASSING, Change, RunConfig, settings_at
from playground.training.devices import ZERO, on_zero
from playground.training.files import write_file
from playground.training.manifest import (
    CheckpointError,
    Manifest,
    check_scores,
    is_number,
    read_json,
    read_manifest,
)

from .history import kept_steps, read_lines
from .inspection_queue import Client
from .points import Points
from .processes import Child

WORKING = ("starting", "training", "stopping")  # statuses with an active worker
OVER = ("done", "stopped", "failed")
MOST_UNTAKEN = 2000  # points
LONGEST_NAME = 80
DIVERGED = "training diverged"  # start of the message of a diverged run
NOTHING_USABLE = "no checkpoint of this run can be used"
THINNED, EMPTIED = "thinned", "emptied"  # values of `removed`: evicted history or weights
KEPT = "-kept"  # suffix of the folder of a checkpoint that the owner saved


class Refused(RuntimeError):
    """A request that cannot be carried out now; the message states the reason."""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_time(value: object) -> bool:
    return is_number(value) and value >= 0  # type: ignore[operator]


def _are_scores(value: object) -> bool:
    if value is not None:
        check_scores(value)
    return True


# The fields of run.json beside the configuration, with their validators: the file is untrusted.
RECORDED: dict[str, Callable[[Any], bool]] = {
    "id": _is_text,
    "watch_id": _is_text,
    "owner": _is_text,
    "name": _is_text,
    "created": _is_time,
    "status": lambda value: value in ("waiting", "paused", *WORKING, *OVER),
    "message": lambda value: isinstance(value, str),
    "scores": _are_scores,
    "step": _is_count,
    "best": lambda value: value is None or (is_number(value) and 0 <= value <= 1),
    "seconds": _is_time,
    "device": lambda value: isinstance(value, str),
    "hidden": lambda value: isinstance(value, bool),
    "deleted_at": lambda value: value is None or _is_time(value),
    "active": _is_time,
    "removed": lambda value: value in ("", THINNED, EMPTIED),
    "sent": lambda value: isinstance(value, bool),
}
# Defaults of the fields that earlier versions did not write.
LATER: dict[str, Any] = {"active": 0.0, "removed": "", "sent": False}

Answer = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """The specification for a worker."""

    folder: str
    fields: dict[str, Any]
    changes: list[list[Any]] = field(default_factory=list)
    begin: str = "train"  # or "step"
    origin: tuple[str, int] | None = None  # folder and step that this run branches from
    active: float = 0.0  # seconds of training so far
    seconds: float = 0.0  # of a slice, after which the worker saves and exits; 0: no limit
    threads: int = 0  # the maximum, whatever the settings are; 0: no maximum


def better(*scores: float | None) -> float | None:
    """Return the highest of the scores that are not None."""
    return max((score for score in scores if score is not None), default=None)


def fingerprint(owner: str) -> str:
    """Return the hash of an owner's key, which the server stores instead of the key."""
    return hashlib.sha256(owner.encode("utf-8", "replace")).hexdigest()


class _Held(threading.local):
    """The number of record locks of this thread, and the runs to write after their release."""

    depth = 0

    def __init__(self) -> None:
        self.due: list[Run] = []


_held = _Held()


class RecordLock:
    """A reentrant lock that is never held during disk access, because the event loop takes it.

    Records that change while a thread holds such locks are written when it releases the last one.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()
        _held.depth += 1

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        _held.depth -= 1
        if _held.depth == 0 and _held.due:
            due, _held.due = list(dict.fromkeys(_held.due)), []
            for run in due:
                run.write_now()


@dataclass(eq=False)
class Run:
    """A run, with its persistent record and its state in memory.

    `id` identifies it for its owner, and `watch_id` in share links. Neither can be guessed.

    Statuses: waiting (for a slot or a ZeroGPU slice), starting, training, paused (at first with a
    worker, later without), stopping, done, stopped, failed.
    """

    id: str
    watch_id: str
    owner: str  # the owner's fingerprint
    name: str
    config: RunConfig
    folder: Path
    created: float = field(default_factory=time.time)
    status: str = "waiting"
    message: str = ""
    changes: list[Change] = field(default_factory=list)
    scores: dict[str, Any] | None = None
    step: int = 0
    best: float | None = None
    seconds: float = 0.0
    device: str = ""
    hidden: bool = False
    deleted_at: float | None = None  # by the wall clock
    active: float = 0.0  # seconds of training on this server, without pauses
    removed: str = ""  # the evicted data: THINNED, EMPTIED or nothing
    unseen: int = 0  # failed snapshots in a row
    sent: bool = False  # an imported checkpoint that was not trained further
    origin: tuple[str, int] | None = None  # folder name and step of the run it branched from

    # Not stored in run.json
    deleted_on: float = 0.0  # time of deletion by the monotonic clock, which cannot be changed
    address: str = ""  # of the client that started it
    begin: str = "train"  # first command of its worker: "train" or "step"
    points: Points | None = None  # None: not loaded from disk
    # id of the series of points; a new one when the series restarts
    epoch: int = field(default_factory=lambda: secrets.randbelow(2**31))
    recorded: list[int] | None = None  # steps with weights on disk; None: not loaded
    newest: int | None = None  # the latest of these steps
    snapshot: dict[str, Any] | None = None
    stage: dict[str, Any] | None = None
    looks: int = 0  # number of snapshots so far, so that a page requests only newer ones
    looking: bool = False  # a snapshot is pending
    saved: int = 0  # number of checkpoints written or removed
    worker: Child | None = None
    watched_at: float = field(default_factory=time.monotonic)
    watched_by: Client | None = None  # client of the last poll, whose quota snapshots use
    watched: bool = False  # the last value sent to the worker
    wanted: str = ""  # first command of the next worker, after the current one has exited
    unanswered: float | None = None  # time of the first command without a response
    untaken: list[dict[str, Any]] = field(default_factory=list)  # points that `load` will append
    short_since: float | None = None  # start of the wait for memory
    held: bool = False  # a pause was sent to the current slice
    parking: bool = False  # the worker saves and exits
    heard_at: float = field(default_factory=time.monotonic)  # time of the last message
    verdict: tuple[str, str] | None = None  # status and message after the worker is killed
    worked: float = 0.0  # CPU seconds of the worker at its last sign of activity
    paused_at: float = field(default_factory=time.monotonic)
    asked: set[Future[Answer]] = field(default_factory=set)  # pending inspection requests
    size: int | None = None  # bytes on disk; None: unknown or changing
    lock: RecordLock = field(default_factory=RecordLock)
    loading: threading.Lock = field(default_factory=threading.Lock)  # taken before `lock` only
    writing: threading.Lock = field(default_factory=threading.Lock)  # taken before `lock` only
    _version: tuple[list[Change] | None, int] = (None, 0)  # a list of changes and its number
    # Whether the pending write of the record is flushed; None: no write is pending.
    unwritten: bool | None = None

    @property
    def live(self) -> bool:
        """Whether it has a worker process."""
        worker = self.worker  # another thread may clear it
        return worker is not None and not worker.ended.is_set()

    @property
    def sliced(self) -> bool:
        """Whether it trains in ZeroGPU slices (`zero.py`)."""
        return self.config.training.device == ZERO and on_zero()

    @property
    def waits_for_slice(self) -> bool:
        """Whether the page should request the next slice."""
        return self.sliced and self.status == "waiting" and not self.live

    @property
    def steps(self) -> int:
        """The total number of steps."""
        return settings_at(self.config.training, self.changes, max(self.step, 0)).steps

    @property
    def diverged(self) -> bool:
        """Whether it ended because the loss or the gradient was not finite."""
        return self.status == "failed" and self.message.startswith(DIVERGED)

    @property
    def changed(self) -> list[str]:
        """The settings that were changed from `config`, without those of the live view."""
        own = self.config.training
        return sorted(
            {
                c.setting
                for c in self.changes
                if c.setting not in IN_PASSING and c.value != getattr(own, c.setting)
            }
        )

    @property
    def changes_version(self) -> int:
        """A checksum that identifies the list of changes."""
        seen, version = self._version
        if seen is not self.changes:
            version = zlib.crc32(json.dumps([change.to_list() for change in self.changes]).encode())
            self._version = self.changes, version
        return version

    @property
    def speed(self) -> float:
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
        return settings_at(self.config.training, self.changes, self.step).learning_rate

    def send(self, *command: Any) -> bool:
        """Send a command to the worker; return False if it cannot be delivered."""
        worker = self.worker
        return worker is not None and worker.send(*command)

    def load(self) -> Points:
        """Return the points, and read them from disk if they are not in memory.

        The caller must not hold the lock, because reading may take seconds.
        """
        if (points := self.points) is not None:
            return points
        with self.loading:
            if (points := self.points) is not None:
                return points
            fresh, trouble = Points(), ""
            try:
                fresh.add(read_lines(self.folder))
            except (CheckpointError, ValueError, OSError) as error:
                trouble = f"the metrics are incomplete: {error}"
            with self.lock:
                with suppress(ValueError):  # a gap; the next load reads them from disk
                    fresh.add(
                        line for line in self.untaken if line["step"] > fresh.last or not len(fresh)
                    )
                self.untaken = []
                self.points, self.epoch = fresh, secrets.randbelow(2**31)
                self.message = self.message or trouble
                self.best = better(self.best, fresh.best)
                # A killed server may not have written the last step to run.json.
                if not self.live and len(fresh):
                    self.step = fresh.last
            return fresh

    def take_points(self, lines: list[dict[str, Any]]) -> None:
        """Append the metrics of a worker's message. Needs the lock."""
        if self.points is None:
            self.untaken = [*self.untaken, *lines][-MOST_UNTAKEN:]  # older ones are on disk
        else:
            points = self.points
            try:  # points that were loaded from disk may include those of this message
                points.add(line for line in lines if not len(points) or line["step"] > points.last)
            except ValueError:
                self.points, self.untaken = None, list(lines)
        if lines:
            self.scores, self.sent = None, False  # the scores were of an earlier step
            scored = [line["exact_match"] for line in lines if "exact_match" in line]
            self.step, self.seconds = lines[-1]["step"], lines[-1]["seconds"]
            self.best = better(self.best, *scored)

    def records(self) -> list[int]:
        """Return the steps with stored weights.

        The caller must not hold the lock, because this may read the disk.
        """
        recorded = self.recorded
        while recorded is None:
            with self.loading:
                steps = kept_steps(self.folder)
                with self.lock:
                    if self.recorded is None:
                        self.recorded, self.newest = steps, steps[-1] if steps else None
                    recorded = self.recorded
        return recorded

    def score_at(self, step: int) -> float | None:
        """Return the exact match at a step; None if it was not evaluated there."""
        return next((score for at, score, _, _ in reversed(self.load().scored) if at == step), None)

    # run.json

    def write(self, flush: bool = False) -> None:
        """Write the record as soon as this thread holds no record lock.

        Args:
            flush: whether to flush it to disk, so that it survives a power failure.
        """
        with self.lock:
            self.unwritten = bool(self.unwritten) or flush
            _held.due.append(self)

    def write_now(self) -> None:
        """Write the record if a write is pending. The caller must not hold the lock.

        A failed write only sets the message of the run, because the worker reports the same error.
        """
        with self.writing:
            with self.lock:
                flush, self.unwritten = self.unwritten, None
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
        content: dict[str, Any] = {name: getattr(self, name) for name in (*RECORDED, "origin")}
        content |= {
            "config": self.config.to_fields(),
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
            config = RunConfig.from_fields(content.pop("config"))
            changes = Change.read(content.pop("changes"))
            origin = content.pop("origin")
            # A newer version may have written more fields.
            content = LATER | {name: value for name, value in content.items() if name in RECORDED}
            for name, fits in RECORDED.items():
                if not fits(content[name]):
                    raise TypeError(f"{name} is {shown(content[name])}")
            if origin is not None and not (
                _is_text(origin[0])
                and Path(origin[0]).name == origin[0]
                and _is_count(origin[1])
                and len(origin) == 2
            ):
                raise TypeError(f"origin is {shown(origin)}")
            run = cls(
                **content,
                config=config,
                changes=changes,
                folder=folder,
                origin=tuple(origin) if origin else None,
            )
        except (TypeError, KeyError, AttributeError, IndexError) as error:
            raise ValueError(f"{folder / 'run.json'} is not a run record: {error}") from None
        if run.status not in OVER:
            run.status = "paused"
        if run.deleted_at is not None:
            run.deleted_on = time.monotonic() - max(0.0, time.time() - run.deleted_at)
        return run

    # Checkpoints

    def checkpoints(self) -> list[tuple[Path, Manifest]]:
        """Return the readable checkpoints, newest first."""
        found = []
        for path in sorted((self.folder / "checkpoints").glob("[0-9]*"), reverse=True):
            try:
                found.append((path, cached_manifest(path)))
            except (CheckpointError, OSError):
                continue  # the worker reports it and uses the checkpoint before
        return sorted(
            found, key=lambda each: (each[1].step, not each[0].name.endswith(KEPT)), reverse=True
        )

    def last_checkpoint(self) -> str:
        """Return the last checkpoint of a run that failed, as the end of a sentence."""
        found = self.checkpoints()
        return (
            f"its checkpoint of step {found[0][1].step} is saved, Resume continues from there"
            if found
            else "it has no checkpoint yet"
        )


def cached_manifest(folder: Path) -> Manifest:
    """Return the result of `read_manifest`, cached while config.json does not change.

    An uncached read takes milliseconds. The caller must not modify the result.

    Raises:
        CheckpointError: if config.json is missing or invalid.
    """
    try:
        about = os.stat(folder / "config.json")
    except OSError:
        return read_manifest(folder)  # raises an error with the reason
    return _manifest_of(folder, about.st_mtime_ns, about.st_size, about.st_ino)


@lru_cache(maxsize=1024)
def _manifest_of(folder: Path, *_version: int) -> Manifest:
    return read_manifest(folder)


def size_of(folder: Path) -> int:
    """Return the bytes of a folder's files, without subfolders."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def task_in_words(config: RunConfig) -> str:
    """Return the task and its lengths, as in `reverse 1–10`."""
    task = config.task
    return f"{task.task} " + (
        f"{task.min_length}–{task.max_length}"
        if task.min_length < task.max_length
        else f"{task.max_length}"
    )


def of_family(config: RunConfig) -> str:
    """Return a suffix with the architecture; empty for the default one."""
    return (
        "" if config.family == RunConfig().family else f", {FAMILIES[config.family].title.lower()}"
    )


def summary(run: Run) -> dict[str, Any]:
    """Return the entry of a run in the list of runs."""
    model = run.config.model
    return {
        "subject": f"run:{run.id}",
        "name": run.name,
        "status": run.status,
        "task": task_in_words(run.config),
        "shape": [model.n_layers, model.n_heads, model.d_model],
        "parameters": model.parameter_count(),
        "step": run.step,
        "steps": run.steps,
        "best": run.scores["exact_match"] if run.scores else run.best,
        "scored": run.scores["n"] if run.scores else run.config.training.eval_n,
        "created": run.created,
        "hidden": run.hidden,
        "deleted": run.deleted_at is not None,
        "removed": run.removed,
    }
