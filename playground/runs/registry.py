"""Run registry: ownership, scheduling, worker messages and idle timeouts.

This module holds no tensors and does not import torch.

Threads: the registry is safe to call from any thread. Each worker has its own threads
(`worker_process.py`), and one thread does the housekeeping. A thread that holds the registry's lock
may take the lock of a run, never the other way round.
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

from playground.checkpoints.manifest import Manifest, read_manifest
from playground.common.atomic_write import clean_up_stale, remedy
from playground.common.env import env_number
from playground.errors import UserError
from playground.jobs.addresses import CLIENT_ADDRESS as CLIENT_ADDRESS
from playground.jobs.addresses import NO_CLIENT, Client, max_per_address, uses_full_share
from playground.jobs.job import set_result_if_pending
from playground.jobs.process import WorkerProcess, cpu_seconds, describe_exit, preload
from playground.models.config_fields import ConfigError
from playground.training.config import RunConfig
from playground.training.setting_changes import (
    MAX_CHANGES,
    SettingChange,
    add_change,
    config_at_step,
)

from .download_tokens import DownloadTokens
from .inspection_cost import min_seconds
from .inspector_client import BUSY_MESSAGE, InspectorClient, retryable
from .limits import TIME_WARNING_S, Limits, default_slots, estimated_run_bytes
from .memory import ensure_memory_available
from .metric_series import MetricSeries
from .run import (
    ACTIVE_STATUSES,
    MAX_NAME_LENGTH,
    NO_USABLE_CHECKPOINT,
    PINNED_SUFFIX,
    WEIGHTS_EVICTED,
    RecordLock,
    Response,
    Run,
    WorkerSpec,
    architecture_suffix,
    max_score,
    owner_id,
    task_label,
    to_summary,
)
from .storage_quota import StorageQuota, directory_size
from .weight_history import weights_path
from .zerogpu import SLICE_SECONDS, SliceRunner, ZeroGpuWorker, describe_error

preload("playground.runs.training_worker", "playground.runs.inspector_process")
log = logging.getLogger(__name__)

STALE_TMP_AGE_S = 600.0  # age in seconds at which an unfinished write is removed
MAX_QUEUED_TOTAL = 100  # queued runs of all owners
MAX_QUEUED_PER_ADDRESS = max_per_address(MAX_QUEUED_TOTAL)
MAX_QUEUED_PER_OWNER = 16  # queued runs of one owner
MAX_RUNS_PER_OWNER = 200
BYPASS_WINDOW_S = 120.0  # seconds that smaller runs may start before a run that lacks memory
VIEWER_TTL_S = 5.0  # seconds after its last poll for which a page counts as open
# Seconds without a poll after which the points of a run without a worker are removed from memory.
PAUSED_WORKER_TTL_S = 60.0
HOUSEKEEPING_INTERVAL_S = 0.5  # seconds between two rounds
MAX_SNAPSHOT_FAILURES = 3  # failed snapshots in a row after which a run that has ended gets no more
OWNER_TTL_S = 3600.0  # seconds for which the last activity of an owner is stored
QUOTA_INTERVAL_S = 30.0  # seconds between two checks of the storage quota
VIEW_TIMEOUT_S = 60.0  # seconds after which the inspection process is restarted
SLOW_VIEW_TIMEOUT_S = 300.0  # the same for views that measure on hundreds of sequences
UNDO_TTL_S = 600.0  # seconds that a deleted run stays on disk
MAX_TRACKED_OWNERS = 10_000  # owners whose last activity is stored; a client can invent owners
MAX_TRACKED_TURNS = 1000  # owners whose last turn is stored; the others count as never served
COMMANDS = ("pause", "resume", "step", "stop", "keep")


class Registry:
    """All runs of a server, with the scheduler and supervisor of their workers.

    At most `slots` workers exist at a time, and at most `slots_per_owner` for one owner. Further
    runs wait in the queue. A run without a viewer for `idle_timeout_s` seconds saves and pauses. A
    run that is paused for `release_after_s` seconds releases its worker, and can be resumed from
    disk. A worker that sends no message and uses no processor time for `hang_timeout_s` seconds is
    killed. `limits` are the limits of a public server for each visitor.
    """

    def __init__(
        self,
        root: Path,
        slots: int | None = None,
        slots_per_owner: int | None = None,
        *,
        idle_timeout_s: float | None = None,
        release_after_s: float | None = None,
        hang_timeout_s: float | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.root = Path(root)
        self.limits = limits or Limits.unlimited()
        self.slots = slots or default_slots()
        self.slots_per_owner = min(slots_per_owner or self.slots, self.slots)
        self.idle_timeout_s = (
            env_number("IDLE_TIMEOUT_S") if idle_timeout_s is None else idle_timeout_s
        )
        self.release_after_s = (
            env_number("RELEASE_AFTER_S") if release_after_s is None else release_after_s
        )
        self.hang_timeout_s = (
            env_number("HANG_TIMEOUT_S") if hang_timeout_s is None else hang_timeout_s
        )
        self.inspector = InspectorClient(VIEW_TIMEOUT_S)
        # for views that take seconds, so that they do not delay fast ones
        self.slow_inspector = InspectorClient(SLOW_VIEW_TIMEOUT_S)
        self.download_tokens = DownloadTokens()
        self.slice_runner: SliceRunner | None = None  # on ZeroGPU, the function that trains a slice
        self.device_summary = ""  # the training device and the reason, once they are known
        self.storage_note = ""  # a warning for visitors about the storage of runs
        self.single_owner = ""  # the single owner of a local instance
        # when each owner last listed their runs, by fingerprint, oldest first
        self.owner_last_seen: OrderedDict[str, float] = OrderedDict()
        self._runs: dict[str, Run] = {}
        self._by_share_id: dict[str, Run] = {}  # by the id in a share link
        self._queue: list[Run] = []  # the queued runs, in order of arrival
        # queue positions by run id, 1 for the next run; replaced as a whole, never modified
        self._queue_positions: dict[str, int] = {}
        # number of the last turn of each owner, earliest first
        self._last_served: OrderedDict[str, int] = OrderedDict()
        self._turn_counter = 0
        self._lock = RecordLock()
        # Held while a run is admitted, also during disk access; taken before `_lock`.
        self._admission_lock = threading.Lock()
        self.storage_quota = StorageQuota(self)
        self._stop_event = threading.Event()
        for folder in (self.root, *(self.root / name for name in ("runs", "rows", "compared"))):
            clean_up_stale(folder, STALE_TMP_AGE_S)
        self._load_runs()
        threading.Thread(target=self._housekeeping_loop, name="housekeeping", daemon=True).start()

    def _load_runs(self) -> None:
        """Load the runs of an earlier server from disk; those that were active become paused."""
        for path in sorted((self.root / "runs").glob("*/run.json")):
            with (
                suppress(filelock.Timeout, OSError),
                filelock.FileLock(path.parent / ".lock", timeout=0),
            ):
                for folder in (path.parent, path.parent / "checkpoints", path.parent / "history"):
                    clean_up_stale(folder)  # no process writes there, as the lock is free
            try:
                run = Run.read(path.parent)
            except (ValueError, OSError):
                # The directory stays. Its checkpoints can be opened by their path.
                continue
            if run.id not in self._runs:
                self._add(run)

    def _add(self, run: Run) -> None:
        with self._lock:
            self._runs[run.id] = self._by_share_id[run.share_id] = run

    # Ownership

    def find(self, run_id: object, owner: str) -> Run | None:
        """Return the run with this id if it belongs to the owner, else None."""
        run = self._runs.get(run_id) if isinstance(run_id, str) else None
        return run if run and owner and secrets.compare_digest(run.owner, owner_id(owner)) else None

    def find_shared(self, share_id: object) -> Run | None:
        """Return the run of a share link; None if there is none.

        The id has 128 random bits, so a timing attack on the lookup gains nothing.
        """
        run = self._by_share_id.get(share_id) if isinstance(share_id, str) else None
        return run if run and run.deleted_at is None else None

    def list_for_owner(self, owner: str) -> list[Run]:
        """Return an owner's runs, oldest first, with the deleted ones that can be restored."""
        own_id = owner_id(owner)
        with self._lock:
            owned = [
                run
                for run in self._runs.values()
                if owner and secrets.compare_digest(run.owner, own_id)
            ]
        return sorted(owned, key=lambda run: run.created)

    def all_runs(self) -> list[Run]:
        """Return the runs of all owners."""
        with self._lock:
            return list(self._runs.values())

    def all_configs(self) -> list[RunConfig]:
        """Return the configurations of all runs, so that the datasets in use are not deleted."""
        return [run.config for run in self.all_runs()]

    def summaries(self, owner: str) -> list[dict[str, Any]]:
        """Return summaries of an owner's runs, newest first.

        The request counts as activity of the owner and prevents the idle timeout of these runs.
        """
        now, rows, owned, places = (
            time.monotonic(),
            [],
            self.list_for_owner(owner),
            self._queue_positions,
        )
        self._touch_owner(owner_id(owner), now)
        for run in reversed(owned):
            # The page shows the list, but not the live view of this run.
            run.last_viewed_at = max(run.last_viewed_at, now - VIEWER_TTL_S)
            rows.append(
                to_summary(run)
                | {"queue_position": places.get(run.id), "awaits_zerogpu": run.awaits_zerogpu}
            )
        return rows

    def _touch_owner(self, owner: str, now: float) -> None:
        with self._lock:
            self.owner_last_seen[owner] = now
            self.owner_last_seen.move_to_end(owner)
            while (
                len(self.owner_last_seen) > MAX_TRACKED_OWNERS
                or now - next(iter(self.owner_last_seen.values())) > OWNER_TTL_S
            ):
                self.owner_last_seen.popitem(last=False)

    # Start

    def start(
        self,
        config: RunConfig,
        owner: str,
        *,
        name: str = "",
        changes: list[SettingChange] | None = None,
        branched_from: tuple[Run, int] | None = None,
    ) -> Run:
        """Create a run and start it as soon as a slot is free.

        Raises:
            UserError: if the owner has too many queued runs, or too many runs, or the storage quota
                is used up.
            ConfigError: if the run needs more memory than is free, or exceeds the limits.
        """
        self.validate_size(config)
        with self._admission_lock:
            owned = self.list_for_owner(owner)
            if sum(run in self._queue for run in owned) >= MAX_QUEUED_PER_OWNER:
                raise UserError(
                    f"you have {MAX_QUEUED_PER_OWNER} queued runs, which is the maximum; "
                    "wait until one starts, or stop one"
                )
            if len(self._queue) >= MAX_QUEUED_TOTAL:
                raise UserError(
                    f"the queue has {MAX_QUEUED_TOTAL} runs, which is the maximum; try again later"
                )
            if uses_full_share((run.address for run in self._queue), MAX_QUEUED_TOTAL):
                raise UserError(
                    f"the queue has {MAX_QUEUED_PER_ADDRESS} runs from your address, "
                    "which is the maximum; try again later"
                )
            if len(owned) >= MAX_RUNS_PER_OWNER:
                raise UserError(
                    f"you have {MAX_RUNS_PER_OWNER} runs, which is the maximum; delete some first"
                )
            self.storage_quota.ensure_available(owner_id(owner), estimated_run_bytes(config))
            folder = self._new_folder(config)
            run = self._new(config, owner, name, folder)
            run.points, run.weight_steps, run.changes = MetricSeries(), [], list(changes or [])
            run.branched_from = (
                (branched_from[0].folder.name, branched_from[1]) if branched_from else None
            )
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                reason = error.strerror or error
                raise UserError(
                    f"the run's folder {folder.name} could not be created: {reason}; "
                    f"{remedy(error)} and try again"
                ) from None
            run.write()
            self._add(run)
            self._enqueue(run, "train")
        return run

    def validate_size(self, config: RunConfig) -> None:
        """Refuse a run that exceeds the limits of this server or its free memory.

        Raises:
            ConfigError: with the setting, its value and the limit.
        """
        self.limits.validate(config)
        ensure_memory_available(config)

    def rerun(self, run: Run, owner: str) -> Run:
        """Start a copy of a run: same settings, same seed, same changes at the same steps."""
        return self.start(run.config, owner, name=run.name, changes=run.changes)

    def branch(self, run: Run, step: int, owner: str) -> Run:
        """Create a run that continues from a step of this one.

        It pauses at that step, so that its owner can first change a setting.

        Raises:
            UserError: if the run has not reached the step.
        """
        last = max(run.load_points().last, run.step)
        if not 0 <= step <= last:
            raise UserError(f"step {step} is not in this run; choose a step from 0 to {last}")
        changes = [change for change in run.changes if change.step <= step]
        if step >= run.steps:
            changes.append(
                SettingChange(
                    step, "max_steps", min(1_000_000, step + run.config.training.max_steps)
                )
            )
        until = config_at_step(run.config.training, changes, step).stop_at_exact_match
        # Without this change, the new run would end at its next evaluation.
        if until and (run.score_at(step) or 0.0) >= until:
            changes.append(SettingChange(step, "stop_at_exact_match", 0.0))
        return self.start(
            run.config,
            owner,
            name=f"{run.name} from {step}",
            changes=changes,
            branched_from=(run, step),
        )

    def _new(self, config: RunConfig, owner: str, name: str, folder: Path) -> Run:
        name = self._unique_name(name, self.list_for_owner(owner)) or self._unique_name(
            _default_name(config), self.list_for_owner(owner)
        )
        run = Run(
            secrets.token_urlsafe(16),
            secrets.token_urlsafe(16),
            owner_id(owner),
            name,
            config,
            folder,
        )
        run.address = CLIENT_ADDRESS.get()
        return run

    def _new_folder(self, config: RunConfig) -> Path:
        """Return the folder of a new run: its date, its task and a random suffix."""
        return (
            self.root
            / "runs"
            / f"{time.strftime('%Y%m%d-%H%M%S')}-{config.task.task}-{secrets.token_hex(3)}"
        )

    def _unique_name(self, name: str, runs: list[Run]) -> str:
        used_names = {run.name for run in runs if run.deleted_at is None}
        # run.json accepts printable names only.
        name = "".join(letter for letter in name if letter.isprintable())[:MAX_NAME_LENGTH]
        number, base = 2, name[: MAX_NAME_LENGTH - 6]
        while name in used_names:
            name, number = f"{base} ({number})", number + 1
        return name

    def import_checkpoint(self, folder: Path, owner: str, name: str) -> Run:
        """Import a checkpoint, already validated and in its own folder, as a run of this owner.

        Raises:
            CheckpointError: if config.json cannot be read.
            ConfigError: if the model exceeds the limits of this server.
            UserError: if the owner has too many runs, or the storage quota is used up.
        """
        manifest = read_manifest(folder)
        self.limits.validate(manifest.config)
        self.limits.validate_metrics_size(folder / "metrics.jsonl")
        with self._admission_lock:
            if len(self.list_for_owner(owner)) >= MAX_RUNS_PER_OWNER:
                raise UserError(
                    f"you have {MAX_RUNS_PER_OWNER} runs, which is the maximum; delete some first"
                )
            self.storage_quota.ensure_available(owner_id(owner), directory_size(folder))
            run = self._import_files(folder, manifest, owner, name)
            self._add(run)
        return run

    def _import_files(self, folder: Path, manifest: Manifest, owner: str, name: str) -> Run:
        """Move a checkpoint into the folder of a new run.

        Raises:
            OSError: if a file cannot be written; the new folder is removed then.
        """
        target = self._new_folder(manifest.config)
        place = target / "checkpoints" / f"{manifest.step:07d}{PINNED_SUFFIX}"
        try:
            place.parent.mkdir(parents=True)
            shutil.move(folder, place)
            (target / "history").mkdir()
            shutil.copyfile(place / "model.safetensors", weights_path(target, manifest.step))
            if (place / "metrics.jsonl").is_file():
                shutil.move(place / "metrics.jsonl", target / "metrics.jsonl")
        except OSError:
            shutil.rmtree(target, ignore_errors=True)
            raise
        resumable = (place / "training.safetensors").is_file()
        steps = config_at_step(manifest.config.training, manifest.changes, manifest.step).max_steps
        run = self._new(manifest.config, owner, name, target)
        run.status = "stopped" if resumable and manifest.step < steps else "done"
        run.changes = list(manifest.changes)
        run.scores = manifest.scores
        run.step, run.seconds, run.device = manifest.step, manifest.seconds, manifest.device
        run.imported = True
        score = manifest.scores["exact_match"] if manifest.scores else None
        run.best = max_score(run.load_points().best, score)
        run.write()
        return run

    def storage_error(self) -> str:
        """Return why this folder cannot store runs and what to do; empty if it can."""
        runs = self.root / "runs"
        try:
            runs.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=runs):
                return ""
        except OSError as error:
            return (
                f"{runs} cannot be written ({error.strerror or error}): models can be inspected, "
                f"but not trained; {remedy(error)}"
            )

    def lock_storage(self) -> str:
        """Lock the folder for this server; return a warning if another server uses it, else ""."""
        self._storage_lock = filelock.FileLock(self.root / "runs" / ".server.lock")
        try:
            self._storage_lock.acquire(timeout=0)
        except filelock.Timeout:
            return (
                f"another server uses {self.root}: each may overwrite the names and deletions "
                "of the other; stop one, or set PLAYGROUND_CHECKPOINTS to another folder"
            )
        except OSError:  # `closed` reports a folder that cannot be written
            pass
        return ""

    # Scheduler

    def _enqueue(self, run: Run, first_command: str) -> None:
        """Add a run without a worker to the queue."""
        with self._lock:
            if run.has_worker or run in self._queue:
                return
            run.first_command, run.status, run.message = first_command, "waiting", ""
            run.last_viewed_at, run.memory_wait_since = time.monotonic(), None
            if run.uses_zerogpu:  # the page requests its slices
                run.write()
                return
            self._queue.append(run)
            self._schedule()

    def _schedule(self) -> None:
        """Start queued runs in the free slots; if none is free, reclaim one of a paused run."""
        with self._lock:
            while not self._stop_event.is_set() and self._start_next():
                pass
            self._publish_queue_positions()

    def _publish_queue_positions(self) -> None:
        """Store the queue positions where a poll reads them without a lock. Needs the lock."""
        self._queue_positions = {
            run.id: at for at, run in enumerate(self._next_in_queue(), start=1)
        }

    def _start_next(self) -> bool:
        """Launch the first queued run that has a slot and enough memory. Needs the lock.

        A run that needs less memory may start before one that lacks it. After `BYPASS_WINDOW_S`
        seconds it may not, if the end of a live run would free memory.

        Returns:
            whether a run was launched.
        """
        now = time.monotonic()
        for run in self._next_in_queue():
            live = [
                other
                for other in self._runs.values()
                if other.has_worker and not other.uses_zerogpu
            ]
            mine = sum(other.owner == run.owner for other in live)
            if len(live) < self.slots and mine < self.slots_per_owner:
                starting = sum(
                    other.config.estimate_memory() for other in live if other.status == "starting"
                )
                try:
                    ensure_memory_available(run.config, reserved_bytes=starting)
                except ConfigError as error:
                    run.message = f"waiting for memory: {error}"
                    run.memory_wait_since = run.memory_wait_since or now
                    if not live or now - run.memory_wait_since < BYPASS_WINDOW_S:
                        continue
                    self._reclaim_slot([other for other in live if other.status == "paused"])
                    return False
                self._queue.remove(run)
                run.memory_wait_since = None
                self._turn_counter += 1
                self._last_served[run.owner] = self._turn_counter
                self._last_served.move_to_end(run.owner)
                while len(self._last_served) > MAX_TRACKED_TURNS:
                    self._last_served.popitem(last=False)
                self._launch(run)
                return True
            run.message = ""  # the run waits for a slot, not for memory
            own = mine >= self.slots_per_owner
            if not any(o.exiting for o in live):
                self._reclaim_slot(
                    [o for o in live if o.status == "paused" and (not own or o.owner == run.owner)]
                )
            return False
        return False

    @staticmethod
    def _reclaim_slot(idle: list[Run]) -> None:
        """Reclaim the slot of the paused run that was viewed least recently.

        The run saves, and its worker exits.
        """
        if idle and not any(run.exiting for run in idle):
            idle_run = min(idle, key=lambda run: run.last_viewed_at)
            idle_run.exiting = idle_run.send_command("park")

    def _next_in_queue(self) -> list[Run]:
        """Return the queued runs in the order in which they start.

        Fair order: owners with the fewest active runs first, then round-robin. The runs of one
        owner start in order of arrival.
        """
        with self._lock:
            places = Counter(
                run.owner for run in self._runs.values() if run.has_worker and not run.uses_zerogpu
            )
            theirs: dict[str, deque[tuple[int, Run]]] = defaultdict(deque)
            for at, run in enumerate(self._queue):
                theirs[run.owner].append((at, run))
            next_of = [
                (places[owner], self._last_served.get(owner, 0), mine[0][0], owner)
                for owner, mine in theirs.items()
            ]
            heapify(next_of)
            order = list[Run]()
            while next_of:
                held, _, _, owner = heappop(next_of)
                order.append(theirs[owner].popleft()[1])
                if mine := theirs[owner]:
                    heappush(
                        next_of, (held + 1, self._turn_counter + len(order), mine[0][0], owner)
                    )
            return order

    def queue_position(self, run: Run) -> int | None:
        """Return the queue position of a run, 1 for the next one; None if it is not queued."""
        return self._queue_positions.get(run.id) if run.status == "waiting" else None

    def _launch(self, run: Run) -> None:
        with run.lock:
            run.worker = WorkerProcess(
                "playground.runs.training_worker:main",
                f"run-{run.folder.name}",
                self._worker_spec(run),
                on_message=lambda *message: self._on_worker_message(run, *message),
                on_exit=lambda code: self._on_worker_exit(run, code),
            )
            run.write()

    def _worker_spec(self, run: Run, seconds: float = 0.0) -> WorkerSpec:
        """Return the specification for a worker that is about to start. Needs the run's lock."""
        run.status, run.message = "starting", ""
        run.exiting, run.pause_pending = False, False
        run.viewer_active, run.last_viewed_at = True, time.monotonic()
        run.last_message_at, run.cpu_seconds, run.size_bytes = time.monotonic(), 0.0, None
        origin = (
            (str(self.root / "runs" / run.branched_from[0]), run.branched_from[1])
            if run.branched_from
            else None
        )
        return WorkerSpec(
            str(run.folder),
            run.config.to_flat(),
            [change.to_list() for change in run.changes],
            run.first_command,
            origin,
            trained_seconds=run.trained_seconds,
            time_slice_s=seconds,
            threads=self.limits.threads,
        )

    def is_idle(self, run: Run) -> bool:
        """Return whether a run is idle.

        An idle run has no worker, no pending snapshot or request, and no run that is about to
        branch from it.
        """
        if (
            run.has_worker
            or run in self._queue
            or run.snapshot_pending
            or any(not future.done() for future in run.pending_requests)
        ):
            return False
        return not any(
            o.branched_from
            and o.branched_from[0] == run.folder.name
            and o.status in ("waiting", "starting")
            for o in self.all_runs()
        )

    def scheduling_paused(self) -> AbstractContextManager[object]:
        """Return a lock: while it is held, no run starts or resumes."""
        return self._lock

    def remove(self, run: Run) -> None:
        """Remove a run from the registry; the caller removes its folder."""
        with self._lock:
            self._runs.pop(run.id, None)
            self._by_share_id.pop(run.share_id, None)

    def run_slice(self, run: Run) -> None:
        """Train the next slice of a run that waits for one, and return when it has ended.

        If the run waits for none, nothing happens. Call it in the thread of the owner's event,
        because ZeroGPU assigns the GPU to that request.
        """
        with self._lock, run.lock:
            if (
                self.slice_runner is None
                or not run.awaits_zerogpu
                or run.deleted_at is not None
                or self._stop_event.is_set()
            ):
                return
            spec, run.first_command = self._worker_spec(run, SLICE_SECONDS), "train"
            slice_worker = ZeroGpuWorker(
                f"slice-{run.folder.name}", lambda *message: self._on_worker_message(run, *message)
            )
            run.worker = slice_worker
            run.write()
        failure: Exception | None
        try:
            failure = slice_worker.run(self.slice_runner, spec)
        except (OSError, RuntimeError) as error:  # no socket, or no thread, could be created
            failure = error
        checkpoint_message = run.last_checkpoint_message() if run.status in ACTIVE_STATUSES else ""
        with run.lock:
            if run.status in ACTIVE_STATUSES:
                status = "stopped" if run.status == "stopping" else "paused"
                run.forced_status = (
                    status,
                    f"{describe_error(failure or EOFError())}; {checkpoint_message}",
                )
        self._on_worker_exit(run, None)
        slice_worker.exited.set()

    # Actions of the owner

    def control(self, run: Run, action: str) -> None:
        """Pause, resume, step or stop a run, or save a checkpoint of its current step.

        An action that does not apply to the status of the run has no effect.

        Raises:
            ValueError: for an unknown action.
            UserError: if the run cannot be resumed, has reached its time limit, or the checkpoint
                exceeds the storage quota.
            ConfigError: if a run to resume exceeds the limits of this server.
        """
        if action not in COMMANDS:
            raise ValueError(f"action is {action!r}; use one of {', '.join(COMMANDS)}")
        checkpoint_message = (
            run.last_checkpoint_message() if action == "stop" and run.status == "stopping" else ""
        )
        if action in ("resume", "step"):
            self.ensure_trainable(run)
        elif action == "keep":
            self.storage_quota.ensure_available(run.owner, estimated_run_bytes(run.config) // 2)
        with self._lock, run.lock:
            # The eviction may have happened since the check above.
            if action in ("resume", "step") and run.evicted == WEIGHTS_EVICTED:
                raise UserError(run.message)
            if run in self._queue and action in ("pause", "stop"):
                self._queue.remove(run)
                self._publish_queue_positions()
                run.status, run.message = "paused" if action == "pause" else "stopped", ""
                run.write()
            elif run.awaits_zerogpu and action in ("pause", "stop"):
                run.status = "paused" if action == "pause" else "stopped"
                run.write()
            elif run.has_worker and (run.exiting or (run.uses_zerogpu and run.status == "paused")):
                # Its worker is about to exit.
                if run.status == "waiting" and action in ("pause", "stop"):
                    run.status = "paused" if action == "pause" else "stopped"
                elif (
                    action in ("resume", "step")
                    and run.status in ("paused", "stopped", "failed")
                    and run.deleted_at is None
                ):
                    run.next_command = "train" if action == "resume" else "step"
                elif action in ("pause", "stop"):
                    run.next_command = ""
                    if action == "stop" and run.status == "paused":
                        run.status = "stopped"
            elif run.has_worker:
                if action == "stop" and run.status == "stopping":
                    run.forced_status = (
                        "stopped",
                        "ended immediately by a second Stop; "
                        f"{checkpoint_message or run.last_checkpoint_message()}",
                    )
                    run.worker.kill()  # type: ignore[union-attr]  # a live run has one
                    return
                if not run.send_command(*(("step", 1) if action == "step" else (action,))):
                    raise UserError(
                        "the training process accepts no commands now; try again in a moment"
                    )
                if action != "keep" and action != "pause":
                    run.command_sent_at = run.command_sent_at or time.monotonic()
                run.pause_pending = action == "pause"
                if action == "stop":
                    run.status = "stopping"
                elif action in ("resume", "step"):
                    run.message = ""
            elif (
                action in ("resume", "step")
                and run.status in ("paused", "stopped", "failed")
                and run.deleted_at is None
            ):
                self._enqueue(run, "train" if action == "resume" else "step")
            elif action == "stop" and run.status == "paused":
                run.status = "stopped"
                run.write()

    def ensure_trainable(self, run: Run) -> None:
        """Check that a run may continue to train.

        Raises:
            UserError: if it has reached its time limit, or its training state is not available.
            ConfigError: if it exceeds the limits of this server.
        """
        self.limits.validate(run.config)
        if run.evicted == WEIGHTS_EVICTED:
            raise UserError(run.message)
        if self.limits.seconds and run.trained_seconds >= self.limits.seconds:
            raise UserError(self.limits.time_limit_message())
        checkpoints = [] if run.has_worker else [path for path, _ in run.checkpoints()]
        if checkpoints and not any(
            (path / "training.safetensors").is_file() for path in checkpoints
        ):
            raise UserError(
                "this checkpoint holds weights only: it can be inspected, but not trained further"
            )

    def change_setting(self, run: Run, setting: str, value: Any) -> None:
        """Change a setting of a run from its next step on.

        Raises:
            ConfigError: if the setting cannot change, or the value is invalid.
            UserError: if `max_steps` is not more than the steps already taken.
        """
        run.load_points()
        requested_change = SettingChange(0, setting, value)
        # More steps let a finished run continue.
        if setting == "max_steps" and run.status == "done" and requested_change.value > run.step:
            self.ensure_trainable(run)
        with run.lock:
            change = SettingChange(
                max(run.step, run.branched_from[1] if run.branched_from else 0), setting, value
            )
            if setting == "num_threads":
                self.limits.validate_threads(int(change.value))
            if setting == "max_steps" and change.value <= run.step:
                raise UserError(f"the run has taken {run.step} steps already; give a larger number")
            if len(run.changes) >= MAX_CHANGES:
                raise UserError(
                    f"this run has {MAX_CHANGES} changes of settings, which is the maximum; "
                    "start a new run"
                )
            if run.has_worker and not run.exiting:
                if not run.send_command("change", setting, change.value):
                    raise UserError(
                        "the training process accepts no commands now; try again in a moment"
                    )
                return
            run.changes = add_change(run.changes, change)
            if setting == "max_steps" and run.status == "done":
                run.status = "paused"
            run.write()

    def update_metadata(
        self, run: Run, *, name: str | None = None, hidden: bool | None = None
    ) -> None:
        """Rename, hide or show a run.

        Raises:
            UserError: if the name is empty or too long.
        """
        with run.lock:
            if name is not None:
                name = " ".join(name.split())
                if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
                    raise UserError(
                        f"the name has {len(name)} characters; use 1 to {MAX_NAME_LENGTH} "
                        "printable characters"
                    )
                run.name = name
            run.hidden = run.hidden if hidden is None else hidden
            run.write(flush=True)

    def delete(self, run: Run) -> None:
        """Delete a run; for `UNDO_TTL_S` seconds it can be restored, paused if it was active."""
        with self._lock, run.lock:
            if run in self._queue:
                self._queue.remove(run)
                self._publish_queue_positions()
                run.status = "paused"
            elif run.has_worker:
                run.exiting = run.send_command("park")
            elif run.awaits_zerogpu:
                run.status = "paused"
            run.next_command, run.deleted_at, run.deleted_at_monotonic = (
                "",
                time.time(),
                time.monotonic(),
            )
            run.write(flush=True)

    def restore(self, run: Run) -> None:
        """Restore a deleted run."""
        with run.lock:
            run.deleted_at = None
            run.write()

    # Requests of the page

    def poll(
        self,
        run: Run,
        n_points: int,
        series_id: int,
        snapshot_version: int,
        client: Client | None = None,
        changes: int = -1,
    ) -> dict[str, Any]:
        """Return the state of a run that the page does not have yet.

        It takes no lock that is held during disk access, so the event loop may call it.

        Args:
            n_points: number of points that the page has.
            series_id: the id of the series of these points.
            snapshot_version: number of the snapshot that the page has.
            client: the client whose quota new snapshots use.
            changes: version of the changes that the page has.
        """
        run.last_viewed_at, run.viewer_client = time.monotonic(), client
        if run.has_worker and not run.viewer_active:
            run.viewer_active = run.send_command("watch", True)
        place, recorded = self.queue_position(run), run.load_weight_steps()
        run.load_points()
        with run.lock:
            points = run.points or MetricSeries()
            if run.series_id != series_id:
                n_points, snapshot_version = 0, 0
            if run.latest_weights_step is not None and (
                run.snapshot is None or run.snapshot["step"] != run.latest_weights_step
            ):
                self._refresh_snapshot(run)
            return {
                "status": run.status,
                "message": run.message,
                "queue_position": place,
                "awaits_zerogpu": run.awaits_zerogpu,
                "uses_zerogpu": run.uses_zerogpu,
                "name": run.name,
                "step": run.step,
                "max_steps": run.steps,
                "speed": run.max_steps_per_second,
                "learning_rate": run.learning_rate,
                "parameters": run.config.model.parameter_count(),
                "device": run.device,
                "series_id": run.series_id,
                "points": points.delta_since(n_points),
                "latest": points.latest(),
                "weight_steps": recorded if run.weight_steps is None else run.weight_steps,
                "snapshot_version": run.snapshot_version,
                "snapshot": run.snapshot if run.snapshot_version > snapshot_version else None,
                "probe_info": run.probe_info if run.snapshot_version > snapshot_version else None,
                "scores": run.scores,
                "changes": None
                if changes == run.changes_version
                else [change.to_list() for change in run.changes],
                "changes_version": run.changes_version,
                "checkpoint_version": run.checkpoint_version,
                "has_worker": run.has_worker,
                "time_left": self._time_left(run),
                "branched_from_step": run.branched_from[1] if run.branched_from else None,
            }

    def _time_left(self, run: Run) -> list[Any] | None:
        """Return the seconds of training left and the reason; None if there are many."""
        left = self.limits.seconds - run.trained_seconds
        return (
            [max(0.0, left), self.limits.time_limit_message()]
            if self.limits.seconds and left <= TIME_WARNING_S
            else None
        )

    def snapshot_at(self, run: Run, step: int, client: Client | None = None) -> Future[Response]:
        """Return the snapshot at a step, or at the nearest step with stored weights."""
        return self._inspect(run, self.inspector, "snapshot", step, "", client)

    def predict(
        self, run: Run, text: str, step: int | None = None, client: Client | None = None
    ) -> Future[Response]:
        """Return the model's prediction for a sequence, at a step or with the latest weights."""
        return self._inspect(run, self.inspector, "predict", step, text, client)

    def inspect_view(
        self,
        run: Run | Path,
        request: str,
        step: int | None = None,
        slow: bool = False,
        client: Client | None = None,
    ) -> Future[Response]:
        """Return one view of the Inspect tab, of a run or of a checkpoint.

        Args:
            request: the request of the page as JSON.
            step: the step of a run; None for the latest.
            slow: whether the view takes seconds, so that a separate process computes it.
        """
        process = self.slow_inspector if slow else self.inspector
        if isinstance(run, Path):
            return process.request("show", run, request, client=client or NO_CLIENT)
        return self._inspect(run, process, "show", step, request, client)

    def evaluate(
        self, run: Run | Path, n: int, step: int | None = None, client: Client | None = None
    ) -> Future[Response]:
        """Return the scores of a run or a checkpoint on `n` held-out sequences."""
        if isinstance(run, Path):
            return self.slow_inspector.request("evaluate", run, str(n), client=client or NO_CLIENT)
        return self._inspect(run, self.slow_inspector, "evaluate", step, str(n), client)

    def _inspect(
        self,
        run: Run,
        process: InspectorClient,
        kind: str,
        step: int | None,
        text: str,
        client: Client | None,
    ) -> Future[Response]:
        model_ref = self.model_ref(run, step)
        if model_ref is None:
            return _completed_future(
                retryable("this run has no weights yet; try again in a moment")
            )
        limit = (
            self.limits.slow_view_timeout_s
            if process is self.slow_inspector
            else self.limits.view_timeout_s
        )
        view = json.loads(text).get("view") if kind == "show" else kind
        seconds = min_seconds(run.config, str(view), int(text) if kind == "evaluate" else 0)
        if limit and seconds > limit:
            return _completed_future({"error": self.limits.timeout_message(seconds)})
        with run.lock:
            run.pending_requests = {future for future in run.pending_requests if not future.done()}
            future = process.request(
                kind, model_ref, text, client=client or Client(owner=run.owner), timeout_s=limit
            )
            run.pending_requests.add(future)
        return future

    def model_ref(self, run: Run, step: int | None = None) -> dict[str, Any] | None:
        """Return the reference of a run's weights for an inspection process.

        Args:
            step: the step of the weights; None for the latest.

        Returns:
            the reference; None while the run has no weights.
        """
        run.load_weight_steps()
        step = run.latest_weights_step if step is None else step
        return None if step is None else self._model_ref(run, step)

    def _model_ref(self, run: Run, step: int) -> dict[str, Any]:
        return {"run": str(run.folder), "fields": run.config.to_flat(), "step": step}

    def _refresh_snapshot(self, run: Run) -> None:
        """Request a snapshot of the latest weights, if none is pending."""
        requested_step = run.latest_weights_step
        if run.snapshot_pending or requested_step is None:
            return

        def on_snapshot(future: Future[Response]) -> None:
            answer = future.result()
            with run.lock:
                run.snapshot_pending = False
                # Newer weights may have arrived meanwhile, even the last ones of the run.
                is_current = run.latest_weights_step == requested_step
                if answer.get("error") != BUSY_MESSAGE:  # a full queue is no failure of the run
                    run.failed_snapshots = run.failed_snapshots + 1 if "error" in answer else 0
                if (
                    "error" in answer
                    and is_current
                    and not run.has_worker
                    and (not answer.get("again") or run.failed_snapshots >= MAX_SNAPSHOT_FAILURES)
                ):
                    # Another request would fail, too.
                    run.latest_weights_step, run.message = None, run.message or answer["error"]
                elif "error" not in answer:
                    run.probe_info, run.snapshot = answer["probe_info"], answer["snapshot"]
                    run.snapshot_version += 1
                    if is_current and not run.has_worker:
                        # the nearest step with stored weights
                        run.latest_weights_step = run.snapshot["step"]
                    if (
                        time.monotonic() - run.last_viewed_at < VIEWER_TTL_S
                        and run.snapshot["step"] != run.latest_weights_step
                    ):
                        self._refresh_snapshot(run)

        client = run.viewer_client or Client(owner=run.owner)
        future = self.inspector.request(
            "snapshot",
            self._model_ref(run, requested_step),
            client=client,
            timeout_s=self.limits.view_timeout_s,
        )
        run.snapshot_pending = True  # only now: a request that raised an error is not pending
        future.add_done_callback(on_snapshot)

    # Messages of workers

    def _on_worker_message(self, run: Run, kind: str, *content: Any) -> None:
        """Handle one message of a worker."""
        checkpoint_message = (
            ""  # the last checkpoint of a failed run, read before the lock is taken
        )
        if (
            kind == "ended"
            and content[0] == "failed"
            and NO_USABLE_CHECKPOINT not in content[1]
            and run.checkpoints()
        ):
            checkpoint_message = run.last_checkpoint_message()
        with run.lock:
            run.last_message_at, run.command_sent_at = time.monotonic(), None
            if kind == "points":
                run.append_points(content[0])
                run.paused_at = time.monotonic() if content[0] else run.paused_at
            elif kind == "history":
                run.weight_steps, run.latest_weights_step = content
                if time.monotonic() - run.last_viewed_at < VIEWER_TTL_S:
                    self._refresh_snapshot(run)
            elif kind == "started":
                step, run.device = content
                if run.points is None or run.points.last != step:
                    run.points, run.snapshot = (MetricSeries() if not step else None), None
                    run.series_id = secrets.randbelow(2**31)
                run.step, run.weight_steps = step, None
            elif kind == "trouble":
                run.message = self._redact_paths(content[0])
            elif kind == "changes":
                run.changes = SettingChange.parse(content[0])
                run.write()
            elif kind == "active":
                run.trained_seconds = content[0]
            elif kind == "saved":
                run.checkpoint_version += 1
                run.write()
            elif kind == "status" and (run.status != "stopping" or content[0] == "paused"):
                run.status, run.paused_at, run.exiting = content[0], time.monotonic(), False
                run.write()
            elif kind == "ended":
                before, run.status, scores = run.status, content[0], content[2]
                # the pause came after the slice's end
                if run.status == "waiting" and run.pause_pending:
                    run.status = "paused"
                if before == "stopped" or (before == "stopping" and run.status == "waiting"):
                    run.status = "stopped"
                # A paused run whose worker exits keeps the reason of the pause.
                if content[1] or run.status != "paused":
                    run.message = self._redact_paths(content[1])
                run.exiting = True  # later commands go to the next worker
                run.scores = scores or run.scores
                run.best = max_score(run.best, scores and scores["exact_match"])
                if run.status == "failed" and checkpoint_message:
                    run.message = f"{run.message}; {checkpoint_message}"
                run.write()

    def _on_worker_exit(self, run: Run, code: int | None) -> None:
        """Handle the exit of a worker process."""
        checkpoint_message = "" if run.forced_status else run.last_checkpoint_message()
        with run.lock:
            if run.forced_status:
                run.status, run.message = run.forced_status
            elif run.status in ACTIVE_STATUSES or (run.status == "paused" and code):
                reason = describe_exit("the training process", code)
                run.status, run.message = "failed", f"{reason}; {checkpoint_message}"
            run.forced_status = None
            run.worker, run.exiting, run.command_sent_at = None, False, None
            begin, run.next_command = run.next_command, ""
            run.write(flush=True)
        if begin and not self._stop_event.is_set():
            self._enqueue(run, begin)
        self._schedule()

    def _redact_paths(self, message: str) -> str:
        """Remove the root folder from a worker's message, because viewers read it, too."""
        return message.replace(f"{self.root}{os.sep}", "")

    # Housekeeping

    def _housekeeping_loop(self) -> None:
        swept_at = -QUOTA_INTERVAL_S
        while not self._stop_event.wait(HOUSEKEEPING_INTERVAL_S):
            if self.limits.bytes_total and time.monotonic() - swept_at > QUOTA_INTERVAL_S:
                swept_at = time.monotonic()
                _logging_errors(self.storage_quota.enforce)
            for run in list(self._runs.values()):
                _logging_errors(self._supervise, run)
            _logging_errors(self._schedule)

    def _supervise(self, run: Run) -> None:
        now = time.monotonic()
        alone = now - run.last_viewed_at
        if run.has_worker:
            if run.viewer_active and alone > VIEWER_TTL_S:
                run.viewer_active = not run.send_command("watch", False)
            if run.status == "training" and self.idle_timeout_s and alone > self.idle_timeout_s:
                run.message = (
                    run.message
                    or f"paused automatically after {format_duration(self.idle_timeout_s)} without "
                    "viewers"
                )
                run.send_command("pause")
            if (
                run.status == "training"
                and self.limits.seconds
                and run.trained_seconds >= self.limits.seconds
            ):
                run.message = self.limits.time_limit_message()
                run.send_command("pause")
            if (
                run.status == "paused"
                and self.release_after_s
                and now - run.paused_at > self.release_after_s
                and not run.exiting
            ):
                run.exiting = run.send_command("park")
            if run.deleted_at is not None and not run.exiting:
                run.exiting = run.send_command("park")
            self._kill_if_hung(run, now)
        elif run in self._queue and self.idle_timeout_s and alone > self.idle_timeout_s:
            with self._lock:
                if run in self._queue:  # it may have started meanwhile
                    self.control(run, "stop")
                    run.message = (
                        f"removed from the queue after {format_duration(self.idle_timeout_s)} "
                        "without viewers; press Resume to queue it again"
                    )
                    run.write()
        elif (
            alone > PAUSED_WORKER_TTL_S
            and run.points is not None
            and not run.snapshot_pending
            and run not in self._queue
        ):
            with run.lock:  # the disk has these data
                run.points = run.snapshot = run.probe_info = run.weight_steps = None
        if (
            run.deleted_at is not None
            and not run.has_worker
            and time.monotonic() - run.deleted_at_monotonic > UNDO_TTL_S
        ):
            self.storage_quota.evict_if_idle(run, self.storage_quota.delete_run)

    def _kill_if_hung(self, run: Run, now: float) -> None:
        """Kill a worker that is silent and has neither used nor waited for the processor."""
        owes = run.command_sent_at or (run.last_message_at if run.status != "paused" else None)
        worker = run.worker
        if worker is None or worker.process.pid is None:  # it has exited, or is about to start
            return
        if (
            not self.hang_timeout_s
            or owes is None
            or now - max(owes, run.last_message_at) < self.hang_timeout_s
        ):
            return
        with suppress(psutil.Error):
            worked = cpu_seconds(worker.process.pid)
            if worked > run.cpu_seconds + 0.02 * self.hang_timeout_s:
                # It is busy with a long step or an evaluation.
                run.cpu_seconds, run.last_message_at = worked, now - self.hang_timeout_s / 2
                return
            run.forced_status = (
                "failed",
                f"the training process hung for {format_duration(self.hang_timeout_s)} and was "
                f"ended; {run.last_checkpoint_message()}",
            )
            worker.kill()

    def shutdown(self, seconds: float = 5.0) -> tuple[int, int]:
        """Save and end all workers at the same time, and kill those that exceed the timeout.

        The next server can resume the runs.

        Returns:
            the number of workers that exited, and the number of those that were killed.
        """
        self._stop_event.set()
        with self._lock:
            workers = [run.worker for run in self._runs.values() if run.has_worker and run.worker]
            for run in self._queue:
                run.status = "paused"
                run.write()
        for worker in workers:
            worker.send("park")
        deadline = time.monotonic() + seconds
        ended = 0
        for worker in workers:
            if worker.exited.wait(max(0.0, deadline - time.monotonic())):
                ended += 1
            else:
                worker.kill()
        for process in (self.inspector, self.slow_inspector):
            process.stop()
        return ended, len(workers) - ended

    # Shared checkpoints

    def list_checkpoints(self) -> dict[str, Path]:
        """Return the checkpoints that all visitors may inspect, by name.

        They are the folders directly under the root.
        """
        folders = sorted(
            path.parent
            for path in self.root.glob("*/config.json")
            if not path.parent.name.startswith(".")
        )
        return {folder.name: folder for folder in folders}


def _logging_errors(work: Callable[..., object], *arguments: Any) -> None:
    """Run one part of a housekeeping round, and log its error.

    The other parts and the later rounds then still run.
    """
    try:
        work(*arguments)
    except Exception:
        log.exception("%s failed in a round of housekeeping", getattr(work, "__qualname__", work))


def _completed_future(response: Response) -> Future[Response]:
    future = Future[Response]()
    set_result_if_pending(future, response)
    return future


def _default_name(config: RunConfig) -> str:
    """Return the default name of a run."""
    layers, heads = config.model.n_layers, config.model.attention_heads
    size = "" if (layers, heads) == (2, 4) else f", {layers} × {heads}"
    return f"{task_label(config)}{architecture_suffix(config)}{size}"


def format_duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:g} s"
