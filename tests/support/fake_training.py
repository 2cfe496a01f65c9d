"""Training processes without training: a test sets the steps, the scores and the end of a run."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace

from playground.checkpoints.manifest import Manifest
from playground.runs.worker_protocol import DIVERGED_MESSAGE
from playground.training.config import RunConfig

SECONDS_PER_STEP = 0.5


class FakeTraining:
    """The `WorkerProcess` of a run. It handles a command in `obey` only."""

    def __init__(self, started, entry, name, spec, *, on_message, on_exit):
        self.folder, self.config = Path(spec.folder), RunConfig.from_flat(spec.config)
        self._on_message, self._on_exit = on_message, on_exit
        self.exited, self.process = threading.Event(), SimpleNamespace(pid=None)
        self.commands, self.step, self.is_training = [], 0, False
        started.append(self)

    def send(self, *command):
        self.commands.append(command[0])
        return not self.exited.is_set()

    def kill(self):
        """Save first if the server has requested it, and end."""
        if "park" in self.commands:
            self.obey()
        elif not self.exited.is_set():
            self._exit(-9)

    def train(self, step, exact_match=0.0):
        """Continue from the newest checkpoint up to a step; all evaluations have one score."""
        if not self.is_training:
            self.is_training = True
            saved = sorted((self.folder / "checkpoints").glob("[0-9]*"))
            self.step = int(saved[-1].name) if saved else 0
            self._on_message("started", self.step, "cpu")
            self._on_message("status", "training")
        points = [
            {"step": at, "loss": 1.0, "seconds": SECONDS_PER_STEP * at}
            for at in range(self.step + 1, step + 1)
        ]
        training = self.config.training
        for point in points:
            if point["step"] % training.eval_every == 0:
                point |= {"exact_match": exact_match, "eval_size": training.eval_size}
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps(point) + "\n" for point in points)
        self.step = step
        self._on_message("points", points)

    def finish(self, exact_match=0.5):
        """Train to the last step."""
        self.train(self.config.training.max_steps, exact_match)
        scores = {"n": self.config.training.eval_size, "exact_match": exact_match}
        scores |= {"token_accuracy": exact_match, "by_length": []}
        self._save(scores)
        self._end("done", "", scores)

    def diverge(self):
        self.train(1)
        self._end("failed", f"{DIVERGED_MESSAGE} at step 1", None)

    def obey(self):
        """Carry out a command to stop or to park: save, and end."""
        assert {"stop", "park"} & {*self.commands}
        self.train(self.step)
        self._save(None)
        self._end("stopped" if "stop" in self.commands else "paused", "", None)

    def _save(self, scores):
        folder = self.folder / "checkpoints" / f"{self.step:07d}"
        folder.mkdir(parents=True, exist_ok=True)
        manifest = Manifest(self.config, self.step, SECONDS_PER_STEP * self.step, "cpu", scores)
        (folder / "config.json").write_text(manifest.to_json())
        (folder / "training.safetensors").touch()
        self._on_message("saved", self.step)

    def _end(self, *last):
        self._on_message("ended", *last)
        self._exit(0)

    def _exit(self, code):
        self._on_exit(code)
        self.exited.set()


class FakeTrainings(list):
    """The training processes that were started, oldest first."""

    @property
    def active(self):
        return [each for each in self if not each.exited.is_set()]

    def finish_all(self, exact_match=0.5):
        """Finish every run, also those that start meanwhile."""
        for each in self:
            if not each.exited.is_set():
                each.finish(exact_match)


def fake_trainings(monkeypatch):
    """Replace the training processes of all registries; return those that were started."""
    started = FakeTrainings()
    monkeypatch.setattr(
        "playground.runs.supervisor.WorkerProcess",
        lambda *arguments, **options: FakeTraining(started, *arguments, **options),
    )
    return started
