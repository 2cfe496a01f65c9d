"""Serve the public API: endpoints for gradio_client, plain HTTP and MCP.

MCP needs `gradio[mcp]`. Each endpoint calls a handler of the page (routes.py), so one module
decides what a caller may read and do.

Ownership: `start` returns the run's id and a random owner key; a caller with both may control the
run. A `model` is a run's id (with its owner key), `watch:ID` from a share link, or
`checkpoint:NAME`. On a local instance, a missing key means its single owner.

Gradio reads names, types and descriptions from the signatures and docstrings in endpoints/, one
line per argument. No endpoint uses Gradio's queue, because the buttons of the page use it.
"""

from importlib.util import find_spec

import gradio as gr

from .endpoints.base import with_user_errors
from .endpoints.inference import InferenceEndpoints
from .endpoints.jobs import JobEndpoints
from .endpoints.runs import RunEndpoints


def has_mcp() -> bool:
    """Return whether the endpoints can be served as MCP tools."""
    return find_spec("mcp") is not None


class Endpoints(RunEndpoints, InferenceEndpoints, JobEndpoints):
    """All endpoints."""

    def register(self) -> None:
        """Add the endpoints to the page under construction."""
        if has_mcp():
            from . import mcp_server

            mcp_server.install()
        for method in (
            self.settings,
            self.models,
            self.start,
            self.status,
            self.pause,
            self.resume,
            self.stop,
            self.predict,
            self.attention,
            self.evaluate,
            self.compare,
            self.push,
            self.job,
            self.cancel,
        ):
            gr.api(with_user_errors(method), api_name=method.__name__, queue=False)
