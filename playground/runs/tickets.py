"""Who may fetch which checkpoint for a minute: words that stand in an address once, instead of the owner's secret."""

from __future__ import annotations

import secrets
import threading
import time
from pathlib import Path

from .run import Run

TICKET_FOR = 60.0  # seconds
MOST_TICKETS = 200


class Tickets:
    """Which files may be fetched now, by words that nobody can guess."""

    def __init__(self) -> None:
        self._issued: dict[str, tuple[float, Path, Run]] = {}
        self._lock = threading.Lock()

    def issue(self, folder: Path, run: Run) -> str:
        with self._lock:
            now = time.monotonic()
            alive = [(word, what) for word, what in self._issued.items() if what[0] > now]
            self._issued = dict(alive[-MOST_TICKETS + 1 :])
            word = secrets.token_urlsafe(16)
            self._issued[word] = (now + TICKET_FOR, folder, run)
            return word

    def redeem(self, word: str) -> tuple[Path, Run] | None:
        with self._lock:
            until, folder, run = self._issued.pop(word, (0.0, None, None))
        return (folder, run) if folder and run and until > time.monotonic() else None
