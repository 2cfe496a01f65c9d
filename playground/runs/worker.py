"""One run in a process of its own: trains, listens, tells.

Up the pipe go commands, down the pipe come messages; both are tuples that begin with their kind.

    commands   ("pause",) ("resume",) ("step", n) ("stop",) ("ask", number, text)
    messages   ("stage", dict) ("points", [dict]) ("snapshot", dict) ("status", name) ("trouble", sentence)
               ("answer", number, dict) ("ended", status, sentence, scores or None)

A worker whose parent has gone, or that is told to end by a signal, saves and ends. It never prints.
"""

from __future__ import annotations

import dataclasses
import signal
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from playground.evaluation import Evaluation
from playground.training.checkpoint import as_line, load_trainer, save_checkpoint
from playground.training.config import RunConfig
from playground.training.manifest import CheckpointError
from playground.training.trainer import Metrics, Trainer, TrainingDiverged

from .view import View

TELL_EVERY = 0.1  # seconds between two messages with points
LOOK_EVERY = 0.2  # seconds between two snapshots, more where a snapshot is slow
SAVE_EVERY = 15.0  # seconds between two checkpoints of a run that goes on
LISTEN_FOR = 0.5  # seconds that a paused worker waits before it looks for signals again


def work(pipe: Connection, fields: dict[str, Any], folder: str, resume: bool = False) -> None:
    """The entry of a worker process: run `fields` and keep its checkpoint in `folder`."""
    worker: Worker | None = None

    def end(number: int, frame: FrameType | None) -> None:
        if worker is None:
            raise SystemExit(0)
        worker.stopping = True

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    signal.signal(signal.SIGTERM, end)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, end)
    try:
        worker = Worker(pipe, RunConfig.from_fields(fields), Path(folder), resume)
        worker.run()
    except torch.OutOfMemoryError as error:
        _tell(pipe, ("ended", "failed", f"out of memory ({str(error)[:200]}); use a smaller batch_size, d_model or max_length", None))
    except (CheckpointError, ValueError) as error:
        _tell(pipe, ("ended", "failed", str(error), None))
    except Exception as error:  # the process ends here either way; its last words must reach the page
        where = traceback.extract_tb(error.__traceback__)[-1]
        sentence = f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"
        _tell(pipe, ("ended", "failed", sentence, None))
    finally:
        pipe.close()


def _tell(pipe: Connection, message: tuple[Any, ...]) -> None:
    with suppress(OSError):  # the parent has gone; `Worker.listen` notices
        pipe.send(message)


class Worker:
    """The loop of a run: a Trainer, what the page wants to see of it, and the commands that come in between two steps."""

    def __init__(self, pipe: Connection, config: RunConfig, folder: Path, resume: bool) -> None:
        self.pipe, self.folder = pipe, folder
        self.metrics: list[Metrics | dict[str, Any]] = []
        if resume:
            earlier: list[dict[str, Any]]
            self.trainer, earlier = load_trainer(folder)
            self.metrics += earlier
        else:
            self.trainer = Trainer(config)
        self.view = View(self.trainer.task, config, self.trainer.device)
        self.paused = False
        self.steps_to_go = 0  # single steps asked for while paused
        self.stopping = False
        self.orphaned = False  # the parent has gone
        self.troubled = False  # the last save failed
        self.told, self.told_at = len(self.metrics), 0.0
        self.look_again_at, self.save_again_at = 0.0, time.monotonic() + SAVE_EVERY

    def run(self) -> None:
        """Train until the run has ended or is told to end; then score, save and say so."""
        self.tell("stage", self.view.stage(self.trainer.family) | {"device": self.trainer.device.type})
        self.look()
        self.tell("status", "training")
        while not self.finish(*self.train()):
            # Nothing is lost: the weights wait in memory until the visitor has made room and resumes or stops again.
            self.paused, self.stopping = True, False
            self.tell("status", "paused")
            while self.paused and not self.stopping:
                self.listen(wait=True)

    def train(self) -> tuple[str, str]:
        """Step, listen and tell until there is nothing left to do. Returns how it ended, and the sentence about it."""
        while self.trainer.should_continue() and not self.stopping:
            waiting = self.paused and not self.steps_to_go
            self.listen(wait=waiting)
            if self.stopping or (self.paused and not self.steps_to_go):
                continue
            try:
                self.metrics.append(self.trainer.step())
            except TrainingDiverged as error:
                return "failed", str(error)
            self.steps_to_go = max(0, self.steps_to_go - 1)
            now = time.monotonic()
            if self.paused or now > self.look_again_at:
                self.look()
            if self.paused or now - self.told_at > TELL_EVERY:
                self.tell_points()
            if now > self.save_again_at:
                self.save()
        if self.stopping:
            return "stopped", f"stopped at step {self.trainer.step_count}"
        return "done", ""

    def finish(self, status: str, sentence: str) -> bool:
        """Save and say how the run ended; False when it could not be saved and somebody is there to be told."""
        scores = None
        if status == "done":
            self.look()
            scores = self.trainer.evaluate()
        self.tell_points()
        if not self.save(scores) and not self.orphaned:
            return False
        self.tell("ended", status, sentence, dataclasses.asdict(scores) if scores else None)
        return True

    def listen(self, wait: bool) -> None:
        """Carry out what has come up the pipe; with `wait`, until something has come or a signal wants the run to end."""
        try:
            while not self.stopping and self.pipe.poll(LISTEN_FOR if wait else 0):
                self.obey(*self.pipe.recv())
                wait = False
        except (EOFError, OSError):
            self.stopping = self.orphaned = True

    def obey(self, kind: str, *arguments: Any) -> None:
        if kind == "pause" and not self.paused:
            self.paused = True
            self.look()
            self.tell_points()
            self.tell("status", "paused")
            self.save()
        elif kind == "resume" and self.paused:
            self.paused, self.steps_to_go = False, 0
            self.tell("status", "training")
        elif kind == "step" and self.paused:
            self.steps_to_go += int(arguments[0])
        elif kind == "stop":
            self.stopping = True
        elif kind == "ask":
            number, text = arguments
            self.tell("answer", number, self.view.answer(self.trainer.family, text))

    def look(self) -> None:
        """Tell what the model looks like now. It may take a tenth of the time, whatever the model's size."""
        started = time.monotonic()
        self.tell("snapshot", self.view.snapshot(self.trainer.family, self.trainer.step_count))
        now = time.monotonic()
        self.look_again_at = now + max(LOOK_EVERY, 10 * (now - started))

    def tell_points(self) -> None:
        self.tell("points", [as_line(m) for m in self.metrics[self.told :]])
        self.told, self.told_at = len(self.metrics), time.monotonic()

    def save(self, scores: Evaluation | None = None) -> bool:
        """Write the checkpoint; when that fails, say why, keep everything in memory and go on."""
        started = time.monotonic()
        try:
            save_checkpoint(self.folder, self.trainer, self.metrics, scores)
        except CheckpointError as error:
            self.troubled = True
            self.tell("trouble", str(error))
            return False
        finally:
            now = time.monotonic()
            self.save_again_at = now + max(SAVE_EVERY, 50 * (now - started))
        if self.troubled:
            self.troubled = False
            self.tell("trouble", "")
        return True

    def tell(self, *message: Any) -> None:
        _tell(self.pipe, message)
