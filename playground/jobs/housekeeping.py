"""The thread that does the periodic work of all queues."""

import logging
import threading
import time
from collections.abc import Callable

from playground.errors import UserError

INTERVAL_S = 0.5

log = logging.getLogger(__name__)


class Housekeeper:
    """Calls functions at a short interval, in one thread that starts with the first of them.

    A function that fails is called again; the same error of it is logged once.
    """

    def __init__(self) -> None:
        self._calls: dict[Callable[[], None], str] = {}  # with the latest error
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, call: Callable[[], None]) -> None:
        """Call this function regularly, until `remove`.

        Raises:
            UserError: if the system has no free thread.
        """
        with self._lock:
            self._calls.setdefault(call, "")
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

    def remove(self, call: Callable[[], None]) -> None:
        """End the calls of a function; an unknown one is ignored."""
        with self._lock:
            self._calls.pop(call, None)

    def run_once(self) -> None:
        """Call each function once."""
        for call in list(self._calls):
            try:
                call()
                error = ""
            except Exception as failure:  # without housekeeping no job would ever time out
                error = repr(failure)
                if error != self._calls.get(call):
                    name = getattr(call, "__qualname__", call)
                    log.exception("Housekeeping by %s failed", name)
            with self._lock:
                if call in self._calls:
                    self._calls[call] = error

    def _loop(self) -> None:
        while True:
            time.sleep(INTERVAL_S)
            self.run_once()


HOUSEKEEPER = Housekeeper()
