"""The training process of one run: train, handle commands, send messages, and save to disk.

The worker computes no views. It saves its weights in the run's history and reports their steps,
and another process computes the views from them (`inspector.py`).

The pipe carries commands to the worker and messages to the server. Both are tuples that start with
their kind.

    commands   ("pause",) ("resume",) ("step", n) ("stop",) ("park",) ("keep",)
               ("watch", bool) ("change", setting, value)
    messages   ("began", step, device) ("points", [dict]) ("history", [steps], latest step)
               ("status", name) ("saved", step) ("changes", [[step, setting, value]])
               ("trouble", text) ("active", seconds of training without pauses)
               ("ended", status, text, scores or None)

A worker saves and exits when its parent has exited or when it receives a signal. The run can be
resumed. The worker prints nothing.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import filelock
import torch

from playground.evaluation import Evaluation
from playground.models.config import SettingError
from playground.training.checkpoint import (
    WeightsPacker,
    as_line,
    load_trainer,
    pack,
    restore,
    save_checkpoint,
)
from playground.training.config import Change, RunConfig
from playground.training.files import is_closed, remove_folder, sweep
from playground.training.manifest import CheckpointError
from playground.training.threads import ThreadChoice
from playground.training.trainer import MOST_THREADS, Metrics, Trainer, TrainingDiverged

from .history import History, kept_states, read_lines, state_path, weights_path
from .run import DIVERGED, KEPT, NOTHING_USABLE, Order

log = logging.getLogger(__name__)

TELL_EVERY = 0.1  # seconds between two messages with points
LOOK_EVERY = 0.2  # least seconds between two weights for the live view
EVERY_STEP = 20  # largest speed in steps per second at which the live view shows every step
FIRST_SAVE = 2.0  # seconds until the first checkpoint of a worker
SAVE_EVERY = 15.0  # least seconds between two later checkpoints
LISTEN_EVERY = 0.05  # seconds of consecutive GPU steps between two polls for commands
LISTEN_FOR = 0.5  # seconds that a paused worker waits for a command between two loops
GENERATIONS = 2  # automatic checkpoints that stay
ALIVE_EVERY = 1.0  # seconds between two messages of a worker that is not paused
LOCKED_FOR = 20.0  # seconds to wait for a worker of an earlier server that still saves
OUT_OF_MEMORY = "out of memory ({}); use a smaller batch_size, d_model or max_length"


def work(pipe: Connection, order: Order) -> None:
    """Run the worker: the entry point of the process."""
    worker: Worker | None = None

    def end(number: int, frame: FrameType | None) -> None:
        if worker is None:
            raise SystemExit(0)
        worker.leave("paused")

    if hasattr(os, "nice"):
        os.nice(10)  # the server must respond even if training uses every core
    # The terminal sends Ctrl-C to the whole process group; the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, end)

    def begun(began: Worker) -> None:
        nonlocal worker
        worker = began

    attend(pipe, order, begun)


def attend(
    pipe: Connection, order: Order, begun: Callable[[Worker], None] = lambda worker: None
) -> None:
    """Run the specified worker, and report in every case how it ended.

    It runs in its own process or in one of ZeroGPU (`zero.py`).

    Args:
        begun: called with the worker before it trains.
    """

    def report_failure(sentence: str) -> None:
        _tell(pipe, ("ended", "failed", sentence, None))

    try:
        folder = Path(order.folder)
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock", timeout=LOCKED_FOR):
            worker = Worker(pipe, order)
            begun(worker)
            worker.run()
    except (torch.OutOfMemoryError, MemoryError) as error:
        report_failure(OUT_OF_MEMORY.format(str(error)[:200] or "no memory left"))
    except filelock.Timeout:
        report_failure("another process is training this run; end that one first")
    except (CheckpointError, ValueError) as error:
        report_failure(str(error))
    except OSError as error:
        report_failure(f"{error.filename or folder}: {error.strerror or error}")
    except Exception as error:  # the process ends in any case, and the page must get the reason
        # torch raises a RuntimeError if the CPU memory is insufficient.
        if isinstance(error, RuntimeError) and "allocate memory" in str(error):
            report_failure(OUT_OF_MEMORY.format(str(error).split(": ")[-1][:200]))
            return
        log.exception("Training of %s failed", Path(order.folder).name)
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}, line {where.lineno}"
        report_failure(f"{type(error).__name__}: {error} ({place})")
    finally:
        pipe.close()


def _tell(pipe: Connection, message: tuple[Any, ...]) -> None:
    with suppress(OSError):  # the parent has exited; `Worker.listen` handles that
        pipe.send(message)


class Worker:
    """The training loop of a run, with its history and its commands."""

    def __init__(self, pipe: Connection, order: Order) -> None:
        self.pipe, self.folder = pipe, Path(order.folder)
        self.history = History(self.folder)
        self.trouble = ""  # the message about a failed write
        self.trainer, note, fresh = self.begin(order)
        self.weights = WeightsPacker(self.trainer.family)
        self.threads = ThreadChoice(self.trainer)
        # A branch pauses once, at the step where it leaves its origin.
        arrives_at = order.origin[1] if order.origin else -1
        self.pause_at = arrives_at if fresh or self.trainer.step_count < arrives_at else None
        self.paused = order.begin == "step" or self.pause_at == self.trainer.step_count
        self.steps_to_go = int(order.begin == "step")  # single steps requested while paused
        self.sliced = order.seconds > 0  # on a ZeroGPU slice of that duration
        self.until = time.monotonic() + order.seconds if self.sliced else math.inf
        self.came_at = self.trainer.step_count
        self.leaving = ""  # the final status, once the worker should exit
        self.orphaned = False  # the parent has exited
        self.watched = True
        self.untold: list[Metrics] = []
        self.told_at = self.look_again_at = self.step_again_at = 0.0
        self.save_again_at = time.monotonic() + FIRST_SAVE
        self.saved_as: tuple[int, list[Change], bool] | None = None
        self.kept_told: list[int] = []
        self.active, self.counted_at, self.counting = order.active, time.monotonic(), False
        if note:
            self.tell("trouble", note)

    def begin(self, order: Order) -> tuple[Trainer, str, bool]:
        """Restore the trainer, and cut the history to its step.

        Returns:
            the trainer, a note for the owner, and whether the run is new.

        Raises:
            CheckpointError: if there are checkpoints, but neither one of them nor a state of the
                history can be used.
        """
        config, changes = RunConfig.from_fields(order.fields), Change.read(order.changes)
        most_threads = order.threads or MOST_THREADS
        checkpoints, note, damaged = self.folder / "checkpoints", "", []
        sweep(checkpoints)
        for path in sorted(checkpoints.glob("[0-9]*"), key=_step_of, reverse=True):
            try:
                trainer, _ = load_trainer(path, most_threads=most_threads)
            except CheckpointError as error:
                note = note or f"{error}. An earlier checkpoint was used"
                damaged.append(path)
                continue
            known = {(change.step, change.setting) for change in changes}
            # Past changes of the checkpoint count, too: the server may have been killed before it
            # received them.
            past = [change for change in trainer.changes if change.step <= trainer.step_count]
            own = [change for change in past if (change.step, change.setting) not in known]
            trainer.changes = sorted([*changes, *own], key=lambda change: change.step)
            self.history.open(trainer.step_count)
            for odd in damaged:  # renamed, so that later starts ignore them
                with suppress(OSError):
                    os.rename(odd, odd.with_name(f"damaged-{odd.name}"))
            return trainer, note, False
        trainer = Trainer(config, changes, most_threads=most_threads)
        lines = list(read_lines(self.folder))
        if (
            at := self.restore_until(trainer, self.folder, lines[-1]["step"] if lines else 0)
        ) is not None:
            trainer.seconds = next(
                (line.get("seconds", 0.0) for line in reversed(lines) if line["step"] == at), 0.0
            )
            self.history.open(trainer.step_count)
            return trainer, note, False
        if note:
            raise CheckpointError(
                f"{NOTHING_USABLE} ({note.rpartition('.')[0]}); run it again from the list"
            )
        lines = self.branch(trainer, *order.origin) if order.origin else []
        self.history.open(trainer.step_count, lines)
        return trainer, note, True

    def branch(self, trainer: Trainer, origin: str, step: int) -> list[dict[str, Any]]:
        """Start from the last state of another run up to `step`, and copy its history.

        The steps in between are trained again, with bitwise identical results.

        Returns:
            the metrics up to the restored step.
        """
        parent = Path(origin)
        lines = [line for line in read_lines(parent) if line["step"] <= step]
        # A live run writes its weights a moment before its metrics.
        at = self.restore_until(trainer, parent, lines[-1]["step"] if lines else step)
        if at is None:
            return []
        (self.folder / "history").mkdir(parents=True, exist_ok=True)
        for path in (parent / "history").glob("*.safetensors"):
            if 0 <= _step_of(path) <= at:
                with suppress(OSError):  # the history was thinned meanwhile
                    os.link(path, self.folder / "history" / path.name)
        lines = [line for line in lines if line["step"] <= at]
        trainer.seconds = lines[-1].get("seconds", 0.0) if lines else 0.0
        trainer.reopen()
        return lines

    def restore_until(self, trainer: Trainer, run: Path, step: int) -> int | None:
        """Restore the last complete state of a run up to `step`.

        Returns:
            the step of that state; None if there is none.
        """
        states = [(s, weights_path(run, s), state_path(run, s)) for s in kept_states(run)]
        saved = (run / "checkpoints").glob("[0-9]*")
        states += [
            (_step_of(path), path / "model.safetensors", path / "training.safetensors")
            for path in saved
        ]
        for at, weights, state in sorted(states, reverse=True):
            if at > step:
                continue
            # The run may have trained on another device before.
            for device in sorted(("cpu", "cuda"), key=lambda each: each != trainer.device.type):
                with suppress(CheckpointError):  # then use an earlier state
                    restore(trainer, weights, state, at, device)
                    return at
        return None

    # The loop

    def run(self) -> None:
        """Train until the run ends or is stopped; then evaluate, save and report it."""
        self.tell("began", self.trainer.step_count, self.trainer.device.type)
        self.tell_changes()
        self.guard(self.look)
        self.tell("status", "paused" if self.paused else "training")
        while not self.finish(*self.train()):
            # The weights stay in memory until the owner has freed disk space and presses Resume or
            # Stop.
            self.leaving = ""
            self.hold()
            while self.paused and not self.leaving:
                self.listen(LISTEN_FOR)

    def train(self) -> tuple[str, str]:
        """Train, handle commands and send messages until the run ends.

        Returns:
            the final status and its message.
        """
        while self.trainer.should_continue() and not self.leaving:
            self.listen(self.idle_for())
            self.count()
            if time.monotonic() - self.told_at > ALIVE_EVERY and not self.paused:
                # At a very low speed, this tells the server that the worker is alive.
                self.guard(self.tell_points)
            if self.sliced and not self.leaving:
                self.give_back_in_time()
            if (
                self.leaving
                or (self.paused and not self.steps_to_go)
                or time.monotonic() < self.step_again_at
            ):
                continue
            started = time.monotonic()
            try:
                self.untold += self.trainer.advance(self.most())
            except TrainingDiverged as error:
                return "failed", f"{DIVERGED} at {error}"
            self.steps_to_go = max(0, self.steps_to_go - 1)
            self.guard(self.record)
            if not self.paused and self.threads.look():
                self.tell_changes()
            if self.trainer.step_count == self.pause_at and self.trainer.should_continue():
                self.pause()
            speed = self.speed()
            self.step_again_at = (
                0.0 if self.paused or not speed else max(started, self.step_again_at) + 1 / speed
            )
        if self.leaving:
            return self.leaving, ""
        return "done", ""

    def count(self) -> None:
        """Add the time since the last call to the training time, unless the run was paused."""
        now = time.monotonic()
        self.active += self.counting * (now - self.counted_at)
        self.counted_at, self.counting = now, not self.paused or self.steps_to_go > 0

    def most(self) -> int:
        """Return the number of steps until the next check of commands, clock and history.

        It exceeds 1 only on a GPU with a captured step.
        """
        if self.trainer.captured is None or self.paused or self.speed():
            return 1
        step, most = self.trainer.step_count, max(1, int(LISTEN_EVERY * self.trainer.pace))
        if self.pause_at is not None and self.pause_at > step:
            most = min(most, self.pause_at - step)
        return next(
            (
                n
                for n in range(1, most)
                if self.history.wants_weights(step + n) or self.history.wants_state(step + n)
            ),
            most,
        )

    def idle_for(self) -> float:
        """Return the seconds to wait for a command before the next step; 0 at full speed."""
        if self.paused and not self.steps_to_go:
            return 0.0 if self.sliced else LISTEN_FOR
        return max(0.0, min(LISTEN_FOR, self.step_again_at - time.monotonic()))

    def give_back_in_time(self) -> None:
        """Exit a ZeroGPU slice when paused, or at the time limit after at least one step."""
        if self.paused and not self.steps_to_go:
            self.leave("paused")
        elif time.monotonic() > self.until and self.trainer.step_count > self.came_at:
            self.leave("waiting")

    def speed(self) -> float:
        """Return the current maximum of steps per second; 0 for no maximum."""
        due = [
            c.value
            for c in self.trainer.changes
            if c.setting == "speed" and c.step <= self.trainer.step_count
        ]
        return due[-1] if due else 0.0

    def record(self) -> None:
        """Save and send the data that are due after a step."""
        step, now = self.trainer.step_count, time.monotonic()
        state = self.history.wants_state(step)
        shown = self.watched and (now > self.look_again_at or 0 < self.speed() <= EVERY_STEP)
        if state or shown or self.paused or self.history.wants_weights(step):
            self.look(keep=state)
        if state:
            self.history.put_state(step, pack(self.trainer.state()))
        if self.paused or now - self.told_at > TELL_EVERY:
            self.tell_points()
        if now > self.save_again_at:
            self.save()

    def finish(self, status: str, sentence: str) -> bool:
        """Evaluate, save and report the end of the run.

        Returns:
            False if it could not be saved and the server is still there to report that.
        """
        scores = self.trainer.evaluate() if status == "done" else None
        saved = (
            self.guard(self.tell_points)
            and self.guard(self.look)
            and self.guard(lambda: self.save(scores))
        )
        if not saved and self.sliced:
            status, sentence = "paused", self.trouble
        elif not saved and not self.orphaned:
            return False
        self.tell("ended", status, sentence, dataclasses.asdict(scores) if scores else None)
        return True

    # Commands

    def listen(self, seconds: float) -> None:
        """Handle the received commands; wait up to `seconds` for the first one."""
        try:
            while not self.leaving and self.pipe.poll(seconds):
                self.obey(*self.pipe.recv())
                seconds = 0.0
        except (EOFError, OSError):
            self.orphaned = True
            self.leave("paused")

    def obey(self, kind: str, *arguments: Any) -> None:
        """Handle one command."""
        if kind == "pause" and not self.paused:
            self.pause()
        elif kind == "resume" and self.paused:
            self.paused, self.steps_to_go, self.step_again_at = False, 0, 0.0
            self.tell("status", "training")
        elif kind == "step" and self.paused:
            self.steps_to_go += int(arguments[0])
        elif kind in ("stop", "park"):
            self.leave("stopped" if kind == "stop" else "paused")
        elif kind == "keep":
            self.guard(lambda: self.save(keep=True))
        elif kind == "watch":
            self.watched = bool(arguments[0])
            if self.watched:
                self.guard(self.look)
        elif kind == "change":
            try:
                self.trainer.change(arguments[0], arguments[1], self.pause_at)
            except SettingError as error:
                self.tell("trouble", str(error))
            self.step_again_at = 0.0
            self.tell_changes()

    def pause(self) -> None:
        """Pause, and save weights and a checkpoint."""
        # The points come first, so that no page shows the pause at an earlier step.
        self.guard(self.tell_points)
        self.hold()
        self.guard(self.look)
        self.guard(self.save)

    def hold(self) -> None:
        """Pause without saving."""
        self.paused, self.steps_to_go = True, 0
        self.tell("status", "paused")

    def leave(self, status: str) -> None:
        """Exit after the current step. Safe in a signal handler."""
        self.leaving = self.leaving or status

    # Saving and messages

    def guard(self, write: Any) -> bool:
        """Call a function that writes; if it fails, pause and report the reason.

        The data stay in memory.

        Returns:
            whether the write succeeded.
        """
        try:
            write()
        except (OSError, CheckpointError) as error:
            said = (
                str(error)
                if isinstance(error, CheckpointError)
                else f"could not write {self.folder}: {error.strerror or error}"
            )
            cause = error.__cause__ if isinstance(error, CheckpointError) else error
            do = (
                "make its folder writable"
                if isinstance(cause, OSError) and is_closed(cause)
                else "free disk space"
            )
            self.trouble = f"{said}; the run is paused: {do} and resume"
            self.tell("trouble", self.trouble)
            if not self.paused:
                self.hold()
            return False
        return True

    def look(self, keep: bool = False) -> None:
        """Save the weights for the live view.

        The next save is delayed so that saving takes at most 1 % of the time, whatever the size.
        """
        step, started = self.trainer.step_count, time.monotonic()
        self.history.put_weights(step, self.weights(), keep)
        now = time.monotonic()
        self.look_again_at = now + max(LOOK_EVERY, 100 * (now - started))
        self.tell_history()

    def tell_history(self) -> None:
        """Send the steps with stored weights, if they have changed."""
        kept = self.history.kept()
        if kept != self.kept_told:
            self.kept_told = kept
            self.tell("history", kept, kept[-1] if kept else None)

    def tell_points(self) -> None:
        """Send the new metrics and the training time, and append the metrics to the history."""
        lines = [as_line(metrics) for metrics in self.untold]
        self.untold, self.told_at = [], time.monotonic()
        self.tell("points", lines)
        self.count()
        self.tell("active", self.active)
        self.history.add(lines)

    def save(self, scores: Evaluation | None = None, keep: bool = False) -> None:
        """Write a checkpoint of this step, then delete the oldest ones.

        Args:
            scores: the final evaluation, if there is one.
            keep: whether the owner requested it, so that it is not deleted automatically.
        """
        step, started = self.trainer.step_count, time.monotonic()
        as_it_is = (step, list(self.trainer.changes), keep)
        if scores is not None or as_it_is != self.saved_as:
            self.tell_points()
            self.history.flush()
            name = f"{step:07d}{KEPT if keep else ''}"
            save_checkpoint(self.folder / "checkpoints" / name, self.trainer, None, scores)
            self.saved_as = as_it_is
            own = sorted(
                (
                    path
                    for path in (self.folder / "checkpoints").glob("[0-9]*")
                    if not path.name.endswith(KEPT)
                ),
                key=_step_of,
            )
            older = [path for path in own if _step_of(path) <= step]
            given_up = own[len(older) :]  # damaged ones; their steps are trained again
            for path in [*given_up, *older[:-GENERATIONS]]:
                with suppress(OSError):
                    remove_folder(path)
            self.tell("saved", step)
        now = time.monotonic()
        self.save_again_at = now + max(SAVE_EVERY, 50 * (now - started))
        if self.trouble:
            self.trouble = ""
            self.tell("trouble", "")

    def tell_changes(self) -> None:
        """Send all changes of settings."""
        self.tell("changes", [change.to_list() for change in self.trainer.changes])

    def tell(self, *message: Any) -> None:
        _tell(self.pipe, message)


def _step_of(path: Path) -> int:
    digits = path.name.split(".")[0].removesuffix(KEPT)
    return int(digits) if digits.isdigit() else -1
