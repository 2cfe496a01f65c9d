"""Progress, cancellation and errors of a job in a process of its own."""

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playground.common.atomic_write import remedy
from playground.errors import UserError, is_out_of_memory
from playground.models.config_fields import ConfigError

log = logging.getLogger(__name__)
PROGRESS_INTERVAL_S = 0.1  # seconds between two progress messages


class JobCancelled(Exception):
    """The job was cancelled."""


class ProgressReporter:
    """Reports the progress of a job, and checks whether it was cancelled.

    Args:
        send: called with the kind of a message and its content; from any thread.
        cancelled: set to cancel the job.
        scratch: an empty folder, which is removed after the job.
    """

    def __init__(
        self,
        send: Callable[..., None] = lambda *_: None,
        cancelled: threading.Event | None = None,
        scratch: Path = Path(),
    ) -> None:
        self._send = send
        self.cancelled = cancelled or threading.Event()
        self.scratch = scratch
        self._reported_at = 0.0

    def message(self, text: str, extra_silence_s: float = 0.0, phase: Any = None) -> None:
        """Report the current activity in one line, and its phase for a message about its end.

        `extra_silence_s`: seconds that the activity may take without a further message.
        """
        self.raise_if_cancelled()
        self._send("message", text, extra_silence_s, phase)

    def progress(self, done: float, total: float, unit: str = "") -> None:
        """Report the progress; messages in quick succession are dropped, except the last one."""
        self.raise_if_cancelled()
        now = time.monotonic()
        if done >= total or now - self._reported_at >= PROGRESS_INTERVAL_S:
            self._reported_at = now
            self._send("progress", done, total, unit)

    def partial(self, result: dict[str, Any]) -> None:
        """Report the result so far, which replaces the one before."""
        self.raise_if_cancelled()
        self._send("partial", to_json_safe(result))

    def row(self, row: dict[str, Any]) -> None:
        """Report a part of the result, which the page displays at once."""
        self.raise_if_cancelled()
        self._send("row", to_json_safe(row))

    def raise_if_cancelled(self) -> None:
        """Raise `JobCancelled` if the job is cancelled; call it every 0.2 s."""
        if self.cancelled.is_set():
            raise JobCancelled


def to_json_safe(value: Any) -> Any:
    """Convert a value to plain JSON values; numbers that are not finite become None.

    Raises TypeError for a type that JSON cannot represent.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): to_json_safe(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_safe(each) for each in value]
    json.dumps(value)
    return value


def to_user_error(error: Exception, model: str = "") -> UserError:
    """Convert any exception to an error message that names the model."""
    where = f"{model}: " if model else ""
    if isinstance(error, UserError):
        return error
    if is_out_of_memory(error):
        return UserError(
            f"{where}there is not enough memory now; choose a smaller model, or end a run first",
            retryable=True,
        )
    if isinstance(error, ConfigError):
        return UserError(f"{where}{error}", field=error.field)
    if isinstance(error, ValueError):
        return UserError(f"{where}{error}")
    if isinstance(error, OSError) and error.strerror:
        return UserError(
            f"{where}the system reported an error: {error.strerror}; {remedy(error)} and try again",
            retryable=True,
        )
    # %r: a name comes from a browser, and a line break in it must not forge a line of the log.
    log.error("Unexpected error in a job (%r)", model, exc_info=error)
    return UserError(
        f"{where}an unexpected error occurred ({type(error).__name__}: {str(error)[:160]}); try "
        "again, and report it if it persists",
        retryable=True,
    )
