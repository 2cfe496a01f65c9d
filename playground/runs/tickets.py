"""One-time download tokens, so that the owner key never appears in a URL."""

from __future__ import annotations

import secrets
import threading
import time
from pathlib import Path

from .run import Run

TICKET_FOR = 60.0  # seconds
MOST_TICKETS = 200


class Tickets:
    """The valid download tokens, each with its folder and run."""

    def __init__(self) -> None:
        self._issued: dict[str, tuple[float, Path, Run]] = {}
        self._lock = threading.Lock()

    def issue(self, folder: Path, run: Run) -> str:
        """Return a new token for a folder, valid once and for `TICKET_FOR` seconds."""
        with self._lock:
            now = time.monotonic()
            alive = [(word, what) for word, what in self._issued.items() if what[0] > now]
            self._issued = dict(alive[-MOST_TICKETS + 1 :])
            word = secrets.token_urlsafe(16)
            self._issued[word] = (now + TICKET_FOR, folder, run)
            return word

    def redeem(self, word: str) -> tuple[Path, Run] | None:
        """Return the folder and run of a token and invalidate it; None if it is invalid."""
        with self._lock:
            until, folder, run = self._issued.pop(word, (0.0, None, None))
        return (folder, run) if folder and run and until > time.monotonic() else None
