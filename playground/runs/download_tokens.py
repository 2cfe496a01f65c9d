"""One-time download tokens, so that the owner key never appears in a URL."""

import secrets
import threading
import time
from pathlib import Path

from playground.jobs.admission import CLIENT_ADDRESS, Client, limit

from .state import Run

TOKEN_TTL_S = 60.0  # seconds


class DownloadTokens:
    """The valid download tokens, each with its folder and run."""

    def __init__(self) -> None:
        # by token: its expiry, its folder and run, and the address of the client
        self._issued: dict[str, tuple[float, Path, Run, str]] = {}
        self._lock = threading.Lock()

    def issue(self, folder: Path, run: Run) -> str:
        """Return a new token for a folder, valid once and for `TOKEN_TTL_S` seconds."""
        with self._lock:
            now, address = time.monotonic(), CLIENT_ADDRESS.get()
            self._issued = {word: each for word, each in self._issued.items() if each[0] > now}
            present = {word: Client(each[3]) for word, each in self._issued.items()}
            limit("download-links").admit_or_evict(
                Client(address), present, present, lambda word: len(self._issued.pop(word)) > 0
            )
            token = secrets.token_urlsafe(16)
            self._issued[token] = (now + TOKEN_TTL_S, folder, run, address)
            return token

    def redeem(self, token: str) -> tuple[Path, Run] | None:
        """Return the folder and run of a token and invalidate it; None if it is invalid."""
        with self._lock:
            expires_at, folder, run, _ = self._issued.pop(token, (0.0, None, None, ""))
        return (folder, run) if folder and run and expires_at > time.monotonic() else None
