"""Start worker processes from a process that has imported torch: a fork server, or a spare one.

A worker then starts within hundredths of a second.
"""

import logging
import multiprocessing.util
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from playground.common.env import EnvError, env_text
from playground.common.logs import configure_logging
from playground.common.platform import (
    KILLED_EXIT_CODES,
    count_oom_kills,
    free_memory,
    sigint_blocked,
)

from .entry import load_target, prepare_process
from .housekeeping import HOUSEKEEPER, log_errors

# The first optimizer of a process imports torch._dynamo.
PRELOAD = ["torch", "torch._dynamo"]  # `preload` adds the modules of higher layers
SPARE_MEMORY_BYTES = 1_500_000_000  # that must be free for a spare process, which takes a fifth
OUTBOX_SIZE = 256  # messages that may wait for a busy child
# A path of a socket has at most 103 bytes on macOS, and 107 on Linux.
MAX_SOCKET_FOLDER_LENGTH = 103 - len("/listener-xxxxxxxx")
EXIT_TIMEOUT_S = 5  # seconds for a process to end after it has closed its pipe

log = logging.getLogger(__name__)


def preload(*modules: str) -> None:
    """Let the fork server import these modules, too. Call it before the first process."""
    PRELOAD.extend(module for module in modules if module not in PRELOAD)


def context() -> Any:
    """Return the multiprocessing context of worker processes, as PLAYGROUND_START_METHOD chooses.

    It is a fork server with preloaded modules if the system has one, else a new interpreter
    (Windows). Raises EnvError if the system does not support the variable's method, or has no short
    folder for temporary files.
    """
    if env_text("START_METHOD") == "spawn":
        return multiprocessing.get_context("spawn")
    folder = multiprocessing.util.get_temp_dir()  # before threads, which would each create one
    if len(os.fsencode(folder)) > MAX_SOCKET_FOLDER_LENGTH:
        raise EnvError(
            f"the folder for temporary files has a path of {len(folder)} characters, and the "
            f"sockets of worker processes need one of at most {MAX_SOCKET_FOLDER_LENGTH}; set "
            "TMPDIR to a shorter one"
        )
    selected = multiprocessing.get_context("forkserver")
    selected.set_forkserver_preload(PRELOAD)
    return selected


def warm_up() -> threading.Thread:
    """Start the fork server or a spare process in the background. Safe to call again.

    From then on, a new spare process replaces one that gets work. Raises EnvError.
    """
    method = context().get_start_method()

    def start() -> None:
        if method == "forkserver":
            from multiprocessing import forkserver

            with sigint_blocked():
                forkserver.ensure_running()
        elif _spares.empty() and free_memory() > SPARE_MEMORY_BYTES:
            connection, child_end = context().Pipe()
            process = context().Process(
                target=_wait_for_entry, args=(child_end, PRELOAD), daemon=True
            )
            with sigint_blocked():
                process.start()
            child_end.close()
            _spares.put((process, connection, child_end))

    global _is_warm
    _is_warm = True
    thread = threading.Thread(target=start, name="warm-up", daemon=True)
    thread.start()
    return thread


Spare = tuple[Any, Connection, Connection]  # a process, and both ends of the pipe to it
_spares: queue.SimpleQueue[Spare] = queue.SimpleQueue()
_is_warm = False


def _take_spare() -> Spare | None:
    """Return the spare process if it lives, and start the next one."""
    spare = None
    with suppress(queue.Empty):
        while spare is None or not spare[0].is_alive():
            spare = _spares.get_nowait()
    if _is_warm and env_text("START_METHOD") == "spawn":
        with suppress(RuntimeError, MemoryError):  # what a system without a free thread raises
            warm_up()
    return spare if spare and spare[0].is_alive() else None


def _wait_for_entry(connection: Connection, modules: list[str]) -> None:
    """Import what workers need, then run the entry point that the first message names."""
    prepare_process()
    for module in modules:
        with suppress(ImportError):
            import_module(module)
    try:
        entry, *arguments = connection.recv()
    except (EOFError, OSError):  # the server has ended
        return
    _run_entry(entry, connection, *arguments)


def describe_exit(process: str, code: int | None) -> str:
    """Return how a process ended; the exit code None means that it could not be started."""
    if code is None:
        return f"{process} could not be started: the machine lacks memory, processes or open files"
    if code in KILLED_EXIT_CODES:
        return (
            f"{process} was ended by the system, which ran out of memory"
            if _has_oom_kill_since_last_call()
            else f"{process} was ended from outside (SIGKILL)"
        )
    return f"{process} ended (exit code {code})"


_n_oom_kills = count_oom_kills()


def _has_oom_kill_since_last_call() -> bool:
    global _n_oom_kills
    before, _n_oom_kills = _n_oom_kills, count_oom_kills()
    return _n_oom_kills > before


class WorkerProcess:
    """A worker process that runs `module:function(pipe, *arguments)`, with a pipe to it.

    The constructor and `send` never block: messages go through a queue and a separate thread.

    `on_message(*message)` receives the child's messages, and `on_exit(exit code)` its end; the code
    is None if the process could not be started. One thread makes both calls, never the
    constructor, and `exited` is set after them. A `fresh` child is a new interpreter; it starts
    earlier than the first child of a fork server, which imports torch first.
    """

    def __init__(
        self,
        entry: str,
        name: str,
        *arguments: Any,
        on_message: Callable[..., None],
        on_exit: Callable[[int | None], None],
        fresh: bool = False,
    ) -> None:
        self.exited = threading.Event()
        start: Any = multiprocessing.get_context("spawn") if fresh else context()
        self._kill_requested = False
        self._outbox: queue.Queue[tuple[Any, ...] | None] = queue.Queue(OUTBOX_SIZE)
        self._on_message, self._on_exit = on_message, on_exit
        HOUSEKEEPER.add(report_failures)
        self.process: Any
        if spare := None if fresh else _take_spare():
            self.process, self._connection, self._child_end = spare
            self.process.name = name
            self._outbox.put_nowait((entry, *arguments))
        else:
            try:
                self._connection, self._child_end = start.Pipe()
            except OSError:
                self.process = start.Process(name=name)
                log.exception("%s could not be started", name)
                _failures.put(self._fail)
                return
            self.process = start.Process(
                target=_run_entry, args=(entry, self._child_end, *arguments), name=name, daemon=True
            )
        try:
            # `_run_process` starts the process, so it comes last.
            for loop in (self._send_loop, self._run_process):
                threading.Thread(target=loop, name=f"{name}-{loop.__name__}", daemon=True).start()
        except (RuntimeError, MemoryError):  # what a system without a free thread raises
            log.exception("%s could not be started", name)
            self._connection.close()
            self._child_end.close()
            _failures.put(self._fail)

    def send(self, *message: Any) -> bool:
        """Queue a message; return False if the child has exited or its queue is full."""
        if self.exited.is_set():
            return False
        try:
            self._outbox.put_nowait(message)
            return True
        except queue.Full:
            return False

    def kill(self) -> None:
        """Kill the process, also if it has not started yet."""
        self._kill_requested = True
        if self.process.pid is not None:
            self.process.kill()

    def _fail(self) -> None:
        """Report the end of a process that could not be started."""
        try:
            self._on_exit(None)
        finally:
            self._finish()

    def _finish(self) -> None:
        self.exited.set()
        with suppress(queue.Full):
            self._outbox.put_nowait(None)  # ends _send_loop

    def _send_loop(self) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                self._connection.send(message)
            except (OSError, ValueError):  # the child has exited, or `_run_process` closed the pipe
                return

    def _run_process(self) -> None:
        """Start the process, forward its messages, and report its end."""
        try:
            if self.process.pid is None:
                with sigint_blocked():
                    self.process.start()
            self._child_end.close()
            if self._kill_requested:
                self.process.kill()
        except Exception:
            log.exception("%s could not be started", self.process.name)
            self._child_end.close()
        try:
            self._receive_loop()
        finally:
            if self.process.pid is not None:
                self.process.join(EXIT_TIMEOUT_S)
                if self.process.exitcode is None:  # it has closed the pipe, but does not end
                    self.process.kill()
                    self.process.join(EXIT_TIMEOUT_S)
            try:
                self._on_exit(self.process.exitcode if self.process.pid is not None else None)
            finally:
                self._finish()
                self._connection.close()

    def _receive_loop(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                message = self._connection.recv()
                try:
                    self._on_message(*message)
                except Exception:  # one invalid message must not end the connection
                    log.exception("A message of %s was dropped after an error", self.process.name)


_failures: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()


def report_failures() -> None:
    """Report failed starts.

    A failed start cannot rely on a new thread, and its caller may hold the locks that the callback
    takes.
    """
    while not _failures.empty():
        log_errors(_failures.get())


def _run_entry(entry: str, connection: Connection, *arguments: Any) -> None:
    configure_logging()
    load_target(entry)(connection, *arguments)
