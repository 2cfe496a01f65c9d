"""How worker processes start: from a fork server that has torch imported, so that a worker is there in hundredths of a second."""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from playground.logs import configure_logging
from playground.training.devices import usable_cores as usable_cores

# torch._dynamo is what the first optimizer of a process imports.
PRELOAD = ["torch", "torch._dynamo", "playground.runs.worker", "playground.runs.inspector"]
UNSENT = 256  # messages that may wait for a busy child

log = logging.getLogger(__name__)


def context() -> Any:
    """The start method: a fork server that imports what every child needs where the system has one, else a fresh interpreter
    (Windows); or the one of the two that PLAYGROUND_START_METHOD names. The preload is set here, because whoever starts the first
    process starts the fork server.

    Raises:
        ValueError: where the system does not have what the environment asks for.
    """
    methods = [
        method
        for method in ("forkserver", "spawn")
        if method in multiprocessing.get_all_start_methods()
    ]
    wanted = os.environ.get("PLAYGROUND_START_METHOD") or methods[0]
    if wanted not in methods:
        raise ValueError(
            f"PLAYGROUND_START_METHOD is {wanted!r}; this system has {' and '.join(methods)}: choose one, or leave it unset"
        )
    if wanted == "spawn":
        return multiprocessing.get_context("spawn")
    chosen = multiprocessing.get_context("forkserver")
    chosen.set_forkserver_preload(PRELOAD)
    return chosen


def warm_up() -> threading.Thread:
    """Start the fork server in the background and let it import torch. Safe to call again.

    Raises:
        ValueError: where the system does not have the start method that the environment asks for.
    """
    method = context().get_start_method()

    def start() -> None:
        if method == "forkserver":
            from multiprocessing import forkserver

            with without_interrupts():
                forkserver.ensure_running()

    thread = threading.Thread(target=start, name="warm-up", daemon=True)
    thread.start()
    return thread


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Processes that are started inside do not hear Ctrl-C, which the terminal sends to all of them: this one decides what it means. Not
    even while they import what they need, long before they could say so themselves."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which the first process starts, and lets interrupts through again after that
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT}
    )  # of this thread, and inherited
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def describe_end(process: str, code: int | None) -> str:
    """Say how a process ended that owes an answer; None stands for one that never began."""
    if code is None:
        return f"{process} could not be started, as the machine is short of memory, processes or open files"
    return f"{process} ended (exit code {code})"


def active_seconds(pid: int, proc: Path = Path("/proc")) -> float:
    """Return the seconds that a process has run or, where Linux reports it, waited for a processor.

    On a busy machine a worker may get next to no processor for a minute. It is not hung then.

    Raises:
        psutil.Error: when there is no such process.
    """
    nanoseconds = 0
    for path in (proc / str(pid) / "task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # the thread has ended
            ran, waited, _ = path.read_text().split()
            nanoseconds += int(ran) + int(waited)
    if nanoseconds:
        return nanoseconds / 1e9
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


class Child:
    """A process that is spoken to: `module:function(pipe, *arguments)` at the other end of a pipe.

    Whoever sends never waits: messages go through a queue and a thread of their own, so a busy child or a full pipe stops
    neither a page nor the event loop; nor does who starts it, for the fork server may still be importing. What the child says
    goes to `on_message(*message)`, its end, however it came, to `on_end(exit code)`, with None when it could not even be
    started; both are called from one thread, never from the constructor, and `ended` is set after them. A `fresh` child is a new
    interpreter: sooner there than the first one of a fork server, which imports torch before.

    Raises:
        RuntimeError: when this process cannot start its first thread for children; nothing has changed then.
    """

    def __init__(
        self,
        entry: str,
        name: str,
        *arguments: Any,
        on_message: Callable[..., None],
        on_end: Callable[[int | None], None],
        fresh: bool = False,
    ) -> None:
        self.ended = threading.Event()
        start: Any = multiprocessing.get_context("spawn") if fresh else context()
        self._doomed = False
        self._unsent: queue.Queue[tuple[Any, ...] | None] = queue.Queue(UNSENT)
        self._on_message, self._on_end = on_message, on_end
        report_failure = _failure_reporter()
        try:
            self._pipe, self._theirs = start.Pipe()
        except OSError:
            self.process: Any = start.Process(name=name)
            log.exception("%s could not be started", name)
            report_failure(self._fail)
            return
        self.process = start.Process(
            target=_enter, args=(entry, self._theirs, *arguments), name=name, daemon=True
        )
        try:
            for work in (self._write, self._read):  # _read starts the process, so it comes last
                threading.Thread(target=work, name=f"{name}-{work.__name__}", daemon=True).start()
        except (RuntimeError, MemoryError):  # what a system without a free thread raises
            log.exception("%s could not be started", name)
            self._pipe.close()
            self._theirs.close()
            report_failure(self._fail)

    def send(self, *message: Any) -> bool:
        """Pass a message on; False when the child has gone, or leaves too many unread."""
        if self.ended.is_set():
            return False
        try:
            self._unsent.put_nowait(message)
            return True
        except queue.Full:
            return False

    def kill(self) -> None:
        """End it at once, also when it has not started yet."""
        self._doomed = True
        if self.process.pid is not None:
            self.process.kill()

    def _fail(self) -> None:
        """Report the end of a process that never began."""
        try:
            self._on_end(None)
        finally:
            self.ended.set()
            with suppress(queue.Full):
                self._unsent.put_nowait(None)  # lets _write end

    def _write(self) -> None:
        while (message := self._unsent.get()) is not None:
            try:
                self._pipe.send(message)
            except (OSError, ValueError):  # gone, or closed by _read
                return

    def _read(self) -> None:
        try:
            with without_interrupts():
                self.process.start()
            self._theirs.close()
            if self._doomed:
                self.process.kill()
        except Exception:
            log.exception("%s could not be started", self.process.name)
            self._theirs.close()
        try:
            self._hear()
        finally:
            if self.process.pid is not None:
                self.process.join(5)
            try:
                self._on_end(self.process.exitcode if self.process.pid is not None else None)
            finally:
                self.ended.set()
                with suppress(queue.Full):
                    self._unsent.put_nowait(None)  # lets _write end
                self._pipe.close()

    def _hear(self) -> None:
        """Pass on what it says, until it has gone."""
        with suppress(EOFError, OSError):
            while True:
                message = self._pipe.recv()
                try:
                    self._on_message(*message)
                except Exception:  # one bad message must not cut the child off
                    log.exception("a message of %s was dropped", self.process.name)


_reporting: queue.SimpleQueue[Callable[[], None]] | None = None
_reporter_lock = threading.Lock()


def _failure_reporter() -> Callable[[Callable[[], None]], None]:
    """Return what queues a call for the thread that reports failed starts.

    The thread starts with the first child. A failed start cannot rely on a new thread, and its caller may hold the locks that
    the callback takes.
    """
    global _reporting
    with _reporter_lock:
        if _reporting is None:
            calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
            threading.Thread(
                target=_report_failures, args=(calls,), name="failed-starts", daemon=True
            ).start()
            _reporting = calls
        return _reporting.put


def _report_failures(calls: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        report = calls.get()
        try:
            report()
        except Exception:  # one faulty callback must not keep others waiting
            log.exception("the end of a process that could not be started was not handled")


def _enter(entry: str, pipe: Connection, *arguments: Any) -> None:
    from importlib import import_module

    configure_logging()
    module, function = entry.split(":")
    getattr(import_module(module), function)(pipe, *arguments)
