"""Commands of owners to their runs: pause, resume, step, stop, keep, and changes of settings."""

import time
from typing import Any

from playground.errors import UserError
from playground.training.setting_changes import MAX_CHANGES, SettingChange, add_change

from .limits import RegistrySettings, estimated_run_bytes
from .record import WEIGHTS_EVICTED
from .scheduler import RunScheduler
from .state import RESUMABLE_STATUSES, Run
from .storage_quota import StorageQuota

COMMANDS = ("pause", "resume", "step", "stop", "save")
FIRST_COMMANDS = {"resume": "train", "step": "step"}  # of a worker that starts for the action
BUSY_WORKER_MESSAGE = "the training process accepts no commands now; try again in a moment"


class RunCommands:
    """The commands of a registry. Safe to call from any thread."""

    def __init__(
        self, settings: RegistrySettings, scheduler: RunScheduler, storage_quota: StorageQuota
    ) -> None:
        self.settings, self.scheduler, self.storage_quota = settings, scheduler, storage_quota

    def control(self, run: Run, action: str) -> None:
        """Pause, resume, step or stop a run, or save a checkpoint of its current step.

        An action that does not apply to the status has no effect. Raises UserError or ConfigError
        if the run cannot continue, or the checkpoint exceeds the storage quota.
        """
        if action not in COMMANDS:
            raise ValueError(f"action is {action!r}; use one of {', '.join(COMMANDS)}")
        continues, ends = action in FIRST_COMMANDS, action in ("pause", "stop")
        # read before the locks are taken
        checkpoint_message = run.resume_message() if action == "stop" and run.has_worker else ""
        if continues:
            self.ensure_trainable(run)
        elif action == "save":
            n_bytes = estimated_run_bytes(run.config) // 2
            self.storage_quota.ensure_available(run.owner, run.address, n_bytes)
        with self.scheduler.lock, run.lock:
            # The eviction may have happened since the check above.
            if continues and run.evicted == WEIGHTS_EVICTED:
                raise UserError(run.message)
            if ends and self.scheduler.remove(run):
                run.update(status="paused" if action == "pause" else "stopped", message="")
                run.write()
            elif run.has_worker and run.exiting:
                _control_exiting(run, action)
            elif run.has_worker:
                _control_worker(run, action, checkpoint_message)
            elif continues and _can_continue(run):
                self.scheduler.enqueue(run, FIRST_COMMANDS[action])
            elif action == "stop" and run.status == "paused":
                run.update(status="stopped")
                run.write()

    def ensure_trainable(self, run: Run) -> None:
        """Raise UserError or ConfigError if a run may not continue to train."""
        limits = self.settings.limits
        limits.validate(run.config)
        if run.evicted == WEIGHTS_EVICTED:
            raise UserError(run.message)
        if limits.max_train_seconds and run.trained_seconds >= limits.max_train_seconds:
            raise UserError(limits.time_limit_message())
        checkpoints = [] if run.has_worker else [path for path, _ in run.checkpoints()]
        if checkpoints and not any(
            (path / "training.safetensors").is_file() for path in checkpoints
        ):
            raise UserError(
                "this checkpoint holds weights only: it can be inspected, but not trained further"
            )

    def change_setting(self, run: Run, setting: str, value: Any) -> None:
        """Change a setting of a run from its next step on.

        Raises ConfigError for an invalid value, UserError for `max_steps` below the steps taken.
        """
        run.load_points()
        requested = SettingChange(0, setting, value)
        # More steps let a finished run continue.
        extends = setting == "max_steps" and run.status == "done"
        if extends and requested.value > run.step:
            self.ensure_trainable(run)
        with run.lock:
            branch_step = run.branched_from[1] if run.branched_from else 0
            change = SettingChange(max(run.step, branch_step), setting, value)
            if setting == "max_steps" and change.value <= run.step:
                raise UserError(f"the run has taken {run.step} steps already; give a larger number")
            if len(run.changes) >= MAX_CHANGES:
                raise UserError(
                    f"this run has {MAX_CHANGES} changes of settings, which is the maximum; "
                    "start a new run"
                )
            if run.has_worker and not run.exiting:
                if not run.send_command("change", setting, change.value):
                    raise UserError(BUSY_WORKER_MESSAGE)
                return
            stored: dict[str, Any] = {"changes": tuple(add_change(run.changes, change))}
            if setting == "max_steps" and run.status == "done":
                stored["status"] = "paused"
        run.store("the change", **stored)  # without the lock, since it writes to the disk


def _can_continue(run: Run) -> bool:
    return run.status in RESUMABLE_STATUSES and not run.is_deleted


def _control_exiting(run: Run, action: str) -> None:
    """Apply an action to a run whose worker is about to exit. Needs the run's lock."""
    if action in FIRST_COMMANDS:
        if _can_continue(run):
            run.next_command = FIRST_COMMANDS[action]
    elif action in ("pause", "stop"):
        run.next_command = ""
        if action == "stop" and run.status == "paused":
            run.update(status="stopped")


def _control_worker(run: Run, action: str, checkpoint_message: str) -> None:
    """Send an action to the worker of a run, or raise UserError. Needs the run's lock."""
    if action == "stop" and run.status == "stopping":
        message = f"ended immediately by a second Stop; {checkpoint_message}"
        run.forced_status = ("stopped", message)
        run.worker.kill()  # type: ignore[union-attr]  # a live run has one
        return
    if not run.send_command(*(("step", 1) if action == "step" else (action,))):
        raise UserError(BUSY_WORKER_MESSAGE)
    if action not in ("save", "pause"):
        run.command_sent_at = run.command_sent_at or time.monotonic()
    if action == "stop":
        run.update(status="stopping")
    elif action in FIRST_COMMANDS:
        run.update(message="")
