"""The entry points of background processes.

A process sends tuples through its pipe: ("message", text, extra seconds of silence, phase),
("progress", done, total, unit), ("partial", result so far), ("row", row), and at the end
("result", result), ("failed", error response) or ("cancelled",). A resident process puts the id of
the job first.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from playground.common.platform import lower_priority
from playground.errors import error_response

from .progress import JobCancelled, ProgressReporter, to_user_error

Message = tuple[Any, ...]
RETRY = {"retryable": True}  # the field of an error response: a retry may succeed


def prepare_process(nice: int = 0) -> None:
    """Ignore Ctrl-C, which reaches the whole process group, and lower the priority by `nice`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if nice:
        lower_priority(nice)


def exit_with_parent(connection: Connection) -> None:
    """End this process when the parent, which sends nothing, closes its end of the pipe."""

    def watch() -> None:
        with suppress(EOFError, OSError):
            connection.recv()
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def load_target(target: str) -> Callable[..., Any]:
    module, function = target.split(":")
    loaded: Callable[..., Any] = getattr(import_module(module), function)
    return loaded


def last_message(function: Callable[[], dict[str, Any]]) -> Message:
    """Call the function of a job, and return its last message."""
    try:
        return "result", function()
    except JobCancelled:
        return ("cancelled",)
    except Exception as error:
        return "failed", error_response(to_user_error(error))


def run_job(
    connection: Connection, target: str, arguments: tuple[Any, ...], nice: int, scratch: str
) -> None:
    """Run the job `target(*arguments)`: the entry point of a process for it.

    With a temporary folder `scratch`, a `ProgressReporter` is its last argument.
    """
    prepare_process(nice)
    exit_with_parent(connection)

    def send(*message: Any) -> None:
        with suppress(OSError):  # the parent has closed the pipe
            connection.send(message)

    if scratch:
        arguments += (ProgressReporter(send, scratch=Path(scratch)),)
    send(*last_message(lambda: load_target(target)(*arguments)))
    connection.close()


class ResidentOptions(NamedTuple):
    """How a resident process runs jobs.

    Attributes:
        environment: variables that are set before the handler is imported.
        concurrent: run each job in its own thread, so that it can be cancelled.
        save_timeout_s: seconds for `saving_kinds` to save their results after the server has ended.
    """

    nice: int = 0
    environment: Mapping[str, str] = {}
    concurrent: bool = False
    saving_kinds: frozenset[str] = frozenset()
    save_timeout_s: float = 0.0


def serve(connection: Connection, factory: str, options: ResidentOptions) -> None:
    """Run jobs until the server closes the pipe: the entry point of a resident process.

    `factory` names a function that returns the handler `(kind, *arguments, reporter) -> result`.
    The process receives ("begin", job, kind, arguments) and ("cancel", job).
    """
    prepare_process(options.nice)
    os.environ.update(options.environment)
    handler = load_target(factory)()
    sending = threading.Lock()
    cancelled: dict[str, threading.Event] = {}
    saving: dict[str, threading.Thread] = {}

    def send(*message: Any) -> None:
        with sending, suppress(OSError):
            connection.send(message)

    def run(job: str, kind: str, arguments: tuple[Any, ...]) -> None:
        reporter = ProgressReporter(lambda *message: send(job, *message), cancelled[job])
        message = last_message(lambda: handler(kind, *arguments, reporter))
        cancelled.pop(job, None)
        saving.pop(job, None)
        send(job, *message)

    try:
        while True:
            command, job, *content = connection.recv()
            if command == "cancel":
                if job in cancelled:
                    cancelled[job].set()
                continue
            cancelled[job] = threading.Event()
            if not options.concurrent:
                run(job, *content)
                continue
            name = f"{content[0]} {job}"
            thread = threading.Thread(target=run, args=(job, *content), name=name, daemon=True)
            if content[0] in options.saving_kinds:
                saving[job] = thread
            thread.start()
    except (EOFError, OSError):  # the server has ended, so only what is saved remains
        for event in list(cancelled.values()):
            event.set()
        for thread in list(saving.values()):
            thread.join(options.save_timeout_s)
        os._exit(0)
