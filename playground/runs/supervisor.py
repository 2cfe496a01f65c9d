"""The workers of runs: start, messages, exit, hang, idle timeout."""

from __future__ import annotations

import logging
import os
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil

from playground.common.platform import cpu_seconds, usable_cores
from playground.jobs.housekeeping import HOUSEKEEPER, log_errors
from playground.jobs.process import WorkerProcess, describe_exit
from playground.training.setting_changes import SettingChange

from .metric_series import MetricSeries
from .record import ACTIVE_STATUSES
from .snapshots import VIEWER_TTL_S, is_viewed
from .state import Run, max_score
from .worker_protocol import NO_USABLE_CHECKPOINT, WorkerSpec

if TYPE_CHECKING:
    from .registry import Registry

QUOTA_INTERVAL_S = 30.0  # seconds between two checks of the storage quota
# Seconds without a poll after which the points of a run without a worker are removed from memory.
UNVIEWED_POINTS_TTL_S = 60.0
UNDO_TTL_S = 600.0  # seconds that a deleted run stays on disk

log = logging.getLogger(__name__)


class Supervisor:
    """The workers of a registry, each with its own threads. Safe to call from any thread."""

    def __init__(self, registry: Registry) -> None:
        self.registry, self.root, self.settings = registry, registry.root, registry.settings
        self.scheduler, self._runs = registry.scheduler, registry.all_runs
        self._quota_checked_at = -QUOTA_INTERVAL_S

    # Start

    def launch(self, run: Run) -> None:
        """Start the worker of a run. The caller holds the lock of the registry."""
        with run.lock:
            try:
                run.worker = WorkerProcess(
                    "playground.runs.training_worker:main",
                    f"run-{run.folder.name}",
                    self.worker_spec(run),
                    on_message=lambda *message: self.on_message(run, *message),
                    on_exit=lambda code: self.on_exit(run, code),
                )
            except Exception as error:  # whatever it is, the run must not stay "starting"
                log.exception("The worker of %s could not be started", run.folder.name)
                text = f"the training process could not be started: {error}"
                run.update(status="failed", message=text)
            run.write()

    def worker_spec(self, run: Run) -> WorkerSpec:
        """Return the specification for a worker that is about to start. Needs the run's lock."""
        run.update(status="starting", message="")
        run.exiting = False
        run.viewer_active, run.last_viewed_at = True, time.monotonic()
        run.last_message_at, run.cpu_seconds, run.size_bytes = time.monotonic(), 0.0, None
        origin = None
        if run.branched_from:
            origin = (str(self.root / "runs" / run.branched_from[0]), run.branched_from[1])
        return WorkerSpec(
            str(run.folder),
            run.config.to_flat(),
            [change.to_list() for change in run.changes],
            run.first_command,
            origin,
            trained_seconds=run.trained_seconds,
            threads=self.settings.limits.threads,
            cores=max(1, usable_cores() // self.settings.slots),
        )

    # Messages

    def on_message(self, run: Run, kind: str, *content: Any) -> None:
        """Handle one message of a worker (`worker_protocol.py`)."""
        if kind == "ended":
            self._on_end(run, *content)
            return
        with run.lock:
            run.last_message_at, run.command_sent_at = time.monotonic(), None
            match kind:
                case "points":
                    run.append_points(content[0])
                    run.paused_at = time.monotonic() if content[0] else run.paused_at
                case "history":
                    run.update_live(weight_steps=tuple(content[0]), latest_weights_step=content[1])
                case "started":
                    self._on_start(run, *content)
                case "trouble":
                    run.update(message=self._redact_paths(content[0]))
                case "changes":
                    run.update(changes=tuple(SettingChange.parse(content[0])))
                    run.write()
                case "active":
                    run.update(trained_seconds=content[0])
                case "saved":
                    run.count_checkpoint_change()
                    run.write()
                case "status" if run.status != "stopping" or content[0] == "paused":
                    run.update(status=content[0])
                    run.paused_at, run.exiting = time.monotonic(), False
                    run.write()
        if kind == "history" and is_viewed(run):
            self.registry.snapshots.refresh(run)

    @staticmethod
    def _on_start(run: Run, step: int, device: str) -> None:
        points = run.live.points
        if points is None or points.last != step:
            run.update_live(
                points=MetricSeries() if not step else None,
                snapshot=None,
                series_id=secrets.randbelow(2**31),
            )
        run.update_live(weight_steps=None)
        run.update(step=step, device=device)

    def _on_end(self, run: Run, status: str, message: str, scores: dict[str, Any] | None) -> None:
        if (
            message
            and NO_USABLE_CHECKPOINT not in message
            and (status == "paused" or (status == "failed" and run.resume_step()))
        ):
            message += f"; {run.resume_message()}"  # read before the lock is taken
        with run.lock:
            run.last_message_at, run.command_sent_at = time.monotonic(), None
            if run.status == "stopped":
                status = "stopped"
            # A paused run whose worker exits keeps the reason of the pause.
            if message or status != "paused":
                run.update(message=self._redact_paths(message))
            run.update(
                status=status,
                scores=scores or run.scores,
                best=max_score(run.best, scores["exact_match"] if scores else None),
            )
            run.exiting = True  # later commands go to the next worker
            run.write()

    def on_exit(self, run: Run, code: int | None) -> None:
        """Handle the exit of a worker process."""
        step = run.resume_step()  # read before the lock is taken
        with run.lock:
            if run.forced_status:
                status, message = run.forced_status
                run.update(status=status, message=message)
            elif run.status in ACTIVE_STATUSES or (run.status == "paused" and code):
                ended = describe_exit("the training process", code)
                reason = f"{ended}; Resume continues at step {step}"
                run.update(status="failed", message=reason)
            if run.is_resumable:
                run.update(step=step)
            run.forced_status = None
            run.worker, run.exiting, run.command_sent_at = None, False, None
            next_command, run.next_command = run.next_command, ""
            run.write(flush=True)
        if next_command and not self.scheduler.stop_event.is_set():
            self.scheduler.enqueue(run, next_command)
        self.scheduler.schedule()

    def _redact_paths(self, message: str) -> str:
        """Remove the root folder from a worker's message, because viewers read it, too."""
        return message.replace(f"{self.root}{os.sep}", "")

    # Housekeeping

    def start_housekeeping(self) -> None:
        """Supervise all runs periodically until `shutdown`."""
        HOUSEKEEPER.add(self.housekeep)

    def housekeep(self) -> None:
        """Enforce the storage quota, supervise each run, and start what may start."""
        now = time.monotonic()
        if self.settings.limits.bytes_total and now - self._quota_checked_at > QUOTA_INTERVAL_S:
            self._quota_checked_at = now
            log_errors(self.registry.storage_quota.enforce)
        for run in self._runs():
            log_errors(self.supervise, run)
        self.scheduler.schedule()

    def supervise(self, run: Run) -> None:
        """Apply the timeouts and limits to a run, and repeat a failed write of its record."""
        if run.write_pending is not None:
            run.write_now()
        if run.has_worker:
            self._supervise_worker(run)
        elif run in self.scheduler:
            self._remove_unviewed(run)
        else:
            self._unload(run)
        deleted_s = time.monotonic() - run.deleted_at_monotonic
        if run.is_deleted and not run.has_worker and deleted_s > UNDO_TTL_S:
            self.registry.storage_quota.evict_if_idle(run, self.registry.storage_quota.delete_run)

    def _supervise_worker(self, run: Run) -> None:
        now, limits = time.monotonic(), self.settings.limits
        unviewed_s = now - run.last_viewed_at
        if run.viewer_active and unviewed_s > VIEWER_TTL_S:
            run.viewer_active = not run.send_command("watch", False)
        if run.status == "training":
            idle_timeout_s = self.settings.idle_timeout_s
            if idle_timeout_s and unviewed_s > idle_timeout_s:
                reason = f"paused automatically after {idle_timeout_s:g} s without viewers"
                run.update(message=run.message or reason)
                run.send_command("pause")
            if limits.max_train_seconds and run.trained_seconds >= limits.max_train_seconds:
                run.update(message=limits.time_limit_message())
                run.send_command("pause")
        release_after_s = self.settings.release_after_s
        is_released = (
            run.status == "paused" and release_after_s and now - run.paused_at > release_after_s
        )
        if (is_released or run.is_deleted) and not run.exiting:
            run.exiting = run.send_command("park")
        self.kill_if_hung(run, now)

    def _remove_unviewed(self, run: Run) -> None:
        """Remove a run without viewers from the queue, after the idle timeout."""
        idle_timeout_s = self.settings.idle_timeout_s
        if not idle_timeout_s or time.monotonic() - run.last_viewed_at <= idle_timeout_s:
            return
        with self.scheduler.lock:
            if self.scheduler.remove(run):  # it may have started meanwhile
                run.update(
                    status="stopped",
                    message=f"removed from the queue after {idle_timeout_s:g} s without viewers; "
                    "press Resume to queue it again",
                )
                run.write()

    def _unload(self, run: Run) -> None:
        """Remove the data of a run without viewers from memory; the disk has them."""
        if run.live.points is None or run.snapshot_pending:
            return
        with run.lock:
            if time.monotonic() - run.last_viewed_at > UNVIEWED_POINTS_TTL_S:
                run.update_live(points=None, snapshot=None, probe_info=None, weight_steps=None)

    def kill_if_hung(self, run: Run, now: float) -> None:
        """Kill a worker that is silent and has neither used nor waited for the processor."""
        timeout_s, worker = self.settings.hang_timeout_s, run.worker
        due_since = run.command_sent_at or (run.last_message_at if run.status != "paused" else now)
        if worker is None or worker.process.pid is None:  # it has exited, or is about to start
            return
        if not timeout_s or now - max(due_since, run.last_message_at) < timeout_s:
            return
        with suppress(psutil.Error):
            used = cpu_seconds(worker.process.pid)
            if used > run.cpu_seconds + 0.02 * timeout_s:
                # It is busy with a long step or an evaluation.
                run.cpu_seconds, run.last_message_at = used, now - timeout_s / 2
                return
            reason = f"the training process hung for {timeout_s:g} s and was ended"
            run.forced_status = ("failed", f"{reason}; {run.resume_message()}")
            worker.kill()

    def shutdown(self, seconds: float) -> tuple[int, int]:
        """Save and end all workers at the same time, and kill those that exceed the timeout."""
        self.scheduler.stop_event.set()
        HOUSEKEEPER.remove(self.housekeep)
        with self.scheduler.lock:
            workers = {run: run.worker for run in self._runs() if run.has_worker and run.worker}
            for run in self.scheduler:
                run.update(status="paused")
                run.write()
        for worker in workers.values():
            worker.send("park")
        deadline = time.monotonic() + seconds
        n_exited = 0
        for run, worker in workers.items():
            if worker.exited.wait(max(0.0, deadline - time.monotonic())):
                n_exited += 1
            else:
                reason = f"the server ended before it could save; {run.resume_message()}"
                run.forced_status = ("paused", reason)
                worker.kill()
        return n_exited, len(workers) - n_exited
