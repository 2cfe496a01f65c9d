"""One run as the server knows it, and what of it is kept in its folder.

run.json       this run's record: whose it is, what it is, how it stands (here)
metrics.jsonl  history/  (history.py)
checkpoints/   one folder for each, named by its step; see training/checkpoint.py
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

WORKING = ("starting", "training", "stopping")  # a worker is at it
OVER = ("done", "stopped", "failed")
MOST_UNTAKEN = 2000  # points
LONGEST_NAME = 80
DIVERGED = "training diverged"  # how the message begins of a run that did
NOTHING_USABLE = "no checkpoint of this run can be used"
THINNED, EMPTIED = "thinned", "emptied"  # what was taken of a run to make room (room.py)
KEPT = "-kept"  # ends the folder name of a checkpoint that the owner wants to keep


class Refused(RuntimeError):
    """What was asked for cannot be done now; the message says why."""


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


# What run.json holds beside the configuration, and what it must be like; the file may be anybody's.
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
LATER: dict[str, Any] = {
    "active": 0.0,
    "removed": "",
    "sent": False,
}  # what earlier versions did not record

Answer = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """What a worker is to do."""

    folder: str
    fields: dict[str, Any]
    changes: list[list[Any]] = field(default_factory=list)
    begin: str = "train"  # or step
    origin: tuple[str, int] | None = None  # folder and step of the run that this one branches off
    active: float = 0.0  # seconds of training so far
    seconds: float = (
        0.0  # after which it saves and waits for its next turn; 0: it goes on to its end
    )
    threads: int = 0  # as many as it may take, whatever its settings say; 0: as they say


def better(*scores: float | None) -> float | None:
    """The best of some scores, of which some may be missing."""
    return max((score for score in scores if score is not None), default=None)


def fingerprint(owner: str) -> str:
    """What is kept of an owner's secret: enough to know it again."""
    return hashlib.sha256(owner.encode("utf-8", "replace")).hexdigest()


class _Held(threading.local):
    """How many record locks this thread holds, and the runs whose records are to be written after that."""

    depth = 0

    def __init__(self) -> None:
        self.due: list[Run] = []


_held = _Held()


class RecordLock:
    """A reentrant lock that is never held while the disk works: the event loop takes it too.

    Records that change while a thread holds such locks are written when it has let go of the last.
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
    """A run. `id` names it for its owner, `watch_id` for those who were given the link to watch; neither can be guessed.

    Statuses: waiting (for a place, or for a slice of a GPU that is lent), starting, training, paused (with a worker or, later,
    without), stopping, done, stopped, failed.
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
    active: float = 0.0  # seconds that it trained here, pauses left out
    removed: str = ""  # what of it was taken to make room: thinned, emptied or nothing
    unseen: int = 0  # looks into it that failed in a row
    sent: bool = False  # it came as a checkpoint, and was not trained on since
    origin: tuple[str, int] | None = (
        None  # name of the folder and step of the run that this one branched off
    )

    # Not kept in run.json
    deleted_on: float = 0.0  # when it was deleted, by the monotonic clock: whoever sets the wall clock takes no run away
    address: str = ""  # of the client that started it
    begin: str = "train"  # what its worker is to do first: train, or step
    points: Points | None = None  # None: still on disk only
    epoch: int = field(
        default_factory=lambda: secrets.randbelow(2**31)
    )  # another one when the points begin anew
    recorded: list[int] | None = None  # steps whose weights are on disk; None: not looked yet
    newest: int | None = None  # the latest step whose weights are on disk
    snapshot: dict[str, Any] | None = None
    stage: dict[str, Any] | None = None
    looks: int = 0  # how many snapshots have come, so that a page asks only for newer ones
    looking: bool = False
    saved: int = 0  # counts checkpoints written or removed
    worker: Child | None = None
    watched_at: float = field(default_factory=time.monotonic)
    watched_by: Client | None = None  # the client of the last poll, for whom snapshots count
    watched: bool = False  # what the worker was told last
    wanted: str = ""  # what its next worker is to begin with, once the one that is leaving has gone
    unanswered: float | None = None  # since when the worker owes an answer to a command
    untaken: list[dict[str, Any]] = field(
        default_factory=list
    )  # points that came while those on disk were not in memory
    short_since: float | None = None  # when its turn came and the memory for it was not there
    held: bool = False  # a pause is on its way to the slice that trains it
    parking: bool = False  # its worker was asked to save and leave
    heard_at: float = field(default_factory=time.monotonic)
    verdict: tuple[str, str] | None = (
        None  # status and message of a run whose worker is being ended by force
    )
    worked: float = 0.0  # processor seconds of the worker when it was last seen to work
    paused_at: float = field(default_factory=time.monotonic)
    asked: set[Future[Answer]] = field(default_factory=set)
    size: int | None = None  # bytes on the disk; None: not known, or changing
    lock: RecordLock = field(default_factory=RecordLock)
    loading: threading.Lock = field(
        default_factory=threading.Lock
    )  # taken before `lock`, never after it
    writing: threading.Lock = field(default_factory=threading.Lock)  # likewise
    _version: tuple[list[Change] | None, int] = (
        None,
        0,
    )  # of the changes: of which list, and its number
    unwritten: bool | None = (
        None  # whether the record must be written when the lock is free, and flushed; None: it is on disk
    )

    @property
    def live(self) -> bool:
        """Whether a process belongs to it."""
        worker = self.worker  # which another thread may take away
        return worker is not None and not worker.ended.is_set()

    @property
    def sliced(self) -> bool:
        """Whether it trains in slices of a GPU that is lent, where there is one (zero.py)."""
        return self.config.training.device == ZERO and on_zero()

    @property
    def waits_for_slice(self) -> bool:
        return self.sliced and self.status == "waiting" and not self.live

    @property
    def steps(self) -> int:
        """How far it is to go."""
        return settings_at(self.config.training, self.changes, max(self.step, 0)).steps

    @property
    def diverged(self) -> bool:
        """Whether it ended because loss or gradient stopped being finite."""
        return self.status == "failed" and self.message.startswith(DIVERGED)

    @property
    def changed(self) -> list[str]:
        """Settings that did not stay on the way what they were in `config`; how fast one watched is none of them."""
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
        """A number that another list of changes does not have."""
        seen, version = self._version
        if seen is not self.changes:
            version = zlib.crc32(json.dumps([change.to_list() for change in self.changes]).encode())
            self._version = self.changes, version
        return version

    @property
    def speed(self) -> float:
        """The most steps a second it may take now; 0 for as many as it can."""
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
        """The learning rate that its schedule now starts from."""
        return settings_at(self.config.training, self.changes, self.step).learning_rate

    def send(self, *command: Any) -> bool:
        """Pass a command to the worker; False when it cannot take it."""
        worker = self.worker
        return worker is not None and worker.send(*command)

    def load(self) -> Points:
        """The points, read from disk if they are not in memory. Not to be called with the lock held: it may take seconds."""
        if (points := self.points) is not None:
            return points
        with self.loading:
            if (points := self.points) is not None:
                return points
            fresh, trouble = Points(), ""
            try:
                fresh.add(read_lines(self.folder))
            except (CheckpointError, ValueError, OSError) as error:
                trouble = f"the metrics are cut short: {error}"
            with self.lock:
                with suppress(ValueError):  # then they are read again with the next ones
                    fresh.add(
                        line for line in self.untaken if line["step"] > fresh.last or not len(fresh)
                    )
                self.untaken = []
                self.points, self.epoch = fresh, secrets.randbelow(2**31)
                self.message = self.message or trouble
                self.best = better(self.best, fresh.best)
                if not self.live and len(
                    fresh
                ):  # a killed server's last words are on disk, not in run.json
                    self.step = fresh.last
            return fresh

    def take_points(self, lines: list[dict[str, Any]]) -> None:
        """Append what a worker tells. With the lock held."""
        if self.points is None:
            self.untaken = [*self.untaken, *lines][-MOST_UNTAKEN:]  # older ones are on disk by now
        else:
            points = self.points
            try:  # read from disk, the points may hold what this message is only about to tell
                points.add(line for line in lines if not len(points) or line["step"] > points.last)
            except ValueError:
                self.points, self.untaken = None, list(lines)
        if lines:
            self.scores, self.sent = None, False  # those were of an earlier step
            scored = [line["exact_match"] for line in lines if "exact_match" in line]
            self.step, self.seconds, self.best = (
                lines[-1]["step"],
                lines[-1]["seconds"],
                better(self.best, *scored),
            )

    def records(self) -> list[int]:
        """The steps to which one can go back. Not to be called with the lock held: it may read the disk."""
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
        """The exact match that was measured at a step, if it was."""
        return next((score for at, score, _, _ in reversed(self.load().scored) if at == step), None)

    # run.json

    def write(self, flush: bool = False) -> None:
        """Keep the record, as soon as this thread holds no lock. With `flush` it outlives a power cut."""
        with self.lock:
            self.unwritten = bool(self.unwritten) or flush
            _held.due.append(self)

    def write_now(self) -> None:
        """Write the record if it is due. With the lock free.

        A disk that does not take it is no reason to stop: the worker will meet it too, and says so.
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
                self.message = (
                    self.message
                    or f"could not write {self.folder.name}{os.sep}run.json: {error.strerror or error}"
                )

    def to_json(self) -> bytes:
        content: dict[str, Any] = {name: getattr(self, name) for name in (*RECORDED, "origin")}
        content |= {
            "config": self.config.to_fields(),
            "changes": [change.to_list() for change in self.changes],
        }
        return json.dumps(content, indent=1).encode() + b"\n"

    @classmethod
    def read(cls, folder: Path) -> Run:
        """The run that a folder's run.json describes; one whose server has gone is paused.

        Raises:
            ValueError: when there is none, or it is not what this version writes.
        """
        content = read_json(folder / "run.json")
        if not isinstance(content, dict):
            raise ValueError(f"{folder / 'run.json'} is no run's record")
        try:
            config, changes = (
                RunConfig.from_fields(content.pop("config")),
                Change.read(content.pop("changes")),
            )
            origin = content.pop("origin")
            content = LATER | {
                name: value for name, value in content.items() if name in RECORDED
            }  # a newer version may have written more
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
            raise ValueError(f"{folder / 'run.json'} is no run's record: {error}") from None
        if run.status not in OVER:
            run.status = "paused"
        if run.deleted_at is not None:
            run.deleted_on = time.monotonic() - max(0.0, time.time() - run.deleted_at)
        return run

    # Checkpoints

    def checkpoints(self) -> list[tuple[Path, Manifest]]:
        """Its readable checkpoints, newest first."""
        found = []
        for path in sorted((self.folder / "checkpoints").glob("[0-9]*"), reverse=True):
            try:
                found.append((path, cached_manifest(path)))
            except (CheckpointError, OSError):
                continue  # the worker falls back to the one before and says so; nothing can be offered here
        return sorted(
            found, key=lambda each: (each[1].step, not each[0].name.endswith(KEPT)), reverse=True
        )

    def last_checkpoint(self) -> str:
        """What a run that broke down still has, as the end of a sentence."""
        found = self.checkpoints()
        return (
            f"its checkpoint of step {found[0][1].step} is kept, Resume goes on from there"
            if found
            else "it had no checkpoint yet"
        )


def cached_manifest(folder: Path) -> Manifest:
    """As read_manifest, which takes milliseconds, but a file that has not changed is read once. Not to be modified.

    Raises:
        CheckpointError: as read_manifest.
    """
    try:
        about = os.stat(folder / "config.json")
    except OSError:
        return read_manifest(folder)  # which says what is wrong
    return _manifest_of(folder, about.st_mtime_ns, about.st_size, about.st_ino)


@lru_cache(maxsize=1024)
def _manifest_of(folder: Path, *_version: int) -> Manifest:
    return read_manifest(folder)


def size_of(folder: Path) -> int:
    """Bytes in a folder's files."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def task_in_words(config: RunConfig) -> str:
    """Task and lengths, as in `reverse 1–10`."""
    task = config.task
    return f"{task.task} " + (
        f"{task.min_length}–{task.max_length}"
        if task.min_length < task.max_length
        else f"{task.max_length}"
    )


def of_family(config: RunConfig) -> str:
    """The family where it is not the usual one, to be appended to the task."""
    return (
        "" if config.family == RunConfig().family else f", {FAMILIES[config.family].title.lower()}"
    )


def summary(run: Run) -> dict[str, Any]:
    """A run in the list of runs."""
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
