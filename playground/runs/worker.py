"""One run in a process of its own: trains, listens, tells, and keeps everything on disk. It computes nothing for those who
watch: it leaves its weights in the run's history and says so, and another process looks at them (inspector.py).

Down the pipe come commands, up go messages; both are tuples that begin with their kind.

    commands   ("pause",) ("resume",) ("step", n) ("stop",) ("park",) ("keep",) ("watch", yes) ("change", setting, value)
    messages   ("began", step, device) ("points", [dict]) ("history", [steps], latest step) ("status", name) ("saved", step)
               ("changes", [[step, setting, value]]) ("trouble", sentence) ("active", seconds of training, pauses left out)
               ("ended", status, sentence, scores or None)

A worker whose parent has gone, or that is told to end by a signal, saves and ends; the run can be resumed. It never prints.
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
LOOK_EVERY = 0.2  # seconds between two weights for those who watch, more where writing them is slow
EVERY_STEP = 20  # steps a second up to which slow motion shows every single one
FIRST_SAVE = 2.0  # seconds until the first checkpoint of a worker
SAVE_EVERY = 15.0  # seconds between two checkpoints of a run that goes on
LISTEN_EVERY = 0.05  # seconds of steps in a row after which a GPU's worker listens again
LISTEN_FOR = 0.5  # seconds that a paused worker waits before it looks for signals again
GENERATIONS = 2  # checkpoints that stay, beside those that the owner keeps
ALIVE_EVERY = 1.0  # seconds after which a worker that does not wait for its owner says a word
LOCKED_FOR = 20.0  # seconds to wait for a worker of an earlier server that is still saving
OUT_OF_MEMORY = "out of memory ({}); use a smaller batch_size, d_model or max_length"


def work(pipe: Connection, order: Order) -> None:
    """The entry of a worker process."""
    worker: Worker | None = None

    def end(number: int, frame: FrameType | None) -> None:
        if worker is None:
            raise SystemExit(0)
        worker.leave("paused")

    if hasattr(os, "nice"):
        os.nice(10)  # where training takes every core, the page must still answer
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent decides what it means
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
    """Do what is ordered, and say how it ended, whatever happens. In a process of its own, or in one that is lent (zero.py)."""
    try:
        folder = Path(order.folder)
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock", timeout=LOCKED_FOR):
            worker = Worker(pipe, order)
            begun(worker)
            worker.run()
    except (torch.OutOfMemoryError, MemoryError) as error:
        _tell(
            pipe,
            ("ended", "failed", OUT_OF_MEMORY.format(str(error)[:200] or "no memory left"), None),
        )
    except filelock.Timeout:
        _tell(
            pipe,
            ("ended", "failed", "another process is training this run; end that one first", None),
        )
    except (CheckpointError, ValueError) as error:
        _tell(pipe, ("ended", "failed", str(error), None))
    except OSError as error:
        _tell(
            pipe,
            ("ended", "failed", f"{error.filename or folder}: {error.strerror or error}", None),
        )
    except (
        Exception
    ) as error:  # the process ends here either way; its last words must reach the page
        if isinstance(error, RuntimeError) and "allocate memory" in str(
            error
        ):  # how torch says it of the processor's memory
            _tell(
                pipe,
                ("ended", "failed", OUT_OF_MEMORY.format(str(error).split(": ")[-1][:200]), None),
            )
            return
        log.exception("the training of %s failed", Path(order.folder).name)
        where = traceback.extract_tb(error.__traceback__)[-1]
        sentence = (
            f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"
        )
        _tell(pipe, ("ended", "failed", sentence, None))
    finally:
        pipe.close()


def _tell(pipe: Connection, message: tuple[Any, ...]) -> None:
    with suppress(OSError):  # the parent has gone; `Worker.listen` notices
        pipe.send(message)


class Worker:
    """The loop of a run: a Trainer, its history, and the commands that come in between two steps."""

    def __init__(self, pipe: Connection, order: Order) -> None:
        self.pipe, self.folder = pipe, Path(order.folder)
        self.history = History(self.folder)
        self.trouble = ""  # what could not be written
        self.trainer, note, fresh = self.begin(order)
        self.weights = WeightsPacker(self.trainer.family)
        self.threads = ThreadChoice(self.trainer)
        # A branch waits where it leaves the run that it comes from, once.
        arrives_at = order.origin[1] if order.origin else -1
        self.pause_at = arrives_at if fresh or self.trainer.step_count < arrives_at else None
        self.paused = order.begin == "step" or self.pause_at == self.trainer.step_count
        self.steps_to_go = int(order.begin == "step")  # single steps asked for while paused
        self.sliced = order.seconds > 0  # on a GPU that is lent for so long
        self.until = time.monotonic() + order.seconds if self.sliced else math.inf
        self.came_at = self.trainer.step_count
        self.leaving = ""  # the status to end with, once it is to end
        self.orphaned = False  # the parent has gone
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
        """The trainer where it is to go on, the history cut to that step; what should be known about it; whether it is new.

        Raises:
            CheckpointError: when there are checkpoints and none of them, nor a state of the history, can be used.
        """
        config, changes = RunConfig.from_fields(order.fields), Change.read(order.changes)
        most_threads = order.threads or MOST_THREADS
        checkpoints, note, damaged = self.folder / "checkpoints", "", []
        sweep(checkpoints)
        for path in sorted(checkpoints.glob("[0-9]*"), key=_step_of, reverse=True):
            try:
                trainer, _ = load_trainer(path, most_threads=most_threads)
            except CheckpointError as error:
                note = note or f"{error}. An earlier one was taken"
                damaged.append(path)
                continue
            known = {(change.step, change.setting) for change in changes}
            # Those of the checkpoint count, too, as far as they are past: the server may have been killed before it heard of them.
            past = [change for change in trainer.changes if change.step <= trainer.step_count]
            own = [change for change in past if (change.step, change.setting) not in known]
            trainer.changes = sorted([*changes, *own], key=lambda change: change.step)
            self.history.open(trainer.step_count)
            for odd in damaged:  # out of the way of good ones, but not thrown away
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
        """Put the trainer at the last step, up to `step`, where the other run's state was kept, and take over its history
        until there. What lies between is trained again, to the bit. Returns the metrics so far."""
        parent = Path(origin)
        lines = [line for line in read_lines(parent) if line["step"] <= step]
        # A run that goes on writes its weights a moment before its metrics.
        at = self.restore_until(trainer, parent, lines[-1]["step"] if lines else step)
        if at is None:
            return []
        (self.folder / "history").mkdir(parents=True, exist_ok=True)
        for path in (parent / "history").glob("*.safetensors"):
            if 0 <= _step_of(path) <= at:
                with suppress(OSError):  # thinned away meanwhile
                    os.link(path, self.folder / "history" / path.name)
        lines = [line for line in lines if line["step"] <= at]
        trainer.seconds = lines[-1].get("seconds", 0.0) if lines else 0.0
        trainer.reopen()
        return lines

    def restore_until(self, trainer: Trainer, run: Path, step: int) -> int | None:
        """Put the trainer at the last step, up to `step`, of which the run keeps everything; None when there is none."""
        states = [(s, weights_path(run, s), state_path(run, s)) for s in kept_states(run)]
        saved = (run / "checkpoints").glob("[0-9]*")
        states += [
            (_step_of(path), path / "model.safetensors", path / "training.safetensors")
            for path in saved
        ]
        for at, weights, state in sorted(states, reverse=True):
            for device in (
                sorted(("cpu", "cuda"), key=lambda each: each != trainer.device.type)
                if at <= step
                else ()
            ):  # the run may have moved
                with suppress(CheckpointError):  # an earlier one does as well
                    restore(trainer, weights, state, at, device)
                    return at
        return None

    # The loop

    def run(self) -> None:
        """Train until the run has ended or is told to end; then score, save and say so."""
        self.tell("began", self.trainer.step_count, self.trainer.device.type)
        self.tell_changes()
        self.guard(self.look)
        self.tell("status", "paused" if self.paused else "training")
        while not self.finish(*self.train()):
            # Nothing is lost: the weights wait in memory until the visitor has made room and resumes or stops again.
            self.leaving = ""
            self.hold()
            while self.paused and not self.leaving:
                self.listen(LISTEN_FOR)

    def train(self) -> tuple[str, str]:
        """Step, listen and tell until there is nothing left to do. Returns how it ended, and the sentence about it."""
        while self.trainer.should_continue() and not self.leaving:
            self.listen(self.idle_for())
            self.count()
            if time.monotonic() - self.told_at > ALIVE_EVERY and not self.paused:
                self.guard(
                    self.tell_points
                )  # in very slow motion too, the server hears that this is alive
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
        """Add to the seconds of training what has passed since the last time, unless the run was paused then."""
        now = time.monotonic()
        self.active += self.counting * (now - self.counted_at)
        self.counted_at, self.counting = now, not self.paused or self.steps_to_go > 0

    def most(self) -> int:
        """Steps to take before commands, clock and history are looked at again: more than one only where a GPU takes them in a row."""
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
        """Seconds to wait for a command before the next step is due; 0 at full speed."""
        if self.paused and not self.steps_to_go:
            return 0.0 if self.sliced else LISTEN_FOR
        return max(0.0, min(LISTEN_FOR, self.step_again_at - time.monotonic()))

    def give_back_in_time(self) -> None:
        """Leave a GPU that is lent: rather than wait on it, and when the time is over, but not without having taken a step."""
        if self.paused and not self.steps_to_go:
            self.leave("paused")
        elif time.monotonic() > self.until and self.trainer.step_count > self.came_at:
            self.leave("waiting")

    def speed(self) -> float:
        """The most steps a second that the visitor wants now; 0 for as many as can be."""
        due = [
            c.value
            for c in self.trainer.changes
            if c.setting == "speed" and c.step <= self.trainer.step_count
        ]
        return due[-1] if due else 0.0

    def record(self) -> None:
        """Keep and tell what is due after a step."""
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
        """Save and say how the run ended; False when it could not be saved and somebody is there to be told."""
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
        """Carry out what has come down the pipe; wait so long for the first."""
        try:
            while not self.leaving and self.pipe.poll(seconds):
                self.obey(*self.pipe.recv())
                seconds = 0.0
        except (EOFError, OSError):
            self.orphaned = True
            self.leave("paused")

    def obey(self, kind: str, *arguments: Any) -> None:
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
        self.guard(
            self.tell_points
        )  # first, so that nobody sees it paused at an earlier step than it is
        self.hold()
        self.guard(self.look)
        self.guard(self.save)

    def hold(self) -> None:
        self.paused, self.steps_to_go = True, 0
        self.tell("status", "paused")

    def leave(self, status: str) -> None:
        """End as soon as the step at hand is over. Safe in a signal's handler."""
        self.leaving = self.leaving or status

    # What is kept and told

    def guard(self, write: Any) -> bool:
        """Write something; where the disk does not take it, pause, say why, and keep everything in memory."""
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
                else "make room on the disk"
            )
            self.trouble = f"{said}; the run waits, {do} and resume"
            self.tell("trouble", self.trouble)
            if not self.paused:
                self.hold()
            return False
        return True

    def look(self, keep: bool = False) -> None:
        """Leave the weights where those who watch can look at them. It may take a hundredth of the time, whatever they weigh."""
        step, started = self.trainer.step_count, time.monotonic()
        self.history.put_weights(step, self.weights(), keep)
        now = time.monotonic()
        self.look_again_at = now + max(LOOK_EVERY, 100 * (now - started))
        self.tell_history()

    def tell_history(self) -> None:
        kept = self.history.kept()
        if kept != self.kept_told:
            self.kept_told = kept
            self.tell("history", kept, kept[-1] if kept else None)

    def tell_points(self) -> None:
        lines = [as_line(metrics) for metrics in self.untold]
        self.untold, self.told_at = [], time.monotonic()
        self.tell("points", lines)
        self.count()
        self.tell("active", self.active)
        self.history.add(lines)

    def save(self, scores: Evaluation | None = None, keep: bool = False) -> None:
        """Write the checkpoint of this step, then let go of the oldest ones."""
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
            given_up = own[len(older) :]  # damaged ones, of steps that are being trained again
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
        self.tell("changes", [change.to_list() for change in self.trainer.changes])

    def tell(self, *message: Any) -> None:
        _tell(self.pipe, message)


def _step_of(path: Path) -> int:
    digits = path.name.split(".")[0].removesuffix(KEPT)
    return int(digits) if digits.isdigit() else -1
