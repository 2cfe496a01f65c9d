"""The start of every background process, and the entry point of a single call."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from playground.errors import error_response

log = logging.getLogger(__name__)


def prepare_process(nice: int = 0) -> None:
    """Ignore Ctrl-C, which reaches the whole process group, and lower the priority by `nice`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if nice and hasattr(os, "nice"):
        os.nice(nice)


def exit_with_parent(connection: Connection) -> None:
    """End this process when the parent closes its end of the pipe; the parent sends nothing."""

    def watch() -> None:
        with suppress(EOFError, OSError):
            connection.recv()
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def load_target(target: str) -> Callable[..., Any]:
    """Import the function of a target, "module:function"."""
    module, function = target.split(":")
    loaded: Callable[..., Any] = getattr(import_module(module), function)
    return loaded


def run_call(connection: Connection, target: str, arguments: tuple[Any, ...]) -> None:
    """Send the response of `target(*arguments)`; an error of the user becomes a response."""
    prepare_process(nice=5)
    exit_with_parent(connection)
    try:
        response = load_target(target)(*arguments)
    except (ValueError, OSError) as error:
        response = error_response(error)
    except MemoryError:
        response = {"error": "this needs more memory than is free; use a smaller model or input"}
    except Exception as error:
        log.exception("The call of %s failed", target)
        response = {"error": f"an unexpected error occurred ({type(error).__name__}); try again"}
    with suppress(OSError):  # the parent has closed the pipe
        connection.send((response,))
    connection.close()
