"""What the server assumes of Gradio and uvicorn beyond their documentation.

tests/integration/server/test_middleware.py has the routes. docs/architecture.md states what each
assumption is for.
"""

import inspect
from collections.abc import Callable
from typing import Any

import gradio as gr
import gradio.blocks
import gradio.http_server
import gradio.mcp
import gradio.oauth
import gradio.queueing
import gradio.route_utils
import gradio.routes
import gradio.server_messages
import gradio.utils
import pytest
import starlette.responses
import uvicorn
from gradio.block_function import BlockFunction
from gradio.utils import LRUCache
from uvicorn.protocols.http import h11_impl
from uvicorn.server import ServerState

LAUNCH_OPTIONS = (
    "theme css head server_name server_port root_path share pwa favicon_path footer_links "
    "max_file_size enable_monitoring run_history ssr_mode state_session_capacity _frontend "
    "show_error mcp_server app_kwargs inbrowser"
)


def accepts(function: Callable[..., Any], names: str) -> bool:
    return set(names.split()) <= inspect.signature(function).parameters.keys()


def contains(code: Any, *texts: str) -> bool:
    source = inspect.getsource(code)
    return all(text in source for text in texts)


def has(thing: Any, names: str) -> bool:
    return all(hasattr(thing, name) for name in names.split())


def documented(value: int) -> None:
    """Do it.

    Args:
        value: what it takes.

    Returns:
        what it
        returns.
    """


ASSUMPTIONS: dict[str, Callable[[], bool]] = {
    "Blocks.launch takes the options of launch_options": lambda: accepts(
        gr.Blocks.launch, LAUNCH_OPTIONS
    ),
    "Blocks.queue takes an interval of messages, a default limit and a size": lambda: accepts(
        gr.Blocks.queue, "status_update_rate default_concurrency_limit max_size"
    ),
    "gr.api takes api_name and queue": lambda: accepts(gr.api, "api_name queue"),
    "create_app passes app_kwargs to App, and calls their lifespan": lambda: contains(
        gradio.routes, "**app_kwargs", 'user_lifespan = app_kwargs["lifespan"]'
    ),
    "gradio.http_server creates uvicorn.Config by its name in uvicorn": lambda: contains(
        gradio.http_server, "uvicorn.Config("
    ),
    "Blocks stores its uvicorn server as server": lambda: contains(gradio.blocks, "self.server = "),
    "Blocks has its functions as fns, and describes endpoints in get_api_info": lambda: (
        contains(gradio.blocks, "self.fns", "self._queue = ", "self.default_config = ")
        and has(gr.Blocks, "get_api_info")
    ),
    "Blocks.fns have functions with the names of the API": lambda: contains(
        BlockFunction.__init__, "self.fn = fn", "self.api_name = api_name"
    ),
    "get_function_description reads arguments and result from a docstring": lambda: (
        gradio.utils.get_function_description(documented)
        == ("Do it.", {"value": "what it takes."}, ["what it", "returns."])
    ),
    "get_root_url takes a request, the path of its route, and a root path": lambda: accepts(
        gradio.route_utils.get_root_url, "request route_path root_path"
    ),
    "App stores the description of the endpoints as api_info": lambda: contains(
        gradio.routes, "self.api_info = "
    ),
    "The queue has messages and unread events by session, and events by id": lambda: contains(
        gradio.queueing,
        "self.pending_messages_per_session: LRUCache",
        "self.pending_event_ids_session",
        "self.event_ids_to_events",
    ),
    "The messages by session are an ordered dictionary": lambda: has(LRUCache, "move_to_end"),
    "Queue.clean_events removes the events of a session": lambda: accepts(
        gradio.queueing.Queue.clean_events, "session_hash"
    ),
    "An event that is not alive gets no message": lambda: contains(
        gradio.queueing.Queue.send_message, "if not event.alive:"
    ),
    "A stream of events ends when is_disconnected is true": lambda: contains(
        gradio.routes, "if await request.is_disconnected():"
    ),
    "A stream passes the text of UnexpectedErrorMessage on": lambda: (
        gradio.server_messages.UnexpectedErrorMessage(message="x").message == "x"
    ),
    "A stream of Starlette is not cancelled by a disconnect from ASGI 2.4 on": lambda: contains(
        starlette.responses, "spec_version >= (2, 4)"
    ),
    "The compiled page is in the folder BUILD_PATH_LIB": lambda: has(
        gradio.route_utils, "BUILD_PATH_LIB"
    ),
    "GradioMCPServer has the three methods that mcp_server.py overrides": lambda: has(
        gradio.mcp.GradioMCPServer, "get_tool_to_endpoint postprocess_output_data create_mcp_server"
    ),
    "MCP has no state, so a stream that a client opens with GET has no messages": lambda: contains(
        gradio.mcp, "stateless=True"
    ),
    "Signing in stores a token as oauth_info in the session": lambda: contains(
        gradio.oauth, 'request.session["oauth_info"] = '
    ),
    "uvicorn has its connections in a set": lambda: ServerState().connections == set(),
    "A connection of h11 has a transport, and a cycle with its state": lambda: contains(
        h11_impl, "self.transport", "self.cycle", "more_body", "response_started", "self.scope"
    ),
    "uvicorn.Config takes a parser, a size of headers, and no websockets": lambda: accepts(
        uvicorn.Config, "http h11_max_incomplete_event_size ws server_header"
    ),
}


@pytest.mark.parametrize("sentence", ASSUMPTIONS)
def test_gradio_and_uvicorn_are_as_assumed(sentence):
    try:
        holds = ASSUMPTIONS[sentence]()
    except (AttributeError, TypeError, ValueError):
        holds = False
    versions = f"Gradio {gr.__version__}, uvicorn {uvicorn.__version__}"
    assert holds, f"no longer true with {versions}: {sentence}"
