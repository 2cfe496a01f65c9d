"""The training process of one run: train, handle commands, send messages, and save to disk.

It saves its weights in the run's history, and another process computes the views from them
(`inspector_process.py`). A worker saves and exits when its parent has exited or when it receives a
signal; the run can be resumed. `worker_protocol.py` lists the commands and messages.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import filelock

from playground.checkpoints.checkpoint import WeightsSerializer, metrics_record, save_checkpoint
from playground.checkpoints.manifest import CheckpointError
from playground.checkpoints.tensors import serialize_tensors
from playground.common.atomic_write import is_read_only
from playground.common.platform import handle_stop_signals
from playground.errors import is_out_of_memory
from playground.evaluation import EvalResult
from playground.jobs.entry import prepare_process
from playground.models.config_fields import ConfigError
from playground.training.setting_changes import SettingChange
from playground.training.step import TrainingDivergedError
from playground.training.trainer import Metrics

from .weight_history import WeightHistory
from .worker_checkpoints import remove_old_checkpoints, restore_run
from .worker_protocol import DIVERGED_MESSAGE, PINNED_SUFFIX, WorkerSpec, max_speed

log = logging.getLogger(__name__)

METRICS_INTERVAL_S = 0.1  # seconds between two messages with points
SNAPSHOT_INTERVAL_S = 0.2  # least seconds between two weights for the live view
# largest speed in steps per second at which the live view shows every step
STEP_BY_STEP_MAX_SPEED = 20
FIRST_CHECKPOINT_AFTER_S = 2.0  # seconds until the first checkpoint of a worker
CHECKPOINT_INTERVAL_S = 15.0  # least seconds between two later checkpoints
COMMAND_WAIT_S = 0.5  # seconds that a paused worker waits for a command between two loops
HEARTBEAT_INTERVAL_S = 1.0  # seconds between two messages of a worker that is not paused
LOCK_TIMEOUT_S = 20.0  # seconds to wait for a worker of an earlier server that still saves
OUT_OF_MEMORY_MESSAGE = "out of memory ({}); use a smaller batch_size, d_model or max_length"


def main(connection: Connection, spec: WorkerSpec) -> None:
    """Run the worker, and report in every case how it ended: the entry point of the process."""
    worker: TrainingWorker | None = None

    def end(number: int, frame: FrameType | None) -> None:
        if worker is None:
            raise SystemExit(0)
        worker.request_exit("paused")

    def report_failure(message: str) -> None:
        _send(connection, ("ended", "failed", message, None))

    prepare_process(nice=10)  # the server must respond even if training uses every core
    handle_stop_signals(end, interrupt=False)
    try:
        folder = Path(spec.folder)
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock", timeout=LOCK_TIMEOUT_S):
            worker = TrainingWorker(connection, spec)
            worker.run()
    except filelock.Timeout:
        report_failure("another process is training this run; end that one first")
    except (CheckpointError, ValueError) as error:
        report_failure(str(error))
    except OSError as error:
        report_failure(f"{error.filename or folder}: {error.strerror or error}")
    except Exception as error:  # the process ends in any case, and the page must get the reason
        if is_out_of_memory(error):
            reason = str(error).split(": ")[-1][:200] or "no memory left"
            report_failure(OUT_OF_MEMORY_MESSAGE.format(reason))
            return
        log.exception("Training of %s failed", Path(spec.folder).name)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        report_failure(f"{type(error).__name__}: {error} ({place})")
    finally:
        connection.close()


def _send(connection: Connection, message: tuple[Any, ...]) -> None:
    with suppress(OSError):  # the parent has exited; `TrainingWorker.listen` handles that
        connection.send(message)


class TrainingWorker:
    """The training loop of a run, with its history and its commands."""

    def __init__(self, connection: Connection, spec: WorkerSpec) -> None:
        self.connection, self.folder = connection, Path(spec.folder)
        self.history = WeightHistory(self.folder)
        self.write_error = ""  # the message about a failed write
        self.trainer, note, is_new = restore_run(spec, self.history)
        self.packed_weights = WeightsSerializer(self.trainer.eval_model)
        self.trainer.cores = spec.cores
        # A branch pauses once, at the step where it leaves its origin.
        branch_step = spec.branched_from[1] if spec.branched_from else -1
        self.pause_at_step = (
            branch_step if is_new or self.trainer.step_count < branch_step else None
        )
        self.paused = spec.first_command == "step" or self.pause_at_step == self.trainer.step_count
        self.steps_to_go = int(spec.first_command == "step")  # single steps requested while paused
        self.exit_status = ""  # the final status, once the worker should exit
        self.viewer_active = True
        self.pending_metrics: list[Metrics] = []
        self.metrics_sent_at = self.next_snapshot_at = self.next_step_at = 0.0
        self.next_checkpoint_at = time.monotonic() + FIRST_CHECKPOINT_AFTER_S
        self.saved_version: tuple[int, list[SettingChange], bool] | None = None
        self.sent_weight_steps: list[int] = []
        self.trained_seconds = spec.trained_seconds
        self.counted_at, self.counting = time.monotonic(), False
        if note:
            self.send("trouble", note)

    # The loop

    def run(self) -> None:
        """Train until the run ends or is stopped; then evaluate, save and report it."""
        self.send("started", self.trainer.step_count, self.trainer.device.type)
        self.send_changes()
        self.write_or_pause(self.save_preview_weights)
        self.send("status", "paused" if self.paused else "training")
        while not self.finalize(*self.train()):
            # The weights stay in memory until the owner has freed disk space and presses Resume or
            # Stop.
            self.exit_status = ""
            self.pause_before_exit()
            while self.paused and not self.exit_status:
                self.poll_commands(COMMAND_WAIT_S)

    def train(self) -> tuple[str, str]:
        """Train until the run ends; return the final status and its message."""
        while self.trainer.should_continue() and not self.exit_status:
            self.poll_commands(self.seconds_until_next_step())
            self.count_trained_seconds()
            if time.monotonic() - self.metrics_sent_at > HEARTBEAT_INTERVAL_S and not self.paused:
                # At a very low speed, this message shows that the worker is alive.
                self.write_or_pause(self.send_metrics)
            if (
                self.exit_status
                or (self.paused and not self.steps_to_go)
                or time.monotonic() < self.next_step_at
            ):
                continue
            started = time.monotonic()
            try:
                self.pending_metrics.append(self.trainer.train_step())
            except TrainingDivergedError as error:
                return "failed", f"{DIVERGED_MESSAGE} at {error}"
            self.steps_to_go = max(0, self.steps_to_go - 1)
            self.write_or_pause(self.record_step)
            if self.trainer.step_count == self.pause_at_step and self.trainer.should_continue():
                self.pause()
            speed = self.max_steps_per_second()
            self.next_step_at = (
                0.0 if self.paused or not speed else max(started, self.next_step_at) + 1 / speed
            )
        if self.exit_status:
            return self.exit_status, ""
        return "done", ""

    def count_trained_seconds(self) -> None:
        """Add the time since the last call to the training time, unless the run was paused."""
        now = time.monotonic()
        self.trained_seconds += self.counting * (now - self.counted_at)
        self.counted_at, self.counting = now, not self.paused or self.steps_to_go > 0

    def seconds_until_next_step(self) -> float:
        """Return the seconds to wait for a command before the next step; 0 at full speed."""
        if self.paused and not self.steps_to_go:
            return COMMAND_WAIT_S
        return max(0.0, min(COMMAND_WAIT_S, self.next_step_at - time.monotonic()))

    def max_steps_per_second(self) -> float:
        return max_speed(self.trainer.changes, self.trainer.step_count)

    def record_step(self) -> None:
        """Save and send the data that are due after a step."""
        step, now = self.trainer.step_count, time.monotonic()
        state_due = self.history.should_save_state(step)
        snapshot_due = self.viewer_active and (
            now > self.next_snapshot_at or 0 < self.max_steps_per_second() <= STEP_BY_STEP_MAX_SPEED
        )
        if state_due or snapshot_due or self.paused or self.history.should_save_weights(step):
            self.save_preview_weights(with_state=state_due)
        if state_due:
            self.history.save_state(step, serialize_tensors(self.trainer.state_dict()))
        if self.paused or now - self.metrics_sent_at > METRICS_INTERVAL_S:
            self.send_metrics()
        if now > self.next_checkpoint_at:
            self.save()

    def finalize(self, status: str, message: str) -> bool:
        """Evaluate, save and report the end of the run; return False if it could not be saved."""
        scores = self.trainer.evaluate() if status == "done" else None
        saved = (
            self.write_or_pause(self.send_metrics)
            and self.write_or_pause(self.save_preview_weights)
            and self.write_or_pause(lambda: self.save(scores))
        )
        if not saved and status != "paused":  # the server requests the exit of a pause
            return False
        result = dataclasses.asdict(scores) if scores else None
        self.send("ended", status, message or self.write_error, result)
        return True

    # Commands

    def poll_commands(self, seconds: float) -> None:
        """Handle the received commands; wait up to `seconds` for the first one."""
        try:
            while not self.exit_status and self.connection.poll(seconds):
                self.handle_command(*self.connection.recv())
                seconds = 0.0
        except (EOFError, OSError):
            self.request_exit("paused")

    def handle_command(self, kind: str, *arguments: Any) -> None:
        if kind == "pause" and not self.paused:
            self.pause()
        elif kind == "resume" and self.paused:
            self.paused, self.steps_to_go, self.next_step_at = False, 0, 0.0
            self.send("status", "training")
        elif kind == "step" and self.paused:
            self.steps_to_go += int(arguments[0])
        elif kind in ("stop", "park"):
            self.request_exit("stopped" if kind == "stop" else "paused")
        elif kind == "save":
            self.write_or_pause(lambda: self.save(pinned=True))
        elif kind == "watch":
            self.viewer_active = bool(arguments[0])
            if self.viewer_active:
                self.write_or_pause(self.save_preview_weights)
        elif kind == "change":
            try:
                self.trainer.schedule_change(arguments[0], arguments[1], self.pause_at_step)
            except ConfigError as error:
                self.send("trouble", str(error))
            self.next_step_at = 0.0
            self.send_changes()

    def pause(self) -> None:
        """Pause, and save weights and a checkpoint."""
        # The points come first, so that no page shows the pause at an earlier step.
        self.write_or_pause(self.send_metrics)
        self.pause_before_exit()
        self.write_or_pause(self.save_preview_weights)
        self.write_or_pause(self.save)

    def pause_before_exit(self) -> None:
        """Pause without saving."""
        self.paused, self.steps_to_go = True, 0
        self.send("status", "paused")

    def request_exit(self, status: str) -> None:
        """Exit after the current step. Safe in a signal handler."""
        self.exit_status = self.exit_status or status

    # Saving and messages

    def write_or_pause(self, write: Any) -> bool:
        """Call a function that writes; if it fails, pause, report it, and return False."""
        try:
            write()
        except (OSError, CheckpointError) as error:
            if isinstance(error, CheckpointError):
                reason, cause = str(error), error.__cause__
            else:
                reason = f"could not write {self.folder}: {error.strerror or error}"
                cause = error
            is_writable = not isinstance(cause, OSError) or not is_read_only(cause)
            remedy = "free disk space" if is_writable else "make its folder writable"
            self.write_error = f"{reason}; the run is paused: {remedy} and resume"
            self.send("trouble", self.write_error)
            if not self.paused:
                self.pause_before_exit()
            return False
        return True

    def save_preview_weights(self, with_state: bool = False) -> None:
        """Save the weights for the live view."""
        step, started = self.trainer.step_count, time.monotonic()
        self.history.save_weights(step, self.packed_weights(), with_state)
        now = time.monotonic()
        # saving takes at most 1 % of the time at any model size
        self.next_snapshot_at = now + max(SNAPSHOT_INTERVAL_S, 100 * (now - started))
        steps = self.history.steps()
        if steps != self.sent_weight_steps:
            self.sent_weight_steps = steps
            self.send("history", steps, steps[-1] if steps else None)

    def send_metrics(self) -> None:
        """Send the new metrics and the training time, and append the metrics to the history."""
        lines = [metrics_record(metrics) for metrics in self.pending_metrics]
        self.pending_metrics, self.metrics_sent_at = [], time.monotonic()
        self.send("points", lines)
        self.count_trained_seconds()
        self.send("active", self.trained_seconds)
        self.history.add(lines)

    def save(self, scores: EvalResult | None = None, pinned: bool = False) -> None:
        """Write a checkpoint of this step, then delete the oldest ones except `pinned` ones."""
        step, started = self.trainer.step_count, time.monotonic()
        version = (step, list(self.trainer.changes), pinned)
        if scores is not None or version != self.saved_version:
            self.send_metrics()
            self.history.flush()
            name = f"{step:07d}{PINNED_SUFFIX if pinned else ''}"
            save_checkpoint(self.folder / "checkpoints" / name, self.trainer, None, scores)
            self.saved_version = version
            remove_old_checkpoints(self.folder, step)
            self.send("saved", step)
        now = time.monotonic()
        self.next_checkpoint_at = now + max(CHECKPOINT_INTERVAL_S, 50 * (now - started))
        if self.write_error:
            self.write_error = ""
            self.send("trouble", "")

    def send_changes(self) -> None:
        self.send("changes", [change.to_list() for change in self.trainer.changes])

    def send(self, *message: Any) -> None:
        _send(self.connection, message)
