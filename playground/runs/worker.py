"""One run in a process of its own: trains, listens, tells.

Up the pipe go commands, down the pipe come messages; both are tuples that begin with their kind.

    commands   ("pause",) ("resume",) ("step", n) ("stop",) ("ask", number, text)
    messages   ("stage", dict) ("points", [dict]) ("snapshot", dict) ("status", name)
               ("answer", number, dict) ("ended", status, sentence, scores or None)

A worker whose parent has gone saves and ends. It never prints.
"""

from __future__ import annotations

import dataclasses
import signal
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from playground.evaluation import Evaluation
from playground.training.checkpoint import as_line, load_trainer, save_checkpoint
from playground.training.config import RunConfig
from playground.training.manifest import CheckpointError
from playground.training.trainer import Trainer, TrainingDiverged

from .view import View

TELL_EVERY = 0.1  # seconds between two messages with points
LOOK_EVERY = 0.2  # seconds between two snapshots


def work(pipe: Connection, fields: dict[str, Any], folder: str, resume: bool = False) -> None:
    """The entry of a worker process: run `fields` and keep its checkpoint in `folder`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    worker = None
    try:
        worker = Worker(pipe, RunConfig.from_fields(fields), Path(folder), resume)
        worker.run()
    except TrainingDiverged as error:
        worker.end("failed", str(error)) if worker else None
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


def _tell(pipe: Connection, message: tuple[Any, ...]) -> bool:
    try:
        pipe.send(message)
        return True
    except OSError:  # the parent has gone; `Worker.listen` notices
        return False


class Worker:
    def __init__(self, pipe: Connection, config: RunConfig, folder: Path, resume: bool) -> None:
        self.pipe, self.folder = pipe, folder
        self.metrics: list[Any] = []
        if resume:
            self.trainer, self.metrics = load_trainer(folder)
        else:
            self.trainer = Trainer(config)
        self.view = View(self.trainer.task, config.task, self.trainer.device)
        self.paused = False
        self.steps_to_go = 0  # single steps asked for while paused
        self.stopping = False
        self.told, self.told_at, self.looked_at = len(self.metrics), 0.0, 0.0

    def run(self) -> None:
        """Train until the run has ended or is told to end; then score, save and say so."""
        _tell(self.pipe, ("stage", self.view.stage(self.trainer.family) | {"device": self.trainer.device.type}))
        self.look()
        _tell(self.pipe, ("status", "training"))
        while self.trainer.should_continue() and not self.stopping:
            waiting = self.paused and not self.steps_to_go
            self.listen(wait=waiting)
            if self.stopping or (self.paused and not self.steps_to_go):
                continue
            self.metrics.append(self.trainer.step())
            self.steps_to_go = max(0, self.steps_to_go - 1)
            now = time.monotonic()
            if self.paused or now - self.looked_at > LOOK_EVERY:
                self.look()
            if self.paused or now - self.told_at > TELL_EVERY:
                self.tell_points()
        if self.stopping:
            self.end("stopped", f"stopped at step {self.trainer.step_count}")
        else:
            self.look()
            self.end("done", "", self.trainer.evaluate())

    def listen(self, wait: bool) -> None:
        """Carry out what has come up the pipe; with `wait`, sleep until something has."""
        try:
            while self.pipe.poll(None if wait else 0):
                self.obey(*self.pipe.recv())
                wait = False
        except (EOFError, OSError):
            self.stopping = True

    def obey(self, kind: str, *arguments: Any) -> None:
        if kind == "pause" and not self.paused:
            self.paused = True
            self.look()
            self.tell_points()
            self.save(None)
            _tell(self.pipe, ("status", "paused"))
        elif kind == "resume" and self.paused:
            self.paused, self.steps_to_go = False, 0
            _tell(self.pipe, ("status", "training"))
        elif kind == "step" and self.paused:
            self.steps_to_go += int(arguments[0])
        elif kind == "stop":
            self.stopping = True
        elif kind == "ask":
            number, text = arguments
            _tell(self.pipe, ("answer", number, self.view.answer(self.trainer.family, text)))

    def look(self) -> None:
        _tell(self.pipe, ("snapshot", self.view.snapshot(self.trainer.family, self.trainer.step_count)))
        self.looked_at = time.monotonic()

    def tell_points(self) -> None:
        _tell(self.pipe, ("points", [as_line(m) for m in self.metrics[self.told :]]))
        self.told, self.told_at = len(self.metrics), time.monotonic()

    def save(self, scores: Evaluation | None) -> None:
        save_checkpoint(self.folder, self.trainer, self.metrics, scores)

    def end(self, status: str, sentence: str, scores: Evaluation | None = None) -> None:
        self.tell_points()
        self.save(scores)
        _tell(self.pipe, ("ended", status, sentence, dataclasses.asdict(scores) if scores else None))
