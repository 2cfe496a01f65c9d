"""One-time download tokens, so that the owner key never appears in a URL."""

import secrets
import threading
import time
from pathlib import Path

from .state import Run

TOKEN_TTL_S = 60.0  # seconds
MAX_TOKENS = 200


class DownloadTokens:
    """The valid download tokens, each with its folder and run."""

    def __init__(self) -> None:
        self._issued: dict[str, tuple[float, Path, Run]] = {}
        self._lock = threading.Lock()

    def issue(self, folder: Path, run: Run) -> str:
        """Return a new token for a folder, valid once and for `TOKEN_TTL_S` seconds."""
        with self._lock:
            now = time.monotonic()
            alive = [(word, target) for word, target in self._issued.items() if target[0] > now]
            self._issued = dict(alive[-MAX_TOKENS + 1 :])
            token = secrets.token_urlsafe(16)
            self._issued[token] = (now + TOKEN_TTL_S, folder, run)
            return token

    def redeem(self, token: str) -> tuple[Path, Run] | None:
        """Return the folder and run of a token and invalidate it; None if it is invalid."""
        with self._lock:
            expires_at, folder, run = self._issued.pop(token, (0.0, None, None))
        return (folder, run) if folder and run and expires_at > time.monotonic() else None
