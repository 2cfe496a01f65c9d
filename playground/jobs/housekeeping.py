"""Run the periodic work of all queues in one thread."""

import logging
import threading
import time
from collections.abc import Callable

from playground.errors import UserError

INTERVAL_S = 0.5

log = logging.getLogger(__name__)


class Housekeeper:
    """Calls functions periodically in one thread, which starts with the first function.

    A function that raises an error is called again. A repeated error is logged once.
    """

    def __init__(self) -> None:
        self._last_errors: dict[Callable[[], None], str] = {}  # with the last error
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, function: Callable[[], None]) -> None:
        """Call this function periodically, until `remove`.

        Raises:
            UserError: if the system has no free thread.
        """
        with self._lock:
            self._last_errors.setdefault(function, "")
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
            self._last_errors.pop(function, None)

    def run_once(self) -> None:
        """Call each function once."""
        for function in list(self._last_errors):
            try:
                function()
                error = ""
            except Exception as failure:  # one failing function must not stop the timeouts of jobs
                error = repr(failure)
                if error != self._last_errors.get(function):
                    name = getattr(function, "__qualname__", function)
                    log.exception("Housekeeping by %s failed", name)
            with self._lock:
                if function in self._last_errors:
                    self._last_errors[function] = error

    def _loop(self) -> None:
        while True:
            time.sleep(INTERVAL_S)
            self.run_once()


HOUSEKEEPER = Housekeeper()
