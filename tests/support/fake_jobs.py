"""Fake processes of jobs, whose messages and results a test controls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from playground.jobs.executors import Executor
from playground.lessons.service import LessonJobs


def fairness(shares):
    """Return Jain's index of fairness: 1 if all shares are equal, 1/n if one client has all."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def no_lessons(registry):
    """Return the jobs of lessons of a server whose tests start none."""
    return LessonJobs(SimpleNamespace(registry=registry))


class FakeClock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeExecutor(Executor):
    """Start no process; the test sends the messages of each job."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.killed: list[Any] = []
        self.cancel_requests: list[Any] = []
        self.can_start, self.can_cancel, self.is_closed = True, False, False

    def start(self, job):
        if self.can_start:
            self.started.append(job)
        return self.can_start

    def kill(self, job):
        self.killed.append(job)

    def request_cancel(self, job):
        if self.can_cancel:
            self.cancel_requests.append(job)
        return self.can_cancel

    def close(self):
        self.is_closed = True

    def done(self, job, **result):
        self.on_end(job, ("result", result), None)

    @property
    def names(self):
        """Return the first argument of each started job."""
        return [job.label for job in self.started]


class FakeProcess:
    """A `WorkerProcess` whose messages and exit the test controls."""

    def __init__(self, started, entry, name, *arguments, on_message, on_exit, fresh=False):
        self.name, self.arguments = name, arguments
        self.on_message, self._on_exit = on_message, on_exit
        self.sent, self.is_killed, self.is_exited = [], False, False
        started.append(self)

    def on_exit(self, code):
        """End the process."""
        self._on_exit(code)
        self.is_exited = True

    def send(self, *message):
        if self.is_exited:
            return False
        self.sent.append(message)
        return True

    def kill(self):
        """Record the kill; the test ends the process by `on_exit`."""
        self.is_killed = True

    def finish(self, **result):
        """Send the result of the only job of this process, and end it."""
        self.on_message("result", result)
        self.on_exit(0)

    def respond(self, **result):
        """Send the result of the latest job of a resident process."""
        self.on_message(self.sent[-1][1], "result", result)


def fake_processes(monkeypatch):
    """Replace the processes of all executors, and return the list of those that were started."""
    started: list[FakeProcess] = []
    monkeypatch.setattr(
        "playground.jobs.executors.WorkerProcess",
        lambda *arguments, **options: FakeProcess(started, *arguments, **options),
    )
    return started
