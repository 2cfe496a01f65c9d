"""The server's side of the process that looks into models (inspector.py)."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Any

from .processes import Child

Answer = dict[str, Any]


class Eyes:
    """Asks the inspector's process, and starts it again when it has ended. Any thread may ask."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._asked: dict[int, Future[Answer]] = {}
        self._since: dict[int, float] = {}  # when each question was asked
        self._heard = 0.0  # when the process last answered, or was asked to begin

    def warm_up(self) -> None:
        """Start the process in the background, so that nobody waits for it later."""
        threading.Thread(target=self.ask, args=("warm", {}), name="warm-eyes", daemon=True).start()

    def ask(self, kind: str, what: dict[str, Any] | Path, text: str = "") -> Future[Answer]:
        """The answer that will come; its `error` says what was wrong, and `again` that the same question may be answered soon."""
        what = {"checkpoint": str(what)} if isinstance(what, Path) else what
        number, future = next(self._numbers), Future[Answer]()
        with self._lock:
            if self._child is None or self._child.ended.is_set():
                asked: dict[int, Future[Answer]] = {}

                def heard(number: int, answer: Answer) -> None:
                    self._heard = time.monotonic()
                    resolve(asked.pop(number), answer)

                self._child = Child(
                    "playground.runs.inspector:inspect",
                    "inspector",
                    on_message=heard,
                    on_end=lambda code: self._give_up(asked, f"the process that looks into models ended (exit code {code}); ask again"),
                )
                self._asked, self._since, self._heard = asked, {}, time.monotonic()
            self._asked[number] = future
            self._since = {n: at for n, at in self._since.items() if n in self._asked} | {number: time.monotonic()}
            if not self._child.send(number, kind, what, text):
                self._asked.pop(number, None)
                resolve(future, passing("too many are asking at once; ask again in a moment"))
        return future

    def supervise(self, seconds: float) -> None:
        """End a process that has been at one question for so long; the next question starts another."""
        oldest = min((at for n, at in list(self._since.items()) if n in self._asked), default=None)
        if oldest is not None and time.monotonic() - max(oldest, self._heard) > seconds:  # who waits in line is not at it
            self.close()

    def close(self) -> None:
        if child := self._child:  # which may be over at any time
            child.kill()

    def _give_up(self, asked: dict[int, Future[Answer]], reason: str) -> None:
        """Answer those whom a process that has ended leaves waiting."""
        with self._lock:  # who asks from here on, and be it because of this answer, asks the next process
            if self._asked is asked:
                self._child = None
        for number in list(asked):
            if future := asked.pop(number, None):
                resolve(future, passing(reason))


def passing(error: str) -> Answer:
    """An error that is about this moment, not about what was asked: a page asks `again` by itself."""
    return {"error": error, "again": True}


def resolve(future: Future[Answer], answer: Answer) -> None:
    """Give an answer to whoever still waits for it."""
    with suppress(InvalidStateError):
        future.set_result(answer)
