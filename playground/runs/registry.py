"""The runs of this server: who owns them, what they have told so far, and how to reach their workers.

It holds no tensor and imports no torch. Threads: any thread may call in; each run has threads of its own (processes.py).
"""

from __future__ import annotations

import itertools
import os
import secrets
import threading
import time
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playground.training.config import RunConfig
from playground.training.files import sweep
from playground.training.manifest import CheckpointError, read_manifest

from .memory import check_memory
from .processes import Child, usable_cores

LIVE = ("starting", "training", "paused", "stopping")
POINTS_A_POLL = 2000
STALE = 600.0  # seconds after which an unfinished write is nobody's any more
ASKING = 4  # questions that may wait for one run's answer

Answer = dict[str, Any]


class SlotsBusy(RuntimeError):
    """Every place that an owner may train in is taken."""


@dataclass
class Run:
    """One run as the page knows it. `id` is a secret: whoever knows it may watch and control the run."""

    id: str
    owner: str
    config: RunConfig
    folder: Path
    status: str = "starting"
    message: str = ""
    points: list[dict[str, Any]] = field(default_factory=list)
    snapshot: dict[str, Any] | None = None
    looks: int = 0  # how many snapshots have come, so that a page asks only for newer ones
    stage: dict[str, Any] | None = None
    scores: dict[str, Any] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    worker: Child | None = None
    waiting: dict[int, Future[Answer]] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        return self.status in LIVE

    def send(self, *command: Any) -> bool:
        """Pass a command to the worker; False when it cannot take it."""
        return self.worker is not None and self.worker.send(*command)


class Registry:
    """Starts runs, finds them for their owner, and ends them all when the server goes.

    At most `slots` runs are live at a time, at most `slots_an_owner` of one owner.
    """

    def __init__(self, root: Path, slots: int | None = None, slots_an_owner: int | None = None) -> None:
        self.root = Path(root)
        self.slots = slots or int(os.environ.get("PLAYGROUND_SLOTS", 0)) or max(2, usable_cores())
        self.slots_an_owner = min(slots_an_owner or self.slots, self.slots)
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._inspector: Child | None = None
        self._inspector_lock = threading.Lock()
        self._inspections: dict[int, Future[Answer]] = {}
        for folder in (self.root, self.root / "runs"):
            sweep(folder, STALE)

    # Runs

    def start(self, config: RunConfig, owner: str) -> Run:
        """Start a worker on a new run.

        Raises:
            SlotsBusy: when this server, or this owner, has as many live runs as allowed.
            SettingError: when the run would need more memory than is free.
        """
        check_memory(config)
        with self._lock:
            live = [run for run in self._runs.values() if run.live]
            mine = sum(run.owner == owner for run in live)
            if len(live) >= self.slots or mine >= self.slots_an_owner:
                raise SlotsBusy(self._who_is_busy(mine))
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{config.task.task}-{secrets.token_hex(3)}"
            run = Run(secrets.token_urlsafe(16), owner, config, self.root / "runs" / name)
            self._runs[run.id] = run
        try:
            run.worker = Child(
                "playground.runs.worker:work",
                f"run-{name}",
                config.to_fields(),
                str(run.folder),
                on_message=lambda *message: self._take(run, *message),
                on_end=lambda code: self._ended(run, code),
            )
        except (OSError, EOFError, RuntimeError) as error:
            with run.lock:
                run.status, run.message = "failed", f"could not start a worker: {error or type(error).__name__}; try again"
        return run

    def _who_is_busy(self, mine: int) -> str:
        if mine >= self.slots_an_owner:
            count = "a run" if mine == 1 else f"{mine} runs"
            return f"you have {count} going, which is as many as fit; open one above and stop it, or wait for it to end"
        whose = f"{mine} of them by you" if mine else "by other visitors"
        return f"all {self.slots} training places are taken, {whose}; try again in a minute"

    def find(self, run_id: object) -> Run | None:
        """The run with this id; None for anything else."""
        return self._runs.get(run_id) if isinstance(run_id, str) else None

    def of_owner(self, owner: str) -> list[Run]:
        """An owner's runs, oldest first."""
        with self._lock:
            return [run for run in self._runs.values() if owner and secrets.compare_digest(run.owner.encode(), owner.encode())]

    def control(self, run: Run, action: str) -> None:
        """Pause, resume, step or stop a run; nothing happens where an action does not apply.

        Raises:
            ValueError: for an unknown action.
        """
        commands = {"pause": ("pause",), "resume": ("resume",), "step": ("step", 1), "stop": ("stop",)}
        if action not in commands:
            raise ValueError(f"action is {action!r}; use one of {', '.join(commands)}")
        with run.lock:
            if not run.live:
                return
            if action == "stop":
                run.status = "stopping"
        run.send(*commands[action])

    def ask(self, run: Run, text: str) -> Future[Answer]:
        """The current weights' answer to a sequence: from the worker while the run is live, from its checkpoint afterwards."""
        if not run.live:
            return self.inspect("ask", run.folder, text)
        number, future = next(self._numbers), Future[Answer]()
        if len(run.waiting) >= ASKING:
            resolve(future, {"error": "the model is still busy with earlier questions; ask again in a moment"})
            return future
        run.waiting[number] = future
        if not run.send("ask", number, text):
            run.waiting.pop(number, None)
            resolve(future, {"error": "the worker cannot be reached; ask again in a moment"})
        return future

    def poll(self, run: Run, cursor: int, looks: int) -> dict[str, Any]:
        """What a page that has `cursor` points and `looks` snapshots does not know yet."""
        with run.lock:
            points = run.points[max(0, cursor) : max(0, cursor) + POINTS_A_POLL]
            return {
                "status": run.status,
                "message": run.message,
                "steps": run.config.training.steps,
                "points": points,
                "more": cursor + len(points) < len(run.points),
                "looks": run.looks,
                "snapshot": run.snapshot if run.looks > looks else None,
                "stage": run.stage,
                "scores": run.scores,
            }

    def shutdown(self, seconds: float = 5.0) -> tuple[int, int]:
        """Let every live run save and end, all at once; what has not ended in time is killed. Returns how many ended by
        themselves, and how many had to be killed."""
        with self._lock:
            workers = [run.worker for run in self._runs.values() if run.live and run.worker]
        for worker in workers:
            worker.send("stop")
        deadline = time.monotonic() + seconds
        ended = 0
        for worker in workers:
            if worker.ended.wait(max(0.0, deadline - time.monotonic())):
                ended += 1
            else:
                worker.process.kill()
        if self._inspector:
            self._inspector.process.kill()
        return ended, len(workers) - ended

    def _take(self, run: Run, kind: str, *content: Any) -> None:
        """Take in one message of a worker."""
        if kind == "answer":
            if future := run.waiting.pop(content[0], None):
                resolve(future, content[1])
            return
        with run.lock:
            if kind == "points":
                run.points += content[0]
            elif kind == "snapshot":
                run.snapshot, run.looks = content[0], run.looks + 1
            elif kind == "stage":
                run.stage = content[0]
            elif kind == "trouble":
                run.message = content[0]
            elif kind == "status" and (run.status != "stopping" or content[0] == "paused"):
                run.status = content[0]
            elif kind == "ended":
                run.status, run.message, run.scores = content

    def _ended(self, run: Run, code: int | None) -> None:
        """A worker's process is no more."""
        with run.lock:
            if run.live:
                run.status = "failed"
                run.message = f"the training process ended unexpectedly (exit code {code}); {self._last_checkpoint(run)}"
        give_up(run.waiting, "the run ended before it could answer; ask again")

    def _last_checkpoint(self, run: Run) -> str:
        try:
            return f"its checkpoint of step {read_manifest(run.folder).step} is kept"
        except (CheckpointError, OSError):
            return "it had no checkpoint yet; train again"

    # Checkpoints

    def checkpoints(self) -> dict[str, Path]:
        """The checkpoints that everybody here may look at: the folders right under the root, by name."""
        folders = sorted(path.parent for path in self.root.glob("*/config.json") if not path.parent.name.startswith("."))
        return {folder.name: folder for folder in folders}

    def inspect(self, kind: str, folder: Path, text: str = "") -> Future[Answer]:
        """Ask the inspector's process to "view" a checkpoint, or to "ask" it for an answer. May wait while that process starts."""
        number, future = next(self._numbers), Future[Answer]()
        with self._inspector_lock:
            if self._inspector is None or self._inspector.ended.is_set():
                asked: dict[int, Future[Answer]] = {}
                self._inspections = asked
                self._inspector = Child(
                    "playground.runs.inspector:inspect",
                    "inspector",
                    on_message=lambda n, answer: resolve(asked.pop(n), answer),
                    on_end=lambda code: give_up(asked, f"the process that looks into checkpoints ended (exit code {code}); ask again"),
                )
            self._inspections[number] = future
            if not self._inspector.send(number, kind, str(folder), text):
                self._inspections.pop(number, None)
                resolve(future, {"error": "too many are asking at once; ask again in a moment"})
        return future


def resolve(future: Future[Answer], answer: Answer) -> None:
    """Give an answer to whoever still waits for it."""
    with suppress(InvalidStateError):
        future.set_result(answer)


def give_up(waiting: dict[int, Future[Answer]], reason: str) -> None:
    """Tell everyone who still waits that no answer will come."""
    for number in list(waiting):
        if future := waiting.pop(number, None):
            resolve(future, {"error": reason})
