"""Gradio's errors in the log of the app; Gradio prints them with whole values of clients."""

import logging
import sys
import traceback
from typing import Any

import gradio.queueing
import gradio.routes

log = logging.getLogger(__name__)
MAX_ERROR_TEXT = 500  # characters; the message may contain a value of the client
MAX_FRAMES = 12


class LoggedTraceback:
    """The module traceback for gradio.queueing and gradio.routes.

    It logs what they print to stderr.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    @staticmethod
    def print_exc(*_: Any, **__: Any) -> None:
        """Log the current exception, with a truncated message."""
        error = sys.exception()
        if error is not None:
            frames = "".join(traceback.format_tb(error.__traceback__, limit=-MAX_FRAMES))
            log.error(
                "An event failed: %s: %.*s\n%s", type(error).__name__, MAX_ERROR_TEXT, error, frames
            )


def apply_patches() -> None:
    """Let Gradio log its errors. Safe to call again."""
    gradio.queueing.traceback = gradio.routes.traceback = LoggedTraceback()
