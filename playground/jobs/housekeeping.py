"""Run all periodic work, of queues and of runs, in one thread."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from playground.common.logs import RepeatFilter
from playground.errors import UserError

INTERVAL_S = 0.5

log = logging.getLogger(__name__)
log.addFilter(RepeatFilter())  # what fails in one round usually fails in the next


class Housekeeper:
    """Calls functions periodically in one thread, which starts with the first function."""

    def __init__(self) -> None:
        self._functions: dict[Callable[[], None], None] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, function: Callable[[], None]) -> None:
        """Call this function periodically, until `remove`.

        Raises UserError if the system has no free thread.
        """
        with self._lock:
            self._functions[function] = None
            if self._thread is None:
                thread = threading.Thread(target=self._loop, name="housekeeping", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    log.exception("The housekeeping thread could not be started")
                    raise UserError(
                        "this machine has no free thread; try again in a minute", retryable=True
                    ) from None
                self._thread = thread

    def remove(self, function: Callable[[], None]) -> None:
        """Stop calling a function; an unknown one is ignored."""
        with self._lock:
            self._functions.pop(function, None)

    def _loop(self) -> None:
        while True:
            time.sleep(INTERVAL_S)
            for function in list(self._functions):
                log_errors(function)


def log_errors(work: Callable[..., object], *arguments: Any) -> None:
    """Do a part of a round, and log its error: other parts and later rounds must still run."""
    try:
        work(*arguments)
    except Exception:
        log.exception("Housekeeping by %s failed", getattr(work, "__qualname__", work))


HOUSEKEEPER = Housekeeper()
