"""The runs of a server: ownership, start, rerun, branch, import and deletion."""

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from playground.checkpoints.manifest import read_manifest
from playground.common.atomic_write import replacing_dir, storing, write_dir
from playground.common.storage import directory_size
from playground.datasets.storage import dataset_name
from playground.errors import UserError
from playground.jobs.admission import CLIENT_ADDRESS, Client, limit
from playground.jobs.process import preload
from playground.training.run_config import RunConfig
from playground.training.setting_changes import SettingChange, config_at_step

from .access import require_dataset
from .commands import RunCommands
from .download_tokens import DownloadTokens
from .limits import RegistrySettings, ensure_memory_available, estimated_run_bytes
from .metric_series import MetricSeries
from .record import MAX_NAME_LENGTH, RunOrigin, RunRecord, is_valid_name, owner_id
from .scheduler import RunScheduler
from .snapshots import VIEWER_TTL_S, Snapshots
from .state import RecordLock, Run, max_score
from .storage_folder import Damaged, StorageFolder, describe_damage, move_checkpoint
from .storage_quota import StorageQuota
from .summary import default_name, live_response, time_left, to_summary, unique_name
from .supervisor import Supervisor

preload("playground.runs.training_worker", "playground.runs.inspector_process")

MAX_STEPS = 1_000_000
MAX_TRACKED_OWNERS = 10_000  # owners whose last activity is stored; a client can invent owners


class Registry:
    """All runs of a server. Safe to call from any thread.

    `root`: the folder of checkpoints and runs.
    `settings`: the fields of `RegistrySettings` that differ from their defaults.
    """

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = Path(root)
        self.settings = RegistrySettings(**settings)
        self.storage = StorageFolder(self.root)
        self.download_tokens = DownloadTokens()
        self.device_summary = ""  # the training device and the reason, once they are known
        self.storage_note = ""  # a warning for users about the storage of runs
        self.single_owner = ""  # the single owner of a local instance
        # when each owner last listed their runs, by fingerprint, oldest first
        self.owner_last_seen: OrderedDict[str, float] = OrderedDict()
        self.damaged: dict[str, Damaged] = {}  # the runs that cannot be read, by folder
        self._runs: dict[str, Run] = {}  # by id
        self._by_share_id: dict[str, Run] = {}  # by the id in a share link
        self._by_owner: defaultdict[str, dict[str, Run]] = defaultdict(dict)  # by owner and id
        self._lock = RecordLock()
        # Held while a run is admitted, also during disk access; taken before `_lock`.
        self._admission_lock = threading.Lock()
        self.snapshots = Snapshots(self.settings)
        self.scheduler = RunScheduler(
            self.settings, self.all_runs, lambda run: self.supervisor.launch(run), self._lock
        )
        self.storage_quota = StorageQuota(self)
        self.commands = RunCommands(self.settings, self.scheduler, self.storage_quota)
        self.control, self.change_setting = self.commands.control, self.commands.change_setting
        self.supervisor = Supervisor(self)
        self._load_runs()
        self.supervisor.start_housekeeping()

    def shutdown(self, seconds: float = 5.0) -> tuple[int, int]:
        """Save and end all workers; return how many exited, and how many were killed."""
        ended = self.supervisor.shutdown(seconds)
        self.snapshots.stop()
        return ended

    def _load_runs(self) -> None:
        """Load the runs of an earlier server from disk; those that were active become paused."""
        for folder in self.storage.run_folders():
            try:
                run = Run.read(folder)
                if run.id in self._runs or run.share_id in self._by_share_id:
                    raise ValueError("it is a copy of another run")
                if run.is_resumable:  # the process that trained it may have been killed
                    run.update(step=run.resume_step())
                self._add(run)
            except (ValueError, OSError) as error:
                self.damaged[folder.name] = describe_damage(folder, folder / "run.json", error)

    # Index

    def _add(self, run: Run) -> None:
        with self._lock:
            self._runs[run.id] = self._by_share_id[run.share_id] = run
            self._by_owner[run.owner][run.id] = run

    def remove(self, run: Run) -> None:
        """Remove a run from the registry; the caller removes its folder."""
        with self._lock:
            self._runs.pop(run.id, None)
            self._by_share_id.pop(run.share_id, None)
            owned = self._by_owner[run.owner]
            owned.pop(run.id, None)
            if not owned:
                del self._by_owner[run.owner]

    def find(self, run_id: object, owner: str) -> Run | None:
        """Return the run with this id if it belongs to the owner, else None."""
        # Owners are compared by the hashes of their keys, so a timing attack gains nothing.
        owned = self._by_owner.get(owner_id(owner), {}) if owner else {}
        return owned.get(run_id) if isinstance(run_id, str) else None

    def find_shared(self, share_id: object) -> Run | None:
        """Return the run of a share link, whose id has 128 random bits; None if there is none."""
        run = self._by_share_id.get(share_id) if isinstance(share_id, str) else None
        return run if run and not run.is_deleted else None

    def list_for_owner(self, owner: str) -> list[Run]:
        """Return an owner's runs, oldest first, with the deleted ones that can be restored."""
        with self._lock:
            owned = list(self._by_owner.get(owner_id(owner), {}).values()) if owner else []
        return sorted(owned, key=lambda run: run.created)

    def all_runs(self) -> list[Run]:
        with self._lock:
            return list(self._runs.values())

    def is_idle(self, run: Run) -> bool:
        """Return whether a run has no worker, no request, and no run about to branch from it."""
        if run.has_worker or run in self.scheduler or self.snapshots.has_pending(run):
            return False
        return not any(
            other.branched_from
            and other.branched_from[0] == run.folder.name
            and other.status in ("waiting", "starting")
            for other in self.all_runs()
        )

    def summaries(self, owner: str) -> list[dict[str, Any]]:
        """Return summaries of an owner's runs, newest first; this prevents their idle timeout."""
        now = time.monotonic()
        self._touch_owner(owner_id(owner), now)
        runs = self.list_for_owner(owner)[::-1]
        for run in runs:  # the page shows the list, but not the live view of this run
            run.last_viewed_at = max(run.last_viewed_at, now - VIEWER_TTL_S)
        return [to_summary(run) | {"queue_position": self.scheduler.position(run)} for run in runs]

    def _touch_owner(self, owner: str, now: float) -> None:
        with self._lock:
            self.owner_last_seen[owner] = now
            self.owner_last_seen.move_to_end(owner)
            while len(self.owner_last_seen) > MAX_TRACKED_OWNERS:
                self.owner_last_seen.popitem(last=False)

    # Start

    def start(
        self,
        config: RunConfig,
        owner: str,
        *,
        name: str = "",
        changes: Iterable[SettingChange] = (),
        branched_from: tuple[Run, int] | None = None,
        origin: RunOrigin = "user",
    ) -> Run:
        """Create a run and start it as soon as a slot is free.

        Raises UserError if the owner has too many runs or no storage left, ConfigError as `check`.
        """
        self.check(config, owner)
        with self._admission_lock:
            self.scheduler.ensure_can_enqueue(Client(self.client_address(), owner_id(owner)))
            self._ensure_can_add(owner, estimated_run_bytes(config))
            run = self._new(config, owner, name, self.storage.new_run_folder(config), origin)
            run.update_live(points=MetricSeries(), weight_steps=())
            parent = (branched_from[0].folder.name, branched_from[1]) if branched_from else None
            run.update(changes=tuple(changes), branched_from=parent)
            with storing("the run"):
                write_dir(run.folder, {"run.json": run.record.to_json()})
            self._add(run)
            self.scheduler.enqueue(run, "train")
        return run

    def check(self, config: RunConfig, owner: str) -> None:
        """Raise ConfigError for a run above a limit or free memory, or on another's dataset."""
        self.settings.limits.validate(config)
        ensure_memory_available(config)
        require_dataset(self, config, owner)

    def _ensure_can_add(self, owner: str, n_bytes: int) -> None:
        """Raise UserError unless an owner can have one more run, of this many bytes."""
        if self.settings.has_count_limits:
            client = Client(self.client_address(), owner_id(owner))
            stored = (run for run in self.all_runs() if not run.is_deleted)
            limit("runs").admit(client, (Client(run.address, run.owner) for run in stored))
        self.storage_quota.ensure_available(owner_id(owner), self.client_address(), n_bytes)

    def client_address(self) -> str:
        """Return the address of the current client, hashed; empty for work without a client."""
        return self.storage.address_id(CLIENT_ADDRESS.get())

    def rerun(self, run: Run, owner: str) -> Run:
        """Start a copy of a run: same settings, same seed, same changes at the same steps."""
        return self.start(run.config, owner, name=run.name, changes=run.changes)

    def branch(self, run: Run, step: int, owner: str) -> Run:
        """Create a run that continues from a step of this one. Raises UserError beyond its end.

        It pauses at that step, so that its owner can first change a setting.
        """
        last = max(run.load_points().last, run.step)
        if not 0 <= step <= last:
            raise UserError(f"step {step} is not in this run; choose a step from 0 to {last}")
        changes = [change for change in run.changes if change.step <= step]
        if step >= run.steps:
            more_steps = min(MAX_STEPS, step + run.config.training.max_steps)
            changes.append(SettingChange(step, "max_steps", more_steps))
        until = config_at_step(run.config.training, changes, step).stop_at_exact_match
        # Without this change, the new run would end at its next evaluation.
        if until and (run.score_at(step) or 0.0) >= until:
            changes.append(SettingChange(step, "stop_at_exact_match", 0.0))
        return self.start(
            run.config,
            owner,
            name=f"branch at {step}, {run.name}",
            changes=changes,
            branched_from=(run, step),
        )

    def _new(
        self, config: RunConfig, owner: str, name: str, folder: Path, origin: RunOrigin = "user"
    ) -> Run:
        owned = self.list_for_owner(owner)
        if not (name := unique_name(name, owned)):
            dataset = dataset_name(owner_id(owner), config.task.dataset_sha256)
            name = unique_name(default_name(config, dataset), owned)
        record = RunRecord.new(config, owner_id(owner), name, origin, self.client_address())
        return Run(record, folder)

    def import_checkpoint(self, folder: Path, owner: str, name: str) -> Run:
        """Import a checkpoint, already validated and in its own folder, as a run of this owner.

        Raises CheckpointError, ConfigError, UserError or OSError; there is no run then.
        """
        manifest = read_manifest(folder)
        self.check(manifest.config, owner)
        self.settings.limits.validate_metrics_size(folder / "metrics.jsonl")
        with self._admission_lock:
            self._ensure_can_add(owner, directory_size(folder))
            run_folder = self.storage.new_run_folder(manifest.config)
            with replacing_dir(run_folder) as hidden:
                is_resumable = move_checkpoint(folder, manifest, hidden)
                run = self._new(manifest.config, owner, name, hidden)
                steps = config_at_step(manifest.config.training, manifest.changes, manifest.step)
                is_unfinished = is_resumable and manifest.step < steps.max_steps
                run.update(
                    status="stopped" if is_unfinished else "done",
                    changes=tuple(manifest.changes),
                    scores=manifest.scores,
                    step=manifest.step,
                    seconds=manifest.seconds,
                    device=manifest.device,
                    imported=True,
                )
                score = (manifest.scores or {}).get("exact_match")
                run.save(best=max_score(run.load_points().best, score))
            run.folder = run_folder
            self._add(run)
        return run

    # Actions of the owner

    def update_metadata(
        self, run: Run, *, name: str | None = None, viewers_may_use: bool | None = None
    ) -> None:
        """Rename or share a run.

        `viewers_may_use`: whether viewers may see examples and use the model, from now on.
        Raises UserError for an invalid name, or if the change cannot be stored.
        """
        changes: dict[str, Any] = {}
        if name is not None:
            changes["name"] = name = " ".join(name.split())
            if not is_valid_name(name):
                raise UserError(
                    f"the name has {len(name)} characters; use 1 to {MAX_NAME_LENGTH} "
                    "printable characters"
                )
        if viewers_may_use is not None:
            changes["viewers_may_use"] = viewers_may_use
        run.store("the change", **changes)

    def delete(self, run: Run) -> None:
        """Delete a run; for `UNDO_TTL_S` seconds it can be restored, paused if it was active."""
        deleted_at = time.time()
        try:
            run.save(deleted_at=deleted_at)
        except OSError:  # on a full disk, the removal of a part of its history frees space
            self.storage_quota.thin_histories([run], 1)
            run.store("the deletion", deleted_at=deleted_at)
        with self._lock, run.lock:
            run.next_command, run.deleted_at_monotonic = "", time.monotonic()
            if self.scheduler.remove(run):
                run.update(status="paused")
                run.write()
            elif run.has_worker:
                run.exiting = run.send_command("park")

    def restore(self, run: Run) -> None:
        """Restore a deleted run. Raises UserError if the disk cannot store that."""
        run.store("the restored run", deleted_at=None)

    def poll(
        self,
        run: Run,
        n_points: int,
        series_id: int,
        snapshot_version: int,
        client: Client | None = None,
        changes: int = -1,
    ) -> dict[str, Any]:
        """Return the state of a run that the page does not have yet (`live_response`).

        It takes no lock if the points and the weight steps are in memory, so the event loop may
        call it. `client` is the one whose quota new snapshots use.
        """
        run.last_viewed_at, run.viewer_client = time.monotonic(), client
        if run.has_worker and not run.viewer_active:
            run.viewer_active = run.send_command("watch", True)
        run.load_weight_steps()
        run.load_points()
        self.snapshots.refresh(run)
        return live_response(run, n_points, series_id, snapshot_version, changes) | {
            "queue_position": self.scheduler.position(run),
            "time_left": time_left(run, self.settings.limits),
        }
