"""The runs of this server: who owns them, who waits for a place, what their workers have told, and what happens to those that
nobody watches. It holds no tensor and imports no torch.

Threads: any thread may call in; each worker has threads of its own (processes.py), and one thread keeps house. The registry's lock
may be held when a run's is taken, never the other way round.
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
from .run import Refused as Refused  # whoever asks the registry catches it by this name
from .tickets import Tickets
from .zero import SLICE, Lender, Slice, in_words

log = logging.getLogger(__name__)

STALE = 600.0  # seconds after which an unfinished write is nobody's any more
WAITING_IN_ALL = 100
WAITING_AN_ADDRESS = half_of(WAITING_IN_ALL)
WAITING_AN_OWNER = 16  # runs that one owner may have waiting for a place
RUNS_AN_OWNER = 200
OVERTAKEN_FOR = 120.0  # seconds for which a run that is short of memory lets smaller ones go first
WATCHED_FOR = 5.0  # seconds since its last poll that a page counts as watching
FORGOTTEN_AFTER = (
    60.0  # seconds without a page after which the points of a run without a worker leave the memory
)
HOUSEKEEPING = 0.5  # seconds between two rounds
LOOKS_LOST = (
    3  # looks into a run that is over which fail in a row, until it is not looked into any more
)
KNOWN_FOR = 3600.0  # seconds for which it is remembered when an owner was here
SWEPT_EVERY = 30.0  # seconds between two looks at the room on the disk
LONGEST_LOOK = 60.0  # seconds after which the process that looks into models is started anew
LONGEST_PROOF = 300.0  # likewise for what is measured on hundreds of sequences
UNDO_FOR = 600.0  # seconds that a deleted run stays on disk
OWNERS_KEPT = 10_000  # of which it is known when they were here; anybody may invent owners
TURNS_KEPT = (
    1000  # owners whose last turn is known; one whose turn was longer ago counts as never served
)
COMMANDS = ("pause", "resume", "step", "stop", "keep")


class Registry:
    """Starts runs, finds them for their owner, and ends them all when the server goes.

    At most `slots` workers exist at a time, at most `slots_an_owner` of one owner; more runs wait in line. A run that nobody has
    watched for `lease` seconds saves and pauses; one that has been paused for `reap` seconds gives its worker back and can be
    resumed from disk. A worker that neither speaks nor works for `hung_after` seconds is ended. `limits` are what a server that
    is open to others allows each of them.
    """

    def __init__(self, root: Path, slots: int | None = None, slots_an_owner: int | None = None, *, lease: float | None = None,
                 reap: float | None = None, hung_after: float | None = None, limits: Limits | None = None) -> None:  # fmt: skip
        self.root = Path(root)
        self.limits = limits or Limits.none()
        self.slots = slots or usual_slots()
        self.slots_an_owner = min(slots_an_owner or self.slots, self.slots)
        self.lease = env_number("IDLE_TIMEOUT_S") if lease is None else lease
        self.reap = env_number("RELEASE_AFTER_S") if reap is None else reap
        self.hung_after = env_number("HANG_TIMEOUT_S") if hung_after is None else hung_after
        self.eyes = Eyes()
        self.prover = (
            Eyes()
        )  # for what takes seconds to find out, so that it keeps nobody waiting who only looks
        self.checker = Eyes()  # for what strangers send, so that it can take away nobody's view
        self.tickets = Tickets()
        self.lender: Lender | None = None  # on ZeroGPU, what trains a slice
        self.device_line = ""  # where runs train here, and why, once that is known
        self.home_note = ""  # what visitors should know of where runs are kept
        self.local_owner = (
            ""  # on a machine that serves nobody else, everything belongs to one owner
        )
        self.here: OrderedDict[str, float] = (
            OrderedDict()
        )  # by fingerprint: when an owner last listed their runs, oldest first
        self._runs: dict[str, Run] = {}
        self._watched: dict[str, Run] = {}  # by the id in a link to watch
        self._line: list[Run] = []  # those that wait for a place, first come first
        self._places: dict[
            str, int
        ] = {}  # by run id: the place in the line, 1 for the next one; replaced, never changed
        self._turns: OrderedDict[str, int] = (
            OrderedDict()
        )  # by owner: the number of their last turn, the earliest first
        self._turn = 0
        self._lock = RecordLock()
        self._admitting = (
            threading.Lock()
        )  # held while a run is admitted, also while the disk works; taken before `_lock`
        self.room = Room(self)
        self._closing = threading.Event()
        for folder in (self.root, *(self.root / name for name in ("runs", "rows", "compared"))):
            sweep(folder, STALE)
        self._find_runs()
        threading.Thread(target=self._keep_house, name="housekeeping", daemon=True).start()

    def _find_runs(self) -> None:
        """Take up the runs that an earlier server left; those that were going are paused now."""
        for path in sorted((self.root / "runs").glob("*/run.json")):
            with (
                suppress(filelock.Timeout, OSError),
                filelock.FileLock(path.parent / ".lock", timeout=0),
            ):
                for folder in (path.parent, path.parent / "checkpoints", path.parent / "history"):
                    sweep(folder)  # nobody is at it: what is unfinished stays so
            try:
                run = Run.read(path.parent)
            except (ValueError, OSError):
                continue  # not ours to judge: the folder stays, and its checkpoints can be opened by their path
            if run.id not in self._runs:
                self._add(run)

    def _add(self, run: Run) -> None:
        with self._lock:
            self._runs[run.id] = self._watched[run.watch_id] = run

    # Whose is what

    def find(self, run_id: object, owner: str) -> Run | None:
        """The owner's run with this id; None for anything else."""
        run = self._runs.get(run_id) if isinstance(run_id, str) else None
        return (
            run if run and owner and secrets.compare_digest(run.owner, fingerprint(owner)) else None
        )

    def find_watched(self, watch_id: object) -> Run | None:
        """The run that a link to watch leads to."""
        run = (
            self._watched.get(watch_id) if isinstance(watch_id, str) else None
        )  # 128 random bits: nothing to time
        return run if run and run.deleted_at is None else None

    def of_owner(self, owner: str) -> list[Run]:
        """An owner's runs, oldest first, deleted ones included as long as they can be brought back."""
        mark = fingerprint(owner)
        with self._lock:
            mine = [
                run
                for run in self._runs.values()
                if owner and secrets.compare_digest(run.owner, mark)
            ]
        return sorted(mine, key=lambda run: run.created)

    def everybodys(self) -> list[Run]:
        """Every run that is known here."""
        with self._lock:
            return list(self._runs.values())

    def configs(self) -> list[RunConfig]:
        """What everybody's runs are, so that nothing goes that one of them is made of."""
        return [run.config for run in self.everybodys()]

    def rows(self, owner: str) -> list[dict[str, Any]]:
        """An owner's runs as rows, newest first. Whoever asks is there: none of these runs is left alone."""
        now, rows, mine, places = time.monotonic(), [], self.of_owner(owner), self._places
        self._note_presence(fingerprint(owner), now)
        for run in reversed(mine):
            run.watched_at = max(
                run.watched_at, now - WATCHED_FOR
            )  # the list is on screen, though not this run's pictures
            rows.append(summary(run) | {"place": places.get(run.id), "slice": run.waits_for_slice})
        return rows

    def _note_presence(self, owner: str, now: float) -> None:
        with self._lock:
            self.here[owner] = now
            self.here.move_to_end(owner)
            while len(self.here) > OWNERS_KEPT or now - next(iter(self.here.values())) > KNOWN_FOR:
                self.here.popitem(last=False)

    # Beginning

    def start(self, config: RunConfig, owner: str, *, name: str = "", changes: list[Change] | None = None,
              origin: tuple[Run, int] | None = None) -> Run:  # fmt: skip
        """Begin a new run, at once or when a place is free.

        Raises:
            Refused: when the owner has too many waiting, or too many in all, or there is no room on the disk for another.
            SettingError: when the run would need more memory than is free, or is larger than any may be here.
        """
        self.check_size(config)
        with self._admitting:
            mine = self.of_owner(owner)
            if sum(run in self._line for run in mine) >= WAITING_AN_OWNER:
                raise Refused(
                    f"you have {WAITING_AN_OWNER} runs waiting for a place already; wait for one, or stop one"
                )
            if len(self._line) >= WAITING_IN_ALL:
                raise Refused(
                    f"{WAITING_IN_ALL} runs are waiting for a place already; try again later"
                )
            if holds_share((run.address for run in self._line), WAITING_IN_ALL):
                raise Refused(
                    f"{WAITING_AN_ADDRESS} runs from your address are waiting for a place already; try again later"
                )
            if len(mine) >= RUNS_AN_OWNER:
                raise Refused(
                    f"you have {RUNS_AN_OWNER} runs, which is as many as are kept; delete some first"
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
                    f"the run's folder {folder.name} could not be made: {why}; {way_out(error)} and try again"
                ) from None
            run.write()
            self._add(run)
            self._queue(run, "train")
        return run

    def check_size(self, config: RunConfig) -> None:
        """Refuse what is larger than any run may be here, or than the memory that is free. Raises SettingError, naming the field."""
        self.limits.check(config)
        check_memory(config)

    def again(self, run: Run, owner: str) -> Run:
        """The same run once more, exactly: same settings, same seed, same changes at the same steps."""
        return self.start(run.config, owner, name=run.name, changes=run.changes)

    def branch(self, run: Run, step: int, owner: str) -> Run:
        """A new run that goes on from a step of this one; it waits there, so that one can change something first.

        Raises:
            Refused: for a step that the run has not reached.
        """
        last = max(run.load().last, run.step)
        if not 0 <= step <= last:
            raise Refused(f"step {step} is not a step of this run, which has {last}")
        changes = [change for change in run.changes if change.step <= step]
        if step >= run.steps:
            changes.append(Change(step, "steps", min(1_000_000, step + run.config.training.steps)))
        until = settings_at(run.config.training, changes, step).until
        if (
            until and (run.score_at(step) or 0.0) >= until
        ):  # it would be there again at its next look
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
        """A new run's folder: when, what, and something that sets it apart."""
        return (
            self.root
            / "runs"
            / f"{time.strftime('%Y%m%d-%H%M%S')}-{config.task.task}-{secrets.token_hex(3)}"
        )

    def _free_name(self, name: str, among: list[Run]) -> str:
        taken = {run.name for run in among if run.deleted_at is None}
        name = "".join(letter for letter in name if letter.isprintable())[
            :LONGEST_NAME
        ]  # run.json takes no others
        number, base = 2, name[: LONGEST_NAME - 6]
        while name in taken:
            name, number = f"{base} ({number})", number + 1
        return name

    def adopt(self, folder: Path, owner: str, name: str) -> Run:
        """Make a checkpoint that was checked, and lies in a folder of its own, a run of this owner.

        Raises:
            CheckpointError: when config.json cannot be read.
            SettingError: when it is larger than any run may be here.
            Refused: when the owner has too many runs, or there is no room on the disk for another.
        """
        manifest = read_manifest(folder)
        self.limits.check(manifest.config)
        self.limits.check_metrics(folder / "metrics.jsonl")
        with self._admitting:
            if len(self.of_owner(owner)) >= RUNS_AN_OWNER:
                raise Refused(
                    f"you have {RUNS_AN_OWNER} runs, which is as many as are kept; delete some first"
                )
            self.room.check(fingerprint(owner), bytes_in(folder))
            run = self._take_over(folder, manifest, owner, name)
            self._add(run)
        return run

    def _take_over(self, folder: Path, manifest: Manifest, owner: str, name: str) -> Run:
        """Move a checkpoint into a run's folder of its own. Raises OSError, and leaves nothing behind then."""
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
        run.changes, run.scores, run.step, run.seconds = (
            list(manifest.changes),
            manifest.scores,
            manifest.step,
            manifest.seconds,
        )
        run.sent = True
        run.best, run.device = (
            better(run.load().best, manifest.scores["exact_match"] if manifest.scores else None),
            manifest.device,
        )
        run.write()
        return run

    def closed(self) -> str:
        """Why no run could be kept in this folder, and what can be done about it; empty where one could."""
        runs = self.root / "runs"
        try:
            runs.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=runs):
                return ""
        except OSError as error:
            return f"{runs} cannot be written ({error.strerror or error}): models can be looked at, none can be trained; {way_out(error)}"

    def claim_folder(self) -> str:
        """Lock the folder for this server; return a warning where another server has it, else an empty text."""
        self._claim = filelock.FileLock(self.root / "runs" / ".server.lock")
        try:
            self._claim.acquire(timeout=0)
        except filelock.Timeout:
            return (
                f"another server uses {self.root}: names and deletions that one of them writes may be lost to the other; stop one, or set "
                "PLAYGROUND_CHECKPOINTS to another folder"
            )
        except OSError:  # nothing can be written there, which `closed` reports
            pass
        return ""

    # The line

    def _queue(self, run: Run, begin: str) -> None:
        """Let a run without a worker have one as soon as there is a place."""
        with self._lock:
            if run.live or run in self._line:
                return
            run.begin, run.status, run.message, run.watched_at, run.short_since = (
                begin,
                "waiting",
                "",
                time.monotonic(),
                None,
            )
            if run.sliced:  # the page asks for its slices
                run.write()
                return
            self._line.append(run)
            self._dispatch()

    def _dispatch(self) -> None:
        """Give free places to those who wait, in their order; where there is none, ask a paused run to leave its own."""
        with self._lock:
            while not self._closing.is_set() and self._place_one():
                pass
            self._publish_places()

    def _publish_places(self) -> None:
        """Keep the places in the line where a poll finds them without a lock. With the lock held."""
        self._places = {run.id: at for at, run in enumerate(self._order(), start=1)}

    def _place_one(self) -> bool:
        """Launch the first in line for whom there is a place and the memory; who needs less of that goes first meanwhile, though not for
        ever where a run that ends would help. Whether there was one. With the lock held."""
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
                    run.message, run.short_since = (
                        f"it waits for memory: {error}",
                        run.short_since or now,
                    )
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
            run.message = ""  # a place is what it waits for
            own = mine >= self.slots_an_owner
            if not any(o.parking for o in live):
                self._make_way(
                    [o for o in live if o.status == "paused" and (not own or o.owner == run.owner)]
                )
            return False
        return False

    @staticmethod
    def _make_way(idle: list[Run]) -> None:
        """Ask the one of these paused runs that nobody has watched for longest to save and give its worker back."""
        if idle and not any(run.parking for run in idle):
            leaver = min(idle, key=lambda run: run.watched_at)
            leaver.parking = leaver.send("park")

    def _order(self) -> list[Run]:
        """Who comes next: owners with the fewest places first, among equals in turn, so that nobody's thirtieth run comes before
        another's first; an owner's own runs first come first."""
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
        """A waiting run's place in the line, 1 for the next one."""
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
        """What its worker, which is about to start, is to do. With the run's lock held."""
        run.status, run.parking, run.held, run.watched, run.watched_at = (
            "starting",
            False,
            False,
            True,
            time.monotonic(),
        )
        run.message = ""
        run.heard_at, run.worked, run.size = time.monotonic(), 0.0, None
        origin = (str(self.root / "runs" / run.origin[0]), run.origin[1]) if run.origin else None
        changes = [c.to_list() for c in run.changes]
        return Order(str(run.folder), run.config.to_fields(), changes, run.begin, origin, active=run.active, seconds=seconds,
                     threads=self.limits.threads)  # fmt: skip

    def at_rest(self, run: Run) -> bool:
        """Whether nobody is at a run: no worker, no look, and no other run that is about to branch off it."""
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
        """As long as it is held, no run begins, and none is resumed."""
        return self._lock

    def forget(self, run: Run) -> None:
        """Know a run no more; its folder is the caller's."""
        with self._lock:
            self._runs.pop(run.id, None)
            self._watched.pop(run.watch_id, None)

    def run_slice(self, run: Run) -> None:
        """Train the next slice of a run that waits for one, and return when it is over; nothing happens where there is none to
        train. To be called in the thread of its owner's event, to whom the GPU is lent.
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
        except (
            OSError,
            RuntimeError,
        ) as error:  # not even a place to be spoken to, or a thread to speak in
            trouble = error
        kept = run.last_checkpoint() if run.status in WORKING else ""
        with run.lock:
            if run.status in WORKING:
                status = "stopped" if run.status == "stopping" else "paused"
                run.verdict = (status, f"{in_words(trouble or EOFError())}; {kept}")
        self._ended(run, None)
        piece.ended.set()

    # What an owner does

    def control(self, run: Run, action: str) -> None:
        """Pause, resume, step, stop a run, or keep a checkpoint of now; nothing happens where an action does not apply.

        Raises:
            ValueError: for an unknown action.
            Refused: to resume what was never saved in a way that allows it, or may not train any longer here; to keep a checkpoint
                for which there is no room.
            SettingError: to resume what is larger than any run may be here.
        """
        if action not in COMMANDS:
            raise ValueError(f"action is {action!r}; use one of {', '.join(COMMANDS)}")
        kept = run.last_checkpoint() if action == "stop" and run.status == "stopping" else ""
        if action in ("resume", "step"):
            self.check_may_train(run)
        elif action == "keep":
            self.room.check(run.owner, kept_by(run.config) // 2)
        with self._lock, run.lock:
            if action in ("resume", "step") and run.removed == EMPTIED:  # just now
                raise Refused(run.message)
            if run in self._line and action in ("pause", "stop"):
                self._line.remove(run)
                self._publish_places()
                run.status, run.message = "paused" if action == "pause" else "stopped", ""
                run.write()
            elif run.waits_for_slice and action in ("pause", "stop"):
                run.status = "paused" if action == "pause" else "stopped"
                run.write()
            elif run.live and (
                run.parking or (run.sliced and run.status == "paused")
            ):  # its worker is on its way out
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
                        f"ended at once, on a second Stop; {kept or run.last_checkpoint()}",
                    )
                    run.worker.kill()  # type: ignore[union-attr]  # a live run has one
                    return
                if not run.send(*(("step", 1) if action == "step" else (action,))):
                    raise Refused(
                        "the run's process does not take commands now; try again in a moment"
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
        """Refuse to train on a run that has had its time here, of which only the weights are there or not even those, or that is larger
        than any may be.

        Raises:
            Refused: saying which.
            SettingError: for one that is too large.
        """
        self.limits.check(run.config)
        if run.removed == EMPTIED:
            raise Refused(run.message)
        if self.limits.seconds and run.active >= self.limits.seconds:
            raise Refused(self.limits.of_time())
        found = [] if run.live else [path for path, _ in run.checkpoints()]
        if found and not any((path / "training.safetensors").is_file() for path in found):
            raise Refused(
                "this checkpoint holds weights only: it can be looked at and asked, not trained on"
            )

    def change(self, run: Run, setting: str, value: Any) -> None:
        """Change a setting of a run from its next step on.

        Raises:
            SettingError: for a setting that cannot change, or a value that it does not take.
            Refused: for fewer steps than were taken.
        """
        run.load()
        wanted = Change(0, setting, value)
        if (
            setting == "steps" and run.status == "done" and wanted.value > run.step
        ):  # which it would go on from
            self.check_may_train(run)
        with run.lock:
            change = Change(max(run.step, run.origin[1] if run.origin else 0), setting, value)
            if setting == "threads":
                self.limits.check_threads(int(change.value))
            if setting == "steps" and change.value <= run.step:
                raise Refused(f"the run has taken {run.step} steps already; give a larger number")
            if len(run.changes) >= MOST_CHANGES:
                raise Refused(f"{MOST_CHANGES} changes are as many as a run remembers")
            if run.live and not run.parking:
                if not run.send("change", setting, change.value):
                    raise Refused(
                        "the run's process does not take commands now; try again in a moment"
                    )
                return
            run.changes = with_change(run.changes, change)
            if setting == "steps" and run.status == "done":
                run.status = "paused"
            run.write()

    def edit(self, run: Run, *, name: str | None = None, hidden: bool | None = None) -> None:
        """Rename, hide or show a run.

        Raises:
            Refused: for an empty name, or one that is too long.
        """
        with run.lock:
            if name is not None:
                name = " ".join(name.split())
                if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
                    raise Refused(
                        f"a name has 1 to {LONGEST_NAME} characters that can be printed, this one has {len(name)}"
                    )
                run.name = name
            run.hidden = run.hidden if hidden is None else hidden
            run.write(flush=True)

    def delete(self, run: Run) -> None:
        """Take a run out of the list; for ten minutes it can be brought back, paused if it was going."""
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
        with run.lock:
            run.deleted_at = None
            run.write()

    # What a page is told

    def poll(
        self,
        run: Run,
        known: int,
        epoch: int,
        looks: int,
        client: Client | None = None,
        changes: int = -1,
    ) -> dict[str, Any]:
        """What a page that has `known` points of this epoch, `looks` snapshots and this version of the changes does not know yet.

        It waits for no lock that is held while the disk works, so the event loop may call it.
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
        """Seconds that a run may train on, and why, once there are few of them."""
        left = self.limits.seconds - run.active
        return (
            [max(0.0, left), self.limits.of_time()]
            if self.limits.seconds and left <= WARNED_BEFORE
            else None
        )

    def look(self, run: Run, step: int, client: Client | None = None) -> Future[Answer]:
        """What the model looked like at a step, or at the nearest one whose weights are kept."""
        return self._ask(run, self.eyes, "look", step, "", client)

    def ask(
        self, run: Run, text: str, step: int | None = None, client: Client | None = None
    ) -> Future[Answer]:
        """The model's answer to a sequence, with its latest weights or those of a step."""
        return self._ask(run, self.eyes, "ask", step, text, client)

    def show(
        self,
        run: Run | Path,
        request: str,
        step: int | None = None,
        slow: bool = False,
        client: Client | None = None,
    ) -> Future[Answer]:
        """One view of the Inspect tab: of a run at a step, or at its latest, or of a checkpoint."""
        process = self.prover if slow else self.eyes
        if isinstance(run, Path):
            return process.ask("show", run, request, client=client or NO_CLIENT)
        return self._ask(run, process, "show", step, request, client)

    def evaluate(
        self, run: Run | Path, n: int, step: int | None = None, client: Client | None = None
    ) -> Future[Answer]:
        """The scores of a run or a checkpoint on so many held-out sequences."""
        if isinstance(run, Path):
            return self.prover.ask("evaluate", run, str(n), client=client or NO_CLIENT)
        return self._ask(run, self.prover, "evaluate", step, str(n), client)

    def _ask(
        self, run: Run, process: Eyes, kind: str, step: int | None, text: str, client: Client | None
    ) -> Future[Answer]:
        what = self.what(run, step)
        if what is None:
            return _settled(passing("this run has no weights yet; ask again in a moment"))
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
        """What names a run's weights to a process that looks into models: at a step or the latest; None while it has none."""
        run.records()
        step = run.newest if step is None else step
        return None if step is None else self._what(run, step)

    def _what(self, run: Run, step: int) -> dict[str, Any]:
        return {"run": str(run.folder), "fields": run.config.to_fields(), "step": step}

    def _look(self, run: Run) -> None:
        """Have the latest weights looked at, one look at a time."""
        if run.looking or run.newest is None:
            return

        def seen(future: Future[Answer]) -> None:
            answer = future.result()
            with run.lock:
                run.looking = False
                if answer.get("error") != BUSY:  # which says nothing about the run
                    run.unseen = run.unseen + 1 if "error" in answer else 0
                if (
                    "error" in answer
                    and not run.live
                    and (not answer.get("again") or run.unseen >= LOOKS_LOST)
                ):
                    run.newest, run.message = (
                        None,
                        run.message or answer["error"],
                    )  # asking again would not help
                elif "error" not in answer:
                    run.stage, run.snapshot, run.looks = (
                        answer["stage"],
                        answer["snapshot"],
                        run.looks + 1,
                    )
                    if not run.live:
                        run.newest = run.snapshot["step"]  # the nearest one that is still there
                    if (
                        time.monotonic() - run.watched_at < WATCHED_FOR
                        and run.snapshot["step"] != run.newest
                    ):
                        self._look(run)

        client = run.watched_by or Client(owner=run.owner)
        future = self.eyes.ask(
            "look", self._what(run, run.newest), client=client, time_limit=self.limits.look_seconds
        )
        run.looking = True  # only now: a request that could not be made leaves nothing to wait for
        future.add_done_callback(seen)

    # What workers tell

    def _take(self, run: Run, kind: str, *content: Any) -> None:
        """Take in one message of a worker."""
        kept = ""  # what a failed run still has, read before the lock is taken
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
                if (
                    run.status == "waiting" and run.held
                ):  # what was wanted came too late for this slice
                    run.status = "paused"
                if before == "stopped" or (before == "stopping" and run.status == "waiting"):
                    run.status = "stopped"
                if (
                    content[1] or run.status != "paused"
                ):  # who gives the worker back keeps why it was paused
                    run.message = self._plain(content[1])
                run.parking = True  # whatever comes now is for its next worker
                run.scores = scores or run.scores
                run.best = better(run.best, scores and scores["exact_match"])
                if run.status == "failed" and kept:
                    run.message = f"{run.message}; {kept}"
                run.write()

    def _ended(self, run: Run, code: int | None) -> None:
        """A worker's process is no more."""
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
        """A worker's sentence without this machine's folders: those who watch read it too."""
        return sentence.replace(f"{self.root}{os.sep}", "")

    # Keeping house

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
                    run.message
                    or f"paused by itself, because nobody was watching for {_time(self.lease)}"
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
                if run in self._line:  # and has not just got a place
                    self.control(run, "stop")
                    run.message = f"left the line by itself, because nobody was watching for {_time(self.lease)}; Resume joins it again"
                    run.write()
        elif (
            alone > FORGOTTEN_AFTER
            and run.points is not None
            and not run.looking
            and run not in self._line
        ):
            with run.lock:  # what is on disk need not stay in memory
                run.points = run.snapshot = run.stage = run.recorded = None
        if (
            run.deleted_at is not None
            and not run.live
            and time.monotonic() - run.deleted_on > UNDO_FOR
        ):
            self.room.take(run, self.room.forget)

    def _end_if_hung(self, run: Run, now: float) -> None:
        """A worker that has not said a word for long, and has neither used the processor nor waited for it, will not come back."""
        owes = run.unanswered or (run.heard_at if run.status != "paused" else None)
        worker = run.worker
        if worker is None or worker.process.pid is None:  # gone, or about to be started
            return
        if not self.hung_after or owes is None or now - max(owes, run.heard_at) < self.hung_after:
            return
        with suppress(psutil.Error):
            worked = active_seconds(worker.process.pid)
            if worked > run.worked + 0.02 * self.hung_after:
                run.worked, run.heard_at = (
                    worked,
                    now - self.hung_after / 2,
                )  # busy with a long step, or with scoring
                return
            run.verdict = (
                "failed",
                f"the training process hung for {_time(self.hung_after)} and was ended; {run.last_checkpoint()}",
            )
            worker.kill()

    def shutdown(self, seconds: float = 5.0) -> tuple[int, int]:
        """Let every worker save and end, all at once; what has not ended in time is killed. The runs can be resumed by the next
        server. Returns how many ended by themselves, and how many had to be killed."""
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

    # Checkpoints for everybody

    def checkpoints(self) -> dict[str, Path]:
        """The checkpoints that everybody here may look at: the folders right under the root, by name."""
        folders = sorted(
            path.parent
            for path in self.root.glob("*/config.json")
            if not path.parent.name.startswith(".")
        )
        return {folder.name: folder for folder in folders}


def _guard(work: Callable[..., object], *arguments: Any) -> None:
    """Carry out one part of a housekeeping round; log what it raises, so that the other parts and later rounds still run."""
    try:
        work(*arguments)
    except Exception:
        log.exception("%s failed in a round of housekeeping", getattr(work, "__qualname__", work))


def _settled(answer: Answer) -> Future[Answer]:
    future = Future[Answer]()
    resolve(future, answer)
    return future


def _name(config: RunConfig) -> str:
    """A name for a run that nobody has named."""
    model = config.model
    size = (
        "" if (model.n_layers, model.n_heads) == (2, 4) else f", {model.n_layers} × {model.n_heads}"
    )
    return f"{task_in_words(config)}{of_family(config)}{size}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:g} s"


def _why(code: int | None) -> str:
    """How a process that said no last words ended."""
    if code is None:
        return "the training process could not be started, which the server's log explains; free memory or processes on the machine"
    if code == -9:
        return "the training process was killed, by the system when memory ran out or by hand"
    return f"the training process ended unexpectedly (exit code {code})"
