"""Run registry: ownership, scheduling, worker messages and idle timeouts.

This module holds no tensors and does not import torch.

Threads: the registry is safe to call from any thread. Each worker has its own threads
(`processes.py`), and one thread does the housekeeping. A thread that holds the registry's lock may
take the lock of a run, never the other way round.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import filelock
import psutil

from playground.models.config import SettingError
from playground.training.config import MOST_CHANGES, Change, RunConfig, settings_at, with_change
from playground.training.environment import env_number
from playground.training.files import sweep, way_out
from playground.training.manifest import Manifest, read_manifest

from .addresses import CLIENT_ADDRESS as CLIENT_ADDRESS
from .addresses import half_of, holds_share
from .eyes import BUSY, Eyes, passing, resolve
from .history import weights_path
from .inspection_queue import NO_CLIENT, Client
from .limits import WARNED_BEFORE, Limits, kept_by
from .limits import slots as usual_slots
from .memory import check_memory
from .points import Points
from .pricing import least_seconds
from .processes import Child, active_seconds
from .room import Room, bytes_in
from .run import (
    EMPTIED,
    KEPT,
    LONGEST_NAME,
    NOTHING_USABLE,
    WORKING,
    Answer,
    Order,
    RecordLock,
    Run,
    better,
    fingerprint,
    of_family,
    summary,
    task_in_words,
)
from .run import Refused as Refused  # callers of the registry import it from here
from .tickets import Tickets
from .zero import SLICE, Lender, Slice, in_words

log = logging.getLogger(__name__)

STALE = 600.0  # age in seconds at which an unfinished write is removed
WAITING_IN_ALL = 100  # queued runs of all owners
WAITING_AN_ADDRESS = half_of(WAITING_IN_ALL)
WAITING_AN_OWNER = 16  # queued runs of one owner
RUNS_AN_OWNER = 200
OVERTAKEN_FOR = 120.0  # seconds that smaller runs may start before a run that lacks memory
WATCHED_FOR = 5.0  # seconds after its last poll for which a page counts as open
# Seconds without a poll after which the points of a run without a worker are removed from memory.
FORGOTTEN_AFTER = 60.0
HOUSEKEEPING = 0.5  # seconds between two rounds
LOOKS_LOST = 3  # failed snapshots in a row after which a run that has ended gets no more
KNOWN_FOR = 3600.0  # seconds for which the last activity of an owner is stored
SWEPT_EVERY = 30.0  # seconds between two checks of the storage quota
LONGEST_LOOK = 60.0  # seconds after which the inspection process is restarted
LONGEST_PROOF = 300.0  # the same for views that measure on hundreds of sequences
UNDO_FOR = 600.0  # seconds that a deleted run stays on disk
OWNERS_KEPT = 10_000  # owners whose last activity is stored; a client can invent owners
TURNS_KEPT = 1000  # owners whose last turn is stored; the others count as never served
COMMANDS = ("pause", "resume", "step", "stop", "keep")


class Registry:
    """All runs of a server, with the scheduler and supervisor of their workers.

    At most `slots` workers exist at a time, and at most `slots_an_owner` for one owner. Further
    runs wait in the queue. A run without a viewer for `lease` seconds saves and pauses. A run that
    is paused for `reap` seconds releases its worker, and can be resumed from disk. A worker that
    sends no message and uses no processor time for `hung_after` seconds is killed. `limits` are
    the limits of a public server for each visitor.
    """

    def __init__(
        self,
        root: Path,
        slots: int | None = None,
        slots_an_owner: int | None = None,
        *,
        lease: float | None = None,
        reap: float | None = None,
        hung_after: float | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.root = Path(root)
        self.limits = limits or Limits.none()
        self.slots = slots or usual_slots()
        self.slots_an_owner = min(slots_an_owner or self.slots, self.slots)
        self.lease = env_number("IDLE_TIMEOUT_S") if lease is None else lease
        self.reap = env_number("RELEASE_AFTER_S") if reap is None else reap
        self.hung_after = env_number("HANG_TIMEOUT_S") if hung_after is None else hung_after
        self.eyes = Eyes()
        self.prover = Eyes()  # for views that take seconds, so that they do not delay fast ones
        self.checker = Eyes()  # for uploads, so that a hostile one cannot interrupt other views
        self.tickets = Tickets()
        self.lender: Lender | None = None  # on ZeroGPU, the function that trains a slice
        self.device_line = ""  # the training device and the reason, once they are known
        self.home_note = ""  # a warning for visitors about the storage of runs
        self.local_owner = ""  # the single owner of a local instance
        # when each owner last listed their runs, by fingerprint, oldest first
        self.here: OrderedDict[str, float] = OrderedDict()
        self._runs: dict[str, Run] = {}
        self._watched: dict[str, Run] = {}  # by the id in a share link
        self._line: list[Run] = []  # the queued runs, in order of arrival
        # queue positions by run id, 1 for the next run; replaced as a whole, never modified
        self._places: dict[str, int] = {}
        # number of the last turn of each owner, earliest first
        self._turns: OrderedDict[str, int] = OrderedDict()
        self._turn = 0
        self._lock = RecordLock()
        # Held while a run is admitted, also during disk access; taken before `_lock`.
        self._admitting = threading.Lock()
        self.room = Room(self)
        self._closing = threading.Event()
        for folder in (self.root, *(self.root / name for name in ("runs", "rows", "compared"))):
            sweep(folder, STALE)
        self._find_runs()
        threading.Thread(target=self._keep_house, name="housekeeping", daemon=True).start()

    def _find_runs(self) -> None:
        """Load the runs of an earlier server from disk; those that were active become paused."""
        for path in sorted((self.root / "runs").glob("*/run.json")):
            with (
                suppress(filelock.Timeout, OSError),
                filelock.FileLock(path.parent / ".lock", timeout=0),
            ):
                for folder in (path.parent, path.parent / "checkpoints", path.parent / "history"):
                    sweep(folder)  # no process writes there, as the lock is free
            try:
                run = Run.read(path.parent)
            except (ValueError, OSError):
                # The directory stays. Its checkpoints can be opened by their path.
                continue
            if run.id not in self._runs:
                self._add(run)

    def _add(self, run: Run) -> None:
        with self._lock:
            self._runs[run.id] = self._watched[run.watch_id] = run

    # Ownership

    def find(self, run_id: object, owner: str) -> Run | None:
        """Return the run with this id if it belongs to the owner, else None."""
        run = self._runs.get(run_id) if isinstance(run_id, str) else None
        return (
            run if run and owner and secrets.compare_digest(run.owner, fingerprint(owner)) else None
        )

    def find_watched(self, watch_id: object) -> Run | None:
        """Return the run of a share link; None if there is none.

        The id has 128 random bits, so a timing attack on the lookup gains nothing.
        """
        run = self._watched.get(watch_id) if isinstance(watch_id, str) else None
        return run if run and run.deleted_at is None else None

    def of_owner(self, owner: str) -> list[Run]:
        """Return an owner's runs, oldest first, with the deleted ones that can be restored."""
        mark = fingerprint(owner)
        with self._lock:
            mine = [
                run
                for run in self._runs.values()
                if owner and secrets.compare_digest(run.owner, mark)
            ]
        return sorted(mine, key=lambda run: run.created)

    def everybodys(self) -> list[Run]:
        """Return the runs of all owners."""
        with self._lock:
            return list(self._runs.values())

    def configs(self) -> list[RunConfig]:
        """Return the configurations of all runs, so that the datasets in use are not deleted."""
        return [run.config for run in self.everybodys()]

    def rows(self, owner: str) -> list[dict[str, Any]]:
        """Return summaries of an owner's runs, newest first.

        The request counts as activity of the owner and prevents the idle timeout of these runs.
        """
        now, rows, mine, places = time.monotonic(), [], self.of_owner(owner), self._places
        self._note_presence(fingerprint(owner), now)
        for run in reversed(mine):
            # The page shows the list, but not the live view of this run.
            run.watched_at = max(run.watched_at, now - WATCHED_FOR)
            rows.append(summary(run) | {"place": places.get(run.id), "slice": run.waits_for_slice})
        return rows

    def _note_presence(self, owner: str, now: float) -> None:
        with self._lock:
            self.here[owner] = now
            self.here.move_to_end(owner)
            while len(self.here) > OWNERS_KEPT or now - next(iter(self.here.values())) > KNOWN_FOR:
                self.here.popitem(last=False)

    # Start

    def start(
        self,
        config: RunConfig,
        owner: str,
        *,
        name: str = "",
        changes: list[Change] | None = None,
        origin: tuple[Run, int] | None = None,
    ) -> Run:
        """Create a run and start it as soon as a slot is free.

        Raises:
            Refused: if the owner has too many queued runs, or too many runs, or the storage quota
                is used up.
            SettingError: if the run needs more memory than is free, or exceeds the limits.
        """
        self.check_size(config)
        with self._admitting:
            mine = self.of_owner(owner)
            if sum(run in self._line for run in mine) >= WAITING_AN_OWNER:
                raise Refused(
                    f"you have {WAITING_AN_OWNER} queued runs, which is the maximum; "
                    "wait until one starts, or stop one"
                )
            if len(self._line) >= WAITING_IN_ALL:
                raise Refused(
                    f"the queue has {WAITING_IN_ALL} runs, which is the maximum; try again later"
                )
            if holds_share((run.address for run in self._line), WAITING_IN_ALL):
                raise Refused(
                    f"the queue has {WAITING_AN_ADDRESS} runs from your address, "
                    "which is the maximum; try again later"
                )
            if len(mine) >= RUNS_AN_OWNER:
                raise Refused(
                    f"you have {RUNS_AN_OWNER} runs, which is the maximum; delete some first"
                )
            self.room.check(fingerprint(owner), kept_by(config))
            folder = self._folder(config)
            run = self._new(config, owner, name, folder)
            run.points, run.recorded, run.changes = Points(), [], list(changes or [])
            run.origin = (origin[0].folder.name, origin[1]) if origin else None
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                why = error.strerror or error
                raise Refused(
                    f"the run's folder {folder.name} could not be created: {why}; "
                    f"{way_out(error)} and try again"
                ) from None
            run.write()
            self._add(run)
            self._queue(run, "train")
        return run

    def check_size(self, config: RunConfig) -> None:
        """Refuse a run that exceeds the limits of this server or its free memory.

        Raises:
            SettingError: with the setting, its value and the limit.
        """
        self.limits.check(config)
        check_memory(config)

    def again(self, run: Run, owner: str) -> Run:
        """Start a copy of a run: same settings, same seed, same changes at the same steps."""
        return self.start(run.config, owner, name=run.name, changes=run.changes)

    def branch(self, run: Run, step: int, owner: str) -> Run:
        """Create a run that continues from a step of this one.

        It pauses at that step, so that its owner can first change a setting.

        Raises:
            Refused: if the run has not reached the step.
        """
        last = max(run.load().last, run.step)
        if not 0 <= step <= last:
            raise Refused(f"step {step} is not in this run; choose a step from 0 to {last}")
        changes = [change for change in run.changes if change.step <= step]
        if step >= run.steps:
            changes.append(Change(step, "steps", min(1_000_000, step + run.config.training.steps)))
        until = settings_at(run.config.training, changes, step).until
        # Without this change, the new run would end at its next evaluation.
        if until and (run.score_at(step) or 0.0) >= until:
            changes.append(Change(step, "until", 0.0))
        return self.start(
            run.config, owner, name=f"{run.name} from {step}", changes=changes, origin=(run, step)
        )

    def _new(self, config: RunConfig, owner: str, name: str, folder: Path) -> Run:
        name = self._free_name(name, self.of_owner(owner)) or self._free_name(
            _name(config), self.of_owner(owner)
        )
        run = Run(
            secrets.token_urlsafe(16),
            secrets.token_urlsafe(16),
            fingerprint(owner),
            name,
            config,
            folder,
        )
        run.address = CLIENT_ADDRESS.get()
        return run

    def _folder(self, config: RunConfig) -> Path:
        """Return the folder of a new run: its date, its task and a random suffix."""
        return (
            self.root
            / "runs"
            / f"{time.strftime('%Y%m%d-%H%M%S')}-{config.task.task}-{secrets.token_hex(3)}"
        )

    def _free_name(self, name: str, among: list[Run]) -> str:
        taken = {run.name for run in among if run.deleted_at is None}
        # run.json accepts printable names only.
        name = "".join(letter for letter in name if letter.isprintable())[:LONGEST_NAME]
        number, base = 2, name[: LONGEST_NAME - 6]
        while name in taken:
            name, number = f"{base} ({number})", number + 1
        return name

    def adopt(self, folder: Path, owner: str, name: str) -> Run:
        """Import a checkpoint, already validated and in its own folder, as a run of this owner.

        Raises:
            CheckpointError: if config.json cannot be read.
            SettingError: if the model exceeds the limits of this server.
            Refused: if the owner has too many runs, or the storage quota is used up.
        """
        manifest = read_manifest(folder)
        self.limits.check(manifest.config)
        self.limits.check_metrics(folder / "metrics.jsonl")
        with self._admitting:
            if len(self.of_owner(owner)) >= RUNS_AN_OWNER:
                raise Refused(
                    f"you have {RUNS_AN_OWNER} runs, which is the maximum; delete some first"
                )
            self.room.check(fingerprint(owner), bytes_in(folder))
            run = self._take_over(folder, manifest, owner, name)
            self._add(run)
        return run

    def _take_over(self, folder: Path, manifest: Manifest, owner: str, name: str) -> Run:
        """Move a checkpoint into the folder of a new run.

        Raises:
            OSError: if a file cannot be written; the new folder is removed then.
        """
        home = self._folder(manifest.config)
        place = home / "checkpoints" / f"{manifest.step:07d}{KEPT}"
        try:
            place.parent.mkdir(parents=True)
            shutil.move(folder, place)
            (home / "history").mkdir()
            shutil.copyfile(place / "model.safetensors", weights_path(home, manifest.step))
            if (place / "metrics.jsonl").is_file():
                shutil.move(place / "metrics.jsonl", home / "metrics.jsonl")
        except OSError:
            shutil.rmtree(home, ignore_errors=True)
            raise
        resumable = (place / "training.safetensors").is_file()
        steps = settings_at(manifest.config.training, manifest.changes, manifest.step).steps
        run = self._new(manifest.config, owner, name, home)
        run.status = "stopped" if resumable and manifest.step < steps else "done"
        run.changes = list(manifest.changes)
        run.scores = manifest.scores
        run.step, run.seconds, run.device = manifest.step, manifest.seconds, manifest.device
        run.sent = True
        score = manifest.scores["exact_match"] if manifest.scores else None
        run.best = better(run.load().best, score)
        run.write()
        return run

    def closed(self) -> str:
        """Return why this folder cannot store runs and what to do; empty if it can."""
        runs = self.root / "runs"
        try:
            runs.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=runs):
                return ""
        except OSError as error:
            return (
                f"{runs} cannot be written ({error.strerror or error}): models can be inspected, "
                f"but not trained; {way_out(error)}"
            )

    def claim_folder(self) -> str:
        """Lock the folder for this server; return a warning if another server uses it, else ""."""
        self._claim = filelock.FileLock(self.root / "runs" / ".server.lock")
        try:
            self._claim.acquire(timeout=0)
        except filelock.Timeout:
            return (
                f"another server uses {self.root}: each may overwrite the names and deletions "
                "of the other; stop one, or set PLAYGROUND_CHECKPOINTS to another folder"
            )
        except OSError:  # `closed` reports a folder that cannot be written
            pass
        return ""

    # Scheduler

    def _queue(self, run: Run, begin: str) -> None:
        """Add a run without a worker to the queue."""
        with self._lock:
            if run.live or run in self._line:
                return
            run.begin, run.status, run.message = begin, "waiting", ""
            run.watched_at, run.short_since = time.monotonic(), None
            if run.sliced:  # the page requests its slices
                run.write()
                return
            self._line.append(run)
            self._dispatch()

    def _dispatch(self) -> None:
        """Start queued runs in the free slots; if none is free, reclaim one of a paused run."""
        with self._lock:
            while not self._closing.is_set() and self._place_one():
                pass
            self._publish_places()

    def _publish_places(self) -> None:
        """Store the queue positions where a poll reads them without a lock. Needs the lock."""
        self._places = {run.id: at for at, run in enumerate(self._order(), start=1)}

    def _place_one(self) -> bool:
        """Launch the first queued run that has a slot and enough memory. Needs the lock.

        A run that needs less memory may start before one that lacks it. After `OVERTAKEN_FOR`
        seconds it may not, if the end of a live run would free memory.

        Returns:
            whether a run was launched.
        """
        now = time.monotonic()
        for run in self._order():
            live = [other for other in self._runs.values() if other.live and not other.sliced]
            mine = sum(other.owner == run.owner for other in live)
            if len(live) < self.slots and mine < self.slots_an_owner:
                starting = sum(
                    other.config.memory_estimate() for other in live if other.status == "starting"
                )
                try:
                    check_memory(run.config, besides=starting)
                except SettingError as error:
                    run.message = f"waiting for memory: {error}"
                    run.short_since = run.short_since or now
                    if not live or now - run.short_since < OVERTAKEN_FOR:
                        continue
                    self._make_way([other for other in live if other.status == "paused"])
                    return False
                self._line.remove(run)
                run.short_since = None
                self._turn += 1
                self._turns[run.owner] = self._turn
                self._turns.move_to_end(run.owner)
                while len(self._turns) > TURNS_KEPT:
                    self._turns.popitem(last=False)
                self._launch(run)
                return True
            run.message = ""  # the run waits for a slot, not for memory
            own = mine >= self.slots_an_owner
            if not any(o.parking for o in live):
                self._make_way(
                    [o for o in live if o.status == "paused" and (not own or o.owner == run.owner)]
                )
            return False
        return False

    @staticmethod
    def _make_way(idle: list[Run]) -> None:
        """Reclaim the slot of the paused run that was viewed least recently.

        The run saves, and its worker exits.
        """
        if idle and not any(run.parking for run in idle):
            leaver = min(idle, key=lambda run: run.watched_at)
            leaver.parking = leaver.send("park")

    def _order(self) -> list[Run]:
        """Return the queued runs in the order in which they start.

        Fair order: owners with the fewest active runs first, then round-robin. The runs of one
        owner start in order of arrival.
        """
        with self._lock:
            places = Counter(
                run.owner for run in self._runs.values() if run.live and not run.sliced
            )
            theirs: dict[str, deque[tuple[int, Run]]] = defaultdict(deque)
            for at, run in enumerate(self._line):
                theirs[run.owner].append((at, run))
            next_of = [
                (places[owner], self._turns.get(owner, 0), mine[0][0], owner)
                for owner, mine in theirs.items()
            ]
            heapify(next_of)
            order = list[Run]()
            while next_of:
                held, _, _, owner = heappop(next_of)
                order.append(theirs[owner].popleft()[1])
                if mine := theirs[owner]:
                    heappush(next_of, (held + 1, self._turn + len(order), mine[0][0], owner))
            return order

    def place(self, run: Run) -> int | None:
        """Return the queue position of a run, 1 for the next one; None if it is not queued."""
        return self._places.get(run.id) if run.status == "waiting" else None

    def _launch(self, run: Run) -> None:
        with run.lock:
            run.worker = Child(
                "playground.runs.worker:work",
                f"run-{run.folder.name}",
                self._order_for(run),
                on_message=lambda *message: self._take(run, *message),
                on_end=lambda code: self._ended(run, code),
            )
            run.write()

    def _order_for(self, run: Run, seconds: float = 0.0) -> Order:
        """Return the specification for a worker that is about to start. Needs the run's lock."""
        run.status, run.message = "starting", ""
        run.parking, run.held = False, False
        run.watched, run.watched_at = True, time.monotonic()
        run.heard_at, run.worked, run.size = time.monotonic(), 0.0, None
        origin = (str(self.root / "runs" / run.origin[0]), run.origin[1]) if run.origin else None
        return Order(
            str(run.folder),
            run.config.to_fields(),
            [change.to_list() for change in run.changes],
            run.begin,
            origin,
            active=run.active,
            seconds=seconds,
            threads=self.limits.threads,
        )

    def at_rest(self, run: Run) -> bool:
        """Return whether a run is idle.

        An idle run has no worker, no pending snapshot or request, and no run that is about to
        branch from it.
        """
        if (
            run.live
            or run in self._line
            or run.looking
            or any(not future.done() for future in run.asked)
        ):
            return False
        return not any(
            o.origin and o.origin[0] == run.folder.name and o.status in ("waiting", "starting")
            for o in self.everybodys()
        )

    def hold(self) -> AbstractContextManager[object]:
        """Return a lock: while it is held, no run starts or resumes."""
        return self._lock

    def forget(self, run: Run) -> None:
        """Remove a run from the registry; the caller removes its folder."""
        with self._lock:
            self._runs.pop(run.id, None)
            self._watched.pop(run.watch_id, None)

    def run_slice(self, run: Run) -> None:
        """Train the next slice of a run that waits for one, and return when it has ended.

        If the run waits for none, nothing happens. Call it in the thread of the owner's event,
        because ZeroGPU assigns the GPU to that request.
        """
        with self._lock, run.lock:
            if (
                self.lender is None
                or not run.waits_for_slice
                or run.deleted_at is not None
                or self._closing.is_set()
            ):
                return
            order, run.begin = self._order_for(run, SLICE), "train"
            piece = Slice(f"slice-{run.folder.name}", lambda *message: self._take(run, *message))
            run.worker = piece
            run.write()
        trouble: Exception | None
        try:
            trouble = piece.run(self.lender, order)
        except (OSError, RuntimeError) as error:  # no socket, or no thread, could be created
            trouble = error
        kept = run.last_checkpoint() if run.status in WORKING else ""
        with run.lock:
            if run.status in WORKING:
                status = "stopped" if run.status == "stopping" else "paused"
                run.verdict = (status, f"{in_words(trouble or EOFError())}; {kept}")
        self._ended(run, None)
        piece.ended.set()

    # Actions of the owner

    def control(self, run: Run, action: str) -> None:
        """Pause, resume, step or stop a run, or save a checkpoint of its current step.

        An action that does not apply to the status of the run has no effect.

        Raises:
            ValueError: for an unknown action.
            Refused: if the run cannot be resumed, has reached its time limit, or the checkpoint
                exceeds the storage quota.
            SettingError: if a run to resume exceeds the limits of this server.
        """
        if action not in COMMANDS:
            raise ValueError(f"action is {action!r}; use one of {', '.join(COMMANDS)}")
        kept = run.last_checkpoint() if action == "stop" and run.status == "stopping" else ""
        if action in ("resume", "step"):
            self.check_may_train(run)
        elif action == "keep":
            self.room.check(run.owner, kept_by(run.config) // 2)
        with self._lock, run.lock:
            # The eviction may have happened since the check above.
            if action in ("resume", "step") and run.removed == EMPTIED:
                raise Refused(run.message)
            if run in self._line and action in ("pause", "stop"):
                self._line.remove(run)
                self._publish_places()
                run.status, run.message = "paused" if action == "pause" else "stopped", ""
                run.write()
            elif run.waits_for_slice and action in ("pause", "stop"):
                run.status = "paused" if action == "pause" else "stopped"
                run.write()
            elif run.live and (run.parking or (run.sliced and run.status == "paused")):
                # Its worker is about to exit.
                if run.status == "waiting" and action in ("pause", "stop"):
                    run.status = "paused" if action == "pause" else "stopped"
                elif (
                    action in ("resume", "step")
                    and run.status in ("paused", "stopped", "failed")
                    and run.deleted_at is None
                ):
                    run.wanted = "train" if action == "resume" else "step"
                elif action in ("pause", "stop"):
                    run.wanted = ""
                    if action == "stop" and run.status == "paused":
                        run.status = "stopped"
            elif run.live:
                if action == "stop" and run.status == "stopping":
                    run.verdict = (
                        "stopped",
                        f"ended immediately by a second Stop; {kept or run.last_checkpoint()}",
                    )
                    run.worker.kill()  # type: ignore[union-attr]  # a live run has one
                    return
                if not run.send(*(("step", 1) if action == "step" else (action,))):
                    raise Refused(
                        "the training process accepts no commands now; try again in a moment"
                    )
                if action != "keep" and action != "pause":
                    run.unanswered = run.unanswered or time.monotonic()
                run.held = action == "pause"
                if action == "stop":
                    run.status = "stopping"
                elif action in ("resume", "step"):
                    run.message = ""
            elif (
                action in ("resume", "step")
                and run.status in ("paused", "stopped", "failed")
                and run.deleted_at is None
            ):
                self._queue(run, "train" if action == "resume" else "step")
            elif action == "stop" and run.status == "paused":
                run.status = "stopped"
                run.write()

    def check_may_train(self, run: Run) -> None:
        """Check that a run may continue to train.

        Raises:
            Refused: if it has reached its time limit, or its training state is not available.
            SettingError: if it exceeds the limits of this server.
        """
        self.limits.check(run.config)
        if run.removed == EMPTIED:
            raise Refused(run.message)
        if self.limits.seconds and run.active >= self.limits.seconds:
            raise Refused(self.limits.of_time())
        found = [] if run.live else [path for path, _ in run.checkpoints()]
        if found and not any((path / "training.safetensors").is_file() for path in found):
            raise Refused(
                "this checkpoint holds weights only: it can be inspected, but not trained further"
            )

    def change(self, run: Run, setting: str, value: Any) -> None:
        """Change a setting of a run from its next step on.

        Raises:
            SettingError: if the setting cannot change, or the value is invalid.
            Refused: if `steps` is not more than the steps already taken.
        """
        run.load()
        wanted = Change(0, setting, value)
        # More steps let a finished run continue.
        if setting == "steps" and run.status == "done" and wanted.value > run.step:
            self.check_may_train(run)
        with run.lock:
            change = Change(max(run.step, run.origin[1] if run.origin else 0), setting, value)
            if setting == "threads":
                self.limits.check_threads(int(change.value))
            if setting == "steps" and change.value <= run.step:
                raise Refused(f"the run has taken {run.step} steps already; give a larger number")
            if len(run.changes) >= MOST_CHANGES:
                raise Refused(
                    f"this run has {MOST_CHANGES} changes of settings, which is the maximum; "
                    "start a new run"
                )
            if run.live and not run.parking:
                if not run.send("change", setting, change.value):
                    raise Refused(
                        "the training process accepts no commands now; try again in a moment"
                    )
                return
            run.changes = with_change(run.changes, change)
            if setting == "steps" and run.status == "done":
                run.status = "paused"
            run.write()

    def edit(self, run: Run, *, name: str | None = None, hidden: bool | None = None) -> None:
        """Rename, hide or show a run.

        Raises:
            Refused: if the name is empty or too long.
        """
        with run.lock:
            if name is not None:
                name = " ".join(name.split())
                if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
                    raise Refused(
                        f"the name has {len(name)} characters; use 1 to {LONGEST_NAME} "
                        "printable characters"
                    )
                run.name = name
            run.hidden = run.hidden if hidden is None else hidden
            run.write(flush=True)

    def delete(self, run: Run) -> None:
        """Delete a run; for `UNDO_FOR` seconds it can be restored, paused if it was active."""
        with self._lock, run.lock:
            if run in self._line:
                self._line.remove(run)
                self._publish_places()
                run.status = "paused"
            elif run.live:
                run.parking = run.send("park")
            elif run.waits_for_slice:
                run.status = "paused"
            run.wanted, run.deleted_at, run.deleted_on = "", time.time(), time.monotonic()
            run.write(flush=True)

    def undelete(self, run: Run) -> None:
        """Restore a deleted run."""
        with run.lock:
            run.deleted_at = None
            run.write()

    # Requests of the page

    def poll(
        self,
        run: Run,
        known: int,
        epoch: int,
        looks: int,
        client: Client | None = None,
        changes: int = -1,
    ) -> dict[str, Any]:
        """Return the state of a run that the page does not have yet.

        It takes no lock that is held during disk access, so the event loop may call it.

        Args:
            known: number of points that the page has.
            epoch: the id of the series of these points.
            looks: number of the snapshot that the page has.
            client: the client whose quota new snapshots use.
            changes: version of the changes that the page has.
        """
        run.watched_at, run.watched_by = time.monotonic(), client
        if run.live and not run.watched:
            run.watched = run.send("watch", True)
        place, recorded = self.place(run), run.records()
        run.load()
        with run.lock:
            points = run.points or Points()
            if run.epoch != epoch:
                known, looks = 0, 0
            if run.newest is not None and (
                run.snapshot is None or run.snapshot["step"] != run.newest
            ):
                self._look(run)
            return {
                "status": run.status,
                "message": run.message,
                "place": place,
                "slice": run.waits_for_slice,
                "sliced": run.sliced,
                "name": run.name,
                "step": run.step,
                "steps": run.steps,
                "speed": run.speed,
                "learning_rate": run.learning_rate,
                "parameters": run.config.model.parameter_count(),
                "device": run.device,
                "epoch": run.epoch,
                "points": points.since(known),
                "latest": points.latest(),
                "recorded": recorded if run.recorded is None else run.recorded,
                "looks": run.looks,
                "snapshot": run.snapshot if run.looks > looks else None,
                "stage": run.stage if run.looks > looks else None,
                "scores": run.scores,
                "changes": None
                if changes == run.changes_version
                else [change.to_list() for change in run.changes],
                "changes_version": run.changes_version,
                "saved": run.saved,
                "live": run.live,
                "left": self._left(run),
                "branched": run.origin[1] if run.origin else None,
            }

    def _left(self, run: Run) -> list[Any] | None:
        """Return the seconds of training left and the reason; None if there are many."""
        left = self.limits.seconds - run.active
        return (
            [max(0.0, left), self.limits.of_time()]
            if self.limits.seconds and left <= WARNED_BEFORE
            else None
        )

    def look(self, run: Run, step: int, client: Client | None = None) -> Future[Answer]:
        """Return the snapshot at a step, or at the nearest step with stored weights."""
        return self._ask(run, self.eyes, "look", step, "", client)

    def ask(
        self, run: Run, text: str, step: int | None = None, client: Client | None = None
    ) -> Future[Answer]:
        """Return the model's prediction for a sequence, at a step or with the latest weights."""
        return self._ask(run, self.eyes, "ask", step, text, client)

    def show(
        self,
        run: Run | Path,
        request: str,
        step: int | None = None,
        slow: bool = False,
        client: Client | None = None,
    ) -> Future[Answer]:
        """Return one view of the Inspect tab, of a run or of a checkpoint.

        Args:
            request: the request of the page as JSON.
            step: the step of a run; None for the latest.
            slow: whether the view takes seconds, so that a separate process computes it.
        """
        process = self.prover if slow else self.eyes
        if isinstance(run, Path):
            return process.ask("show", run, request, client=client or NO_CLIENT)
        return self._ask(run, process, "show", step, request, client)

    def evaluate(
        self, run: Run | Path, n: int, step: int | None = None, client: Client | None = None
    ) -> Future[Answer]:
        """Return the scores of a run or a checkpoint on `n` held-out sequences."""
        if isinstance(run, Path):
            return self.prover.ask("evaluate", run, str(n), client=client or NO_CLIENT)
        return self._ask(run, self.prover, "evaluate", step, str(n), client)

    def _ask(
        self, run: Run, process: Eyes, kind: str, step: int | None, text: str, client: Client | None
    ) -> Future[Answer]:
        what = self.what(run, step)
        if what is None:
            return _settled(passing("this run has no weights yet; try again in a moment"))
        limit = self.limits.proof_seconds if process is self.prover else self.limits.look_seconds
        view = json.loads(text).get("view") if kind == "show" else kind
        seconds = least_seconds(run.config, str(view), int(text) if kind == "evaluate" else 0)
        if limit and seconds > limit:
            return _settled({"error": self.limits.of_patience(seconds)})
        with run.lock:
            run.asked = {future for future in run.asked if not future.done()}
            future = process.ask(
                kind, what, text, client=client or Client(owner=run.owner), time_limit=limit
            )
            run.asked.add(future)
        return future

    def what(self, run: Run, step: int | None = None) -> dict[str, Any] | None:
        """Return the reference of a run's weights for an inspection process.

        Args:
            step: the step of the weights; None for the latest.

        Returns:
            the reference; None while the run has no weights.
        """
        run.records()
        step = run.newest if step is None else step
        return None if step is None else self._what(run, step)

    def _what(self, run: Run, step: int) -> dict[str, Any]:
        return {"run": str(run.folder), "fields": run.config.to_fields(), "step": step}

    def _look(self, run: Run) -> None:
        """Request a snapshot of the latest weights, if none is pending."""
        if run.looking or run.newest is None:
            return

        def seen(future: Future[Answer]) -> None:
            answer = future.result()
            with run.lock:
                run.looking = False
                if answer.get("error") != BUSY:  # a full queue is no failure of the run
                    run.unseen = run.unseen + 1 if "error" in answer else 0
                if (
                    "error" in answer
                    and not run.live
                    and (not answer.get("again") or run.unseen >= LOOKS_LOST)
                ):
                    # Another request would fail, too.
                    run.newest, run.message = None, run.message or answer["error"]
                elif "error" not in answer:
                    run.stage, run.snapshot = answer["stage"], answer["snapshot"]
                    run.looks += 1
                    if not run.live:
                        run.newest = run.snapshot["step"]  # the nearest step with stored weights
                    if (
                        time.monotonic() - run.watched_at < WATCHED_FOR
                        and run.snapshot["step"] != run.newest
                    ):
                        self._look(run)

        client = run.watched_by or Client(owner=run.owner)
        future = self.eyes.ask(
            "look", self._what(run, run.newest), client=client, time_limit=self.limits.look_seconds
        )
        run.looking = True  # only now: a request that raised an error is not pending
        future.add_done_callback(seen)

    # Messages of workers

    def _take(self, run: Run, kind: str, *content: Any) -> None:
        """Handle one message of a worker."""
        kept = ""  # the last checkpoint of a failed run, read before the lock is taken
        if (
            kind == "ended"
            and content[0] == "failed"
            and NOTHING_USABLE not in content[1]
            and run.checkpoints()
        ):
            kept = run.last_checkpoint()
        with run.lock:
            run.heard_at, run.unanswered = time.monotonic(), None
            if kind == "points":
                run.take_points(content[0])
                run.paused_at = time.monotonic() if content[0] else run.paused_at
            elif kind == "history":
                run.recorded, run.newest = content
                if time.monotonic() - run.watched_at < WATCHED_FOR:
                    self._look(run)
            elif kind == "began":
                step, run.device = content
                if run.points is None or run.points.last != step:
                    run.points, run.snapshot = (Points() if not step else None), None
                    run.epoch = secrets.randbelow(2**31)
                run.step, run.recorded = step, None
            elif kind == "trouble":
                run.message = self._plain(content[0])
            elif kind == "changes":
                run.changes = Change.read(content[0])
                run.write()
            elif kind == "active":
                run.active = content[0]
            elif kind == "saved":
                run.saved += 1
                run.write()
            elif kind == "status" and (run.status != "stopping" or content[0] == "paused"):
                run.status, run.paused_at, run.parking = content[0], time.monotonic(), False
                run.write()
            elif kind == "ended":
                before, run.status, scores = run.status, content[0], content[2]
                if run.status == "waiting" and run.held:  # the pause came after the slice's end
                    run.status = "paused"
                if before == "stopped" or (before == "stopping" and run.status == "waiting"):
                    run.status = "stopped"
                # A paused run whose worker exits keeps the reason of the pause.
                if content[1] or run.status != "paused":
                    run.message = self._plain(content[1])
                run.parking = True  # later commands go to the next worker
                run.scores = scores or run.scores
                run.best = better(run.best, scores and scores["exact_match"])
                if run.status == "failed" and kept:
                    run.message = f"{run.message}; {kept}"
                run.write()

    def _ended(self, run: Run, code: int | None) -> None:
        """Handle the exit of a worker process."""
        kept = "" if run.verdict else run.last_checkpoint()
        with run.lock:
            if run.verdict:
                run.status, run.message = run.verdict
            elif run.status in WORKING or (run.status == "paused" and code):
                run.status, run.message = "failed", f"{_why(code)}; {kept}"
            run.verdict = None
            run.worker, run.parking, run.unanswered = None, False, None
            begin, run.wanted = run.wanted, ""
            run.write(flush=True)
        if begin and not self._closing.is_set():
            self._queue(run, begin)
        self._dispatch()

    def _plain(self, sentence: str) -> str:
        """Remove the root folder from a worker's message, because viewers read it, too."""
        return sentence.replace(f"{self.root}{os.sep}", "")

    # Housekeeping

    def _keep_house(self) -> None:
        swept_at = -SWEPT_EVERY
        while not self._closing.wait(HOUSEKEEPING):
            if self.limits.all_bytes and time.monotonic() - swept_at > SWEPT_EVERY:
                swept_at = time.monotonic()
                _guard(self.room.sweep)
            _guard(self.eyes.supervise, LONGEST_LOOK)
            _guard(self.prover.supervise, LONGEST_PROOF)
            for run in list(self._runs.values()):
                _guard(self._look_after, run)
            _guard(self._dispatch)

    def _look_after(self, run: Run) -> None:
        now = time.monotonic()
        alone = now - run.watched_at
        if run.live:
            if run.watched and alone > WATCHED_FOR:
                run.watched = not run.send("watch", False)
            if run.status == "training" and self.lease and alone > self.lease:
                run.message = (
                    run.message or f"paused automatically after {_time(self.lease)} without viewers"
                )
                run.send("pause")
            if (
                run.status == "training"
                and self.limits.seconds
                and run.active >= self.limits.seconds
            ):
                run.message = self.limits.of_time()
                run.send("pause")
            if (
                run.status == "paused"
                and self.reap
                and now - run.paused_at > self.reap
                and not run.parking
            ):
                run.parking = run.send("park")
            if run.deleted_at is not None and not run.parking:
                run.parking = run.send("park")
            self._end_if_hung(run, now)
        elif run in self._line and self.lease and alone > self.lease:
            with self._lock:
                if run in self._line:  # it may have started meanwhile
                    self.control(run, "stop")
                    run.message = (
                        f"removed from the queue after {_time(self.lease)} without viewers; "
                        "press Resume to queue it again"
                    )
                    run.write()
        elif (
            alone > FORGOTTEN_AFTER
            and run.points is not None
            and not run.looking
            and run not in self._line
        ):
            with run.lock:  # the disk has these data
                run.points = run.snapshot = run.stage = run.recorded = None
        if (
            run.deleted_at is not None
            and not run.live
            and time.monotonic() - run.deleted_on > UNDO_FOR
        ):
            self.room.take(run, self.room.forget)

    def _end_if_hung(self, run: Run, now: float) -> None:
        """Kill a worker that is silent and has neither used nor waited for the processor."""
        owes = run.unanswered or (run.heard_at if run.status != "paused" else None)
        worker = run.worker
        if worker is None or worker.process.pid is None:  # it has exited, or is about to start
            return
        if not self.hung_after or owes is None or now - max(owes, run.heard_at) < self.hung_after:
            return
        with suppress(psutil.Error):
            worked = active_seconds(worker.process.pid)
            if worked > run.worked + 0.02 * self.hung_after:
                # It is busy with a long step or an evaluation.
                run.worked, run.heard_at = worked, now - self.hung_after / 2
                return
            run.verdict = (
                "failed",
                f"the training process hung for {_time(self.hung_after)} and was ended; "
                f"{run.last_checkpoint()}",
            )
            worker.kill()

    def shutdown(self, seconds: float = 5.0) -> tuple[int, int]:
        """Save and end all workers at the same time, and kill those that exceed the timeout.

        The next server can resume the runs.

        Returns:
            the number of workers that exited, and the number of those that were killed.
        """
        self._closing.set()
        with self._lock:
            workers = [run.worker for run in self._runs.values() if run.live and run.worker]
            for run in self._line:
                run.status = "paused"
                run.write()
        for worker in workers:
            worker.send("park")
        deadline = time.monotonic() + seconds
        ended = 0
        for worker in workers:
            if worker.ended.wait(max(0.0, deadline - time.monotonic())):
                ended += 1
            else:
                worker.kill()
        for process in (self.eyes, self.checker, self.prover):
            process.stop()
        return ended, len(workers) - ended

    # Shared checkpoints

    def checkpoints(self) -> dict[str, Path]:
        """Return the checkpoints that all visitors may inspect, by name.

        They are the folders directly under the root.
        """
        folders = sorted(
            path.parent
            for path in self.root.glob("*/config.json")
            if not path.parent.name.startswith(".")
        )
        return {folder.name: folder for folder in folders}


def _guard(work: Callable[..., object], *arguments: Any) -> None:
    """Run one part of a housekeeping round, and log its error.

    The other parts and the later rounds then still run.
    """
    try:
        work(*arguments)
    except Exception:
        log.exception("%s failed in a round of housekeeping", getattr(work, "__qualname__", work))


def _settled(answer: Answer) -> Future[Answer]:
    future = Future[Answer]()
    resolve(future, answer)
    return future


def _name(config: RunConfig) -> str:
    """Return the default name of a run."""
    layers, heads = config.model.n_layers, config.model.n_heads
    size = "" if (layers, heads) == (2, 4) else f", {layers} × {heads}"
    return f"{task_in_words(config)}{of_family(config)}{size}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:g} s"


def _why(code: int | None) -> str:
    """Return why a training process ended that reported no reason."""
    if code is None:
        return (
            "the training process could not be started (the server's log has the reason); "
            "free memory or processes on the machine"
        )
    if code == -9:
        return "the training process was killed, by the system for lack of memory or by a user"
    return f"the training process ended unexpectedly (exit code {code})"
