"""Changes to Gradio 6.31 for which it has no option.

tests/integration/server/test_middleware.py tests each. Apply them before the launch.
"""

import logging
import sys
import traceback
from copy import copy
from typing import Any

import gradio
import gradio.queueing
import gradio.routes
import gradio.state_holder
from starlette.types import ASGIApp

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


class SessionState(gradio.state_holder.SessionState):
    """A session without a copy of every component's configuration.

    Gradio makes that copy for each session, and for each API call without one: 0.4 MB and 75 ms of
    the event loop. Only deep links read it, which this server does not offer.
    """

    def __init__(self, blocks: gradio.Blocks) -> None:
        self.blocks_config = copy(blocks.default_config)
        self.config_values: dict[int, Any] = {}
        self.state_data: dict[int, Any] = {}
        self._state_ttl: dict[int, Any] = {}
        self.is_closed = False
        self.STATE_TTL_WHEN_CLOSED = 3600

    def __setitem__(self, key: int, value: Any) -> None:
        block = self.blocks_config.blocks.get(key)
        if isinstance(block, gradio.State):
            super().__setitem__(key, value)
        else:
            self.blocks_config.blocks[key] = value

    def _update_config(self, key: int) -> None:
        """Store no copy of the configuration."""

    def _update_value_in_config(self, key: int, value: Any) -> None:
        """Store no copy of the configuration."""


def without_cors(app: ASGIApp, **_: Any) -> ASGIApp:
    """Replace Gradio's CORS middleware, which accepts credentials from any site, by none."""
    return app


def apply_patches() -> None:
    """Replace Gradio's session state, CORS middleware and tracebacks. Safe to call again."""
    for name in ("state_holder", "blocks", "route_utils", "mcp"):
        if module := sys.modules.get(f"gradio.{name}"):
            module.SessionState = SessionState  # type: ignore[attr-defined]
    gradio.routes.CustomCORSMiddleware = without_cors
    gradio.queueing.traceback = gradio.routes.traceback = LoggedTraceback()
