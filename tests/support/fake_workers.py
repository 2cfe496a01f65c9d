"""Fake workers of runs and a clock, which only the test advances: no process, no training.

A fake worker answers commands as `playground/runs/training_worker.py` does, when the test calls
`FakeWorkers.deliver` or waits for its exit. It writes real metrics and records, but no tensors.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

from playground.checkpoints.manifest import Manifest, read_manifest
from playground.checkpoints.metrics import read_metrics
from playground.runs import registry, state, supervisor
from playground.runs.snapshots import InspectorClient
from playground.runs.weight_history import WeightHistory, state_steps
from playground.runs.worker_checkpoints import remove_old_checkpoints
from playground.runs.worker_protocol import DIVERGED_MESSAGE, PINNED_SUFFIX, WorkerSpec
from playground.training.run_config import RunConfig
from playground.training.setting_changes import SettingChange, add_change, config_at_step

CLOCKED_MODULES = "commands record registry scheduler snapshots state storage_quota supervisor"
SCORES = {"n": 2000, "exact_match": 0.5, "token_accuracy": 0.75, "by_length": []}
WEIGHTS = b"w" * 1000
SECONDS_PER_STEP = 0.1
DELIVERY_TIMEOUT_S = 20.0  # real seconds


class FakeTime:
    """Replaces the module `time`; each reading is a little later than the one before."""

    def __init__(self) -> None:
        self.now, self.jump = 1000.0, 1e9

    def monotonic(self) -> float:
        self.now += 1e-4
        return self.now

    def time(self) -> float:
        return self.monotonic() + self.jump

    def advance(self, seconds: float) -> None:
        self.now += seconds


class _Exit(threading.Event):
    """The exit of a worker; waiting for it delivers the messages of the worker.

    Another thread delivers them, as in the server. So a test fails if the code that waits holds a
    lock that the messages need.
    """

    def __init__(self, worker: FakeWorker) -> None:
        super().__init__()
        self.worker = worker

    def wait(self, timeout: float | None = None) -> bool:
        delivered: Future = Future()

        def deliver() -> None:
            try:
                delivered.set_result(self.worker.deliver_all())
            except BaseException as error:
                delivered.set_exception(error)

        thread = threading.Thread(target=deliver, name="delivery", daemon=True)
        thread.start()
        thread.join(DELIVERY_TIMEOUT_S)
        assert not thread.is_alive(), (
            f"the messages of a worker were not handled within {DELIVERY_TIMEOUT_S:g} s: the code "
            "that waits for its exit probably holds a lock that their handler needs"
        )
        delivered.result()
        return self.is_set()


class FakeWorker:
    """A `WorkerProcess` that trains a run: each step has the loss 1 / step."""

    def __init__(self, entry, name, spec: WorkerSpec, *, on_message, on_exit) -> None:
        self.spec, self.folder = spec, Path(spec.folder)
        self._on_message, self._on_exit = on_message, on_exit
        self.exited, self.process = _Exit(self), SimpleNamespace(pid=None)
        self.commands: deque[tuple] = deque()
        self.is_killed = False
        self.is_hung = False  # it neither starts nor handles commands
        self.lingers = False  # its process does not exit after its last message
        self.is_paused, self.has_ended, self.step = False, False, 0
        self.viewer_active = True
        self.evaluated, self.scores = 0.25, SCORES  # the exact match of evaluations; at the end

    def send(self, *message) -> bool:
        if self.exited.is_set():
            return False
        self.commands.append(message)
        return True

    def kill(self) -> None:
        self.is_killed = True

    def deliver(self) -> bool:
        """Start, handle the next command, or end; return whether anything happened."""
        if self.exited.is_set() or not (self.is_killed or self._is_due()):
            return False
        if self.is_killed:
            self.exit(-9)
        elif self.process.pid is None:
            self._start()
        else:
            self._handle(*self.commands.popleft())
        return True

    def deliver_all(self) -> None:
        """Start, and handle every command."""
        while self.deliver():
            pass

    def _is_due(self) -> bool:
        if self.is_hung or self.has_ended:
            return False
        return bool(self.process.pid is None or self.commands)

    @property
    def idle_reason(self) -> str:
        """The reason why the worker does not train; empty if it trains."""
        reasons = {
            "is hung": self.is_hung,
            "was killed": self.is_killed,
            "has exited": self.exited.is_set(),
            "has ended": self.has_ended,
            "has not started": self.process.pid is None,
            "is paused": self.is_paused,
        }
        return next((reason for reason, applies in reasons.items() if applies), "")

    def exit(self, code: int) -> None:
        self._on_exit(code)
        self.exited.set()

    def _start(self) -> None:
        self.process.pid = 1
        self.config = RunConfig.from_flat(self.spec.config)
        self.changes = SettingChange.parse(self.spec.changes)
        self.trained_seconds = self.spec.trained_seconds
        self.step, lines, branch_step = 0, [], -1
        manifests = [read_manifest(path) for path in (self.folder / "checkpoints").glob("[0-9]*")]
        if manifests:
            self.step = max(manifest.step for manifest in manifests)
        elif steps := self._steps_of_states():
            self.step = steps[-1]
        elif self.spec.branched_from:
            parent, branch_step = self.spec.branched_from
            lines = list(read_metrics(Path(parent), branch_step))
            self.step = len(lines)
        self.history = WeightHistory(self.folder)
        self.history.open(self.step, lines)
        self.is_paused = self.spec.first_command == "step" or self.step == branch_step
        self.saved_version, self.sent_weight_steps = None, []
        self._on_message("started", self.step, "cpu")
        self._send_changes()
        self._save_weights()
        self._on_message("status", "paused" if self.is_paused else "training")
        if self.spec.first_command == "step":
            self._train(1)

    def _steps_of_states(self) -> list[int]:
        """Return the steps whose state can be restored, in order."""
        last_step = max((line["step"] for line in read_metrics(self.folder)), default=0)
        return [step for step in state_steps(self.folder) if step <= last_step]

    def _handle(self, kind: str, *arguments) -> None:
        if kind == "pause" and not self.is_paused:
            self._send_points([])
            self.is_paused = True
            self._on_message("status", "paused")
            self._save_weights()
            self._save()
        elif kind == "resume" and self.is_paused:
            self.is_paused = False
            self._on_message("status", "training")
        elif kind == "step" and self.is_paused:
            self._train(arguments[0])
        elif kind in ("stop", "park"):
            self._end("stopped" if kind == "stop" else "paused")
        elif kind == "save":
            self._save(PINNED_SUFFIX)
        elif kind == "watch":
            self.viewer_active = arguments[0]
        elif kind == "change":
            self.changes = add_change(self.changes, SettingChange(self.step, *arguments))
            self._send_changes()

    def train(self, steps: int) -> None:
        """Start and handle every command, train some steps, and end at the last step."""
        self.deliver_all()
        assert not self.idle_reason, f"this worker cannot train: it {self.idle_reason}"
        self._train(steps)

    def _train(self, steps: int) -> None:
        lines = []
        for _ in range(steps):
            settings = config_at_step(self.config.training, self.changes, self.step)
            if self.step < settings.max_steps:
                lines.append(self._train_step(settings))
        self._send_points(lines)
        self._save_weights()
        if self.step >= config_at_step(self.config.training, self.changes, self.step).max_steps:
            self._end("done", self.scores)

    def train_to(self, step: int, exact_match: float = 0.25) -> None:
        """Train up to a step with one score of all evaluations."""
        self.deliver_all()
        self.evaluated, self.scores = exact_match, SCORES | {"exact_match": exact_match}
        self.train(step - self.step)

    def finish(self, exact_match: float = 0.5) -> None:
        self.train_to(RunConfig.from_flat(self.spec.config).training.max_steps, exact_match)

    def diverge(self) -> None:
        self.train_to(1)
        self._end("failed", message=f"{DIVERGED_MESSAGE} at step {self.step + 1}")

    def _train_step(self, settings) -> dict:
        self.step += 1
        if self.history.should_save_weights(self.step):
            self.history.save_weights(self.step, WEIGHTS)
        if self.history.should_save_state(self.step):
            self.history.save_weights(self.step, WEIGHTS, keep=True)
            self.history.save_state(self.step, WEIGHTS)
        is_evaluated = self.step % settings.eval_every == 0
        return {
            "step": self.step,
            "loss": 1 / self.step,
            "learning_rate": settings.learning_rate,
            "grad_norm": 1.0,
            "seconds": self.step * SECONDS_PER_STEP,
            "steps_per_second": 1 / SECONDS_PER_STEP,
        } | (
            {"exact_match": self.evaluated, "token_accuracy": 0.5, "eval_size": settings.eval_size}
            if is_evaluated
            else {}
        )

    def _save_weights(self) -> None:
        self.history.save_weights(self.step, WEIGHTS)
        steps = self.history.steps()
        if steps != self.sent_weight_steps:
            self.sent_weight_steps = steps
            self._on_message("history", steps, steps[-1])

    def _send_points(self, lines: list[dict]) -> None:
        self._on_message("points", lines)
        self.trained_seconds += len(lines) * SECONDS_PER_STEP
        self._on_message("active", self.trained_seconds)
        self.history.add(lines)

    def _save(self, suffix: str = "", scores: dict | None = None) -> None:
        version = (self.step, list(self.changes), suffix)
        if version == self.saved_version and scores is None:
            return
        self._send_points([])
        self.saved_version = version
        folder = self.folder / "checkpoints" / f"{self.step:07d}{suffix}"
        folder.mkdir(parents=True, exist_ok=True)
        changes = tuple(self.changes)
        seconds = self.step * SECONDS_PER_STEP
        manifest = Manifest(self.config, self.step, seconds, "cpu", scores, changes=changes)
        (folder / "config.json").write_text(manifest.to_json())
        (folder / "training.safetensors").write_bytes(WEIGHTS)
        remove_old_checkpoints(self.folder, self.step)
        self._on_message("saved", self.step)

    def _send_changes(self) -> None:
        self._on_message("changes", [change.to_list() for change in self.changes])

    def _end(self, status: str, scores: dict | None = None, message: str = "") -> None:
        self._send_points([])
        self._save_weights()
        self._save(scores=scores)
        self.has_ended = True
        self._on_message("ended", status, message, scores)
        if not self.lingers:
            self.exit(0)


class FakeWorkers(list[FakeWorker]):
    """The workers of all registries of a test, in the order in which they were launched."""

    def __init__(self, monkeypatch) -> None:
        monkeypatch.setattr(supervisor, "WorkerProcess", self._launch)
        monkeypatch.setattr(supervisor.Supervisor, "start_housekeeping", lambda self: None)
        monkeypatch.setattr(InspectorClient, "request", _request)

    def _launch(self, *arguments, **options) -> FakeWorker:
        self.append(FakeWorker(*arguments, **options))
        return self[-1]

    @property
    def active(self) -> list[FakeWorker]:
        return [worker for worker in self if not worker.exited.is_set()]

    def finish_all(self) -> None:
        """Train every run that trains to its end, also those that start meanwhile."""
        for worker in self:
            worker.deliver_all()
            if not worker.idle_reason:
                worker.finish()

    def deliver(self) -> None:
        """Start the launched workers, and deliver every command and message."""
        while any(worker.deliver() for worker in tuple(self)):
            pass

    def train(self, run: state.Run, steps: int = 1) -> state.Run:
        """Train some steps of a run whose worker trains."""
        self.deliver()
        run.worker.train(steps)
        self.deliver()
        return run

    def finish(self, *runs: state.Run) -> None:
        """Train each run to its end."""
        for run in runs:
            self.train(run, run.steps - run.step)

    def control(self, owner_of_runs: registry.Registry, run: state.Run, *actions: str) -> None:
        """Send commands to a run, one after the other, and deliver each."""
        self.deliver()
        for action in actions:
            owner_of_runs.control(run, action)
            self.deliver()

    def housekeep(self, *registries: registry.Registry) -> None:
        """Do one round of housekeeping, and deliver what it sends."""
        for each in registries:
            for run in each.all_runs():
                each.supervisor.supervise(run)
            each.scheduler.schedule()
        self.deliver()


def _request(inspector, kind, model_ref, text="", **options) -> Future:
    """Answer a request to an inspection process at once."""
    future: Future = Future()
    if kind == "snapshot":
        future.set_result({"snapshot": {"step": model_ref["step"]}, "probe_info": {}})
    elif kind == "predict":
        future.set_result({"text": text, "run": Path(model_ref["run"]).name})
    elif kind in ("describe", "show"):
        future.set_result({"run": Path(model_ref["run"]).name})
    else:
        raise AssertionError(f"fake inspection processes do not answer requests of the kind {kind}")
    return future


def fake_time(monkeypatch) -> FakeTime:
    """Replace the clock of the modules of runs."""
    clock = FakeTime()
    for name in CLOCKED_MODULES.split():
        monkeypatch.setattr(f"playground.runs.{name}.time", clock)
    return clock
