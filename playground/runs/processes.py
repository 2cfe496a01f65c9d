"""How worker processes start: from a fork server that has torch imported, so that a worker is there in hundredths of a second."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

# torch._dynamo is what the first optimizer of a process imports (1.6 s); see benchmarks/RESULTS.md for what warmth buys.
PRELOAD = ["torch", "torch._dynamo", "playground.runs.worker", "playground.runs.inspector"]

UNSENT = 64  # messages that may wait for a busy child


def context() -> Any:
    """The start method: a warm fork server where the system has one, else a fresh interpreter (Windows)."""
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")


def warm_up() -> threading.Thread:
    """Start the fork server in the background and let it import torch. Safe to call again."""

    def start() -> None:
        if context().get_start_method() == "forkserver":
            from multiprocessing import forkserver

            context().set_forkserver_preload(PRELOAD)
            forkserver.ensure_running()

    thread = threading.Thread(target=start, name="warm-up", daemon=True)
    thread.start()
    return thread


class Child:
    """A process that is spoken to: `module:function(pipe, *arguments)` at the other end of a pipe.

    Whoever sends never waits: messages go through a short queue and a thread of their own, so a busy child or a full pipe
    stops neither a page nor the event loop. What the child says goes to `on_message(*message)`, its end, however it came, to
    `on_end(exit code)`; both are called from one thread.

    Raises:
        OSError: when no process could be started.
    """

    def __init__(
        self, entry: str, name: str, *arguments: Any, on_message: Callable[..., None], on_end: Callable[[int | None], None]
    ) -> None:
        self._pipe, theirs = context().Pipe()
        self._unsent: queue.Queue[tuple[Any, ...]] = queue.Queue(UNSENT)
        self._on_message, self._on_end = on_message, on_end
        self.process = context().Process(target=_enter, args=(entry, theirs, *arguments), name=name, daemon=True)
        self.process.start()
        theirs.close()
        for work in (self._read, self._write):
            threading.Thread(target=work, name=f"{name}-{work.__name__}", daemon=True).start()

    def send(self, *message: Any) -> bool:
        """Pass a message on; False when the child has gone, or leaves too many unread."""
        if not self.process.is_alive():
            return False
        try:
            self._unsent.put_nowait(message)
            return True
        except queue.Full:
            return False

    def _write(self) -> None:
        while True:
            try:
                self._pipe.send(self._unsent.get())
            except (OSError, ValueError):  # gone, or closed by _read
                return

    def _read(self) -> None:
        try:
            while True:
                self._on_message(*self._pipe.recv())
        except (EOFError, OSError):
            pass
        finally:
            self.process.join(5)
            self._on_end(self.process.exitcode)
            self._pipe.close()


def _enter(entry: str, pipe: Connection, *arguments: Any) -> None:
    from importlib import import_module

    module, function = entry.split(":")
    getattr(import_module(module), function)(pipe, *arguments)
