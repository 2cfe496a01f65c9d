"""The routes that are served.

Gradio registers many unused routes; new ones must be added to one of these lists.
"""

import json
import re
import subprocess
import sys

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from playground.server.middleware import (
    CompressionMiddleware,
    RouteFilterMiddleware,
    build_middleware,
    check_json,
)
from playground.server.rate_limit import LoadLimits
from tests.support.app_server import ROOT

# All that Gradio 6.31 registers with this page, as (method, template).
USED = {
    "GET": {
        "/",
        "/config",
        "/config/",
        "/static/{path:path}",
        "/assets/{path:path}",
        "/favicon.ico",
        "/theme.css",
        "/robots.txt",
        "/pwa_icon",
        "/manifest.json",
        "/gradio_api/info",
        "/gradio_api/info/",
        "/gradio_api/startup-events",
        "/gradio_api/theme.css",
        "/gradio_api/queue/data",
        "/gradio_api/call/{api_name}/{event_id}",
        "/gradio_api/call/v2/{api_name}/{event_id}",
        "/gradio_api/mcp/schema",
    },
    "POST": {
        "/gradio_api/queue/join",
        "/gradio_api/mcp",
        *(f"/gradio_api/{way}/{{api_name}}" for way in ("run", "api", "call", "call/v2")),
        *(f"/gradio_api/{way}/{{api_name}}/" for way in ("run", "api", "call", "call/v2")),
    },
    "HEAD": {"/", "/assets/{path:path}", "/gradio_api/mcp/schema"},
}
UNUSED = {
    "GET": {
        "/pwa_icon/{size}",
        "/openapi.json",
        "/logout",
        "/svelte/{path:path}",
        "/monitoring",
        "/monitoring/summary",
        "/monitoring/{key}",
        "/gradio_api/deep_link",
        "/gradio_api/user",
        "/gradio_api/user/",
        "/gradio_api/login_check",
        "/gradio_api/login_check/",
        "/gradio_api/token",
        "/gradio_api/token/",
        "/gradio_api/app_id",
        "/gradio_api/app_id/",
        "/gradio_api/dev/reload",
        "/gradio_api/runs",
        "/gradio_api/runs/",
        "/gradio_api/openapi.json",
        "/gradio_api/proxy={url_path:path}",
        "/gradio_api/custom_component/{id}/{environment}/{type}/{file_name}",
        "/gradio_api/file={path_or_url:path}",
        "/gradio_api/stream/{session_hash}/{run}/{component_id}/playlist.m3u8",
        "/gradio_api/file/{path:path}",
        "/gradio_api/stream/{session_hash}/{run}/{component_id}/{segment_id}.{ext}",
        "/gradio_api/heartbeat/{session_hash}",
        "/gradio_api/stream/{session_hash}/{run}/{component_id}/playlist-file",
        "/gradio_api/queue/status",
        "/gradio_api/upload_progress",
        "/gradio_api/vibe-code",
        "/gradio_api/vibe-code/",
        "/gradio_api/mcp/sse",
        "/gradio_api/run-history/buckets",
        "/gradio_api/run-history/records",
        "/gradio_api/run-history/records/{endpoint}/{record_id}/assets/{asset_id}",
    },
    "POST": {
        "/gradio_api/run-history/connect",
        "/login",
        "/login/",
        "/gradio_api/stream/{event_id}",
        "/gradio_api/stream/{event_id}/close",
        "/gradio_api/reset",
        "/gradio_api/reset/",
        "/gradio_api/cancel",
        "/gradio_api/component_server",
        "/gradio_api/component_server/",
        "/gradio_api/upload",
        "/gradio_api/process_recording",
        "/gradio_api/vibe-edit",
        "/gradio_api/vibe-edit/",
        "/gradio_api/undo-vibe-edit",
        "/gradio_api/undo-vibe-edit/",
        "/gradio_api/vibe-code",
        "/gradio_api/vibe-code/",
        "/gradio_api/vibe-starter-queries",
        "/gradio_api/vibe-starter-queries/",
        "/gradio_api/mcp/messages",
    },
    "HEAD": {
        "/openapi.json",
        "/gradio_api/proxy={url_path:path}",
        "/gradio_api/file={path_or_url:path}",
        "/gradio_api/mcp/sse",
    },
}


# In a separate process: what Gradio opens while it builds a page stays open until the process
# ends.
BUILD = """
import json, sys, tempfile
from pathlib import Path
from gradio.routes import App
from starlette.routing import Mount
from playground.experiments.service import ExperimentService
from playground.runs.registry import Registry
from playground.server.api import Endpoints
from playground.server.app import build_handlers, build_app, launch_options

registry = Registry(Path(tempfile.mkdtemp()), idle_timeout_s=0, release_after_s=0)
answers = build_handlers(registry, ExperimentService(registry), False)
page = build_app(registry, Endpoints(registry, answers, False))
options = launch_options(registry, answers, None, None)
page.state_session_capacity = options["state_session_capacity"]
app = App.create_app(page, app_kwargs=options["app_kwargs"], mcp_server=True)

def registered(routes, prefix=""):
    for route in routes:
        if hasattr(route, "original_router"):
            yield from registered(route.original_router.routes, prefix)
        elif isinstance(route, Mount) and route.routes:
            yield from registered(route.routes, prefix + route.path)
        elif isinstance(route, Mount):  # an application without routes of its own
            yield "POST", prefix + route.path
        else:
            yield from ((method, prefix + route.path) for method in route.methods)

config = page.get_config_file()
copies = []
type(page.default_config).config_for_block = lambda *_: copies.append(1)
for number in range(300):
    state = app.state_holder[f"session-{number}"]
    state._update_value_in_config(next(iter(page.blocks)), "x")

import asyncio
from gradio.data_classes import PredictBodyInternal

async def lose_sessions():
    # One event waits; 4,500 other sessions have events that end, and never read their messages.
    queue = page._queue
    functions = [fn for fn in page.fns.values() if fn.validator is None]
    waiting = next(fn for fn in functions if fn.concurrency_limit is not None)
    other = next(fn for fn in functions if fn.concurrency_id != waiting.concurrency_id)

    async def push(fn, session):
        body = PredictBodyInternal(session_hash=session, fn_index=fn._id, data=[])
        assert (await queue.push(body, None, None))[0]

    await push(waiting, "waiting")
    for number in range(4500):
        await push(other, f"other-{number}")
        event = queue.event_queue_per_concurrency_id[other.concurrency_id].queue.pop()
        del queue.event_ids_to_events[event._id]
    try:
        for _ in range(300):
            queue.broadcast_estimations(waiting.concurrency_id)
        estimates = queue.pending_messages_per_session["waiting"].qsize()
    except KeyError as error:
        estimates = repr(error)
    pending, unread = queue.pending_messages_per_session, queue.pending_event_ids_session
    return {"estimates": estimates, "pending": len(pending), "unread": len(unread)}

lost = asyncio.run(lose_sessions())
print(json.dumps({
    "views": [
        component["props"] for component in config["components"]
        if component["type"] == "html" and component["props"].get("html_template") == ""
    ],
    "config_bytes": len(json.dumps(config)),
    "lost": lost, "routes": sorted(set(registered(app.routes))), "copies": len(copies),
    "sessions": len(app.state_holder.session_data),
    "middleware": [middleware.cls.__name__ for middleware in app.user_middleware],
}))
import os; sys.stdout.flush(); os._exit(0)
"""


@pytest.fixture(scope="module")
def launched_app():
    """Launch the app in a subprocess; return what it registers."""
    completed = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=ROOT, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


@pytest.mark.smoke
def test_every_registered_route_is_listed_as_used_or_unused(launched_app):
    routes = {(method, path) for method, path in launched_app["routes"]}
    own_routes = {route for route in routes if route[1].startswith("/playground/")}
    listed = {
        (method, path)
        for group in (USED, UNUSED)
        for method, paths in group.items()
        for path in paths
    }
    assert routes - own_routes == listed, (
        "Gradio registers other routes: decide for each, and list it here"
    )
    route_filter = RouteFilterMiddleware(None, can_sign_in=False, load=LoadLimits(0, 0))
    for method, template in routes:
        path = re.sub(r"\{[^}]*\}", "list", template)
        is_used = template in USED.get(method, ()) or (method, template) in own_routes
        assert (route_filter.find_load(method, path) is not None) is is_used, (method, path)


def test_page_contains_no_script_or_style_of_a_tab(launched_app):
    """Check that modules and stylesheets are separate files, which browsers cache."""
    names = {view["elem_id"] for view in launched_app["views"]}
    assert names >= {"live", "inspect", "compare", "lab", "hub", "learn"}
    for props in launched_app["views"]:
        assert props["css_template"] == ""
        assert re.search(r"playground/static/[\w.+-]+/\w+/\w+\.js", props["js_on_load"])
        assert len(props["js_on_load"]) < 700
    assert launched_app["config_bytes"] < 150_000


@pytest.mark.parametrize("path", ["/login/huggingface", "/login/callback", "/logout"])
def test_sign_in_is_served_on_a_space_only(path):
    assert (
        RouteFilterMiddleware(None, can_sign_in=True, load=LoadLimits(0, 0)).find_load("GET", path)
        is not None
    )
    assert (
        RouteFilterMiddleware(None, can_sign_in=False, load=LoadLimits(0, 0)).find_load("GET", path)
        is None
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": NaN}',
        b"[" * 6000,
        b'{"a": [' + b"[]," * 6000 + b"[]]}",
        b'{"gradio.FileData": 1}',
        b'["gradio\\u002eFileData"]',
    ],
)
def test_json_of_the_wrong_shape_is_rejected(body):
    with pytest.raises(ValueError, match=r"lists and objects|JSON object|files are not"):
        check_json(body)


# What gradio_patches.py changes


def test_a_session_copies_no_configuration(launched_app):
    assert launched_app["copies"] == 0
    assert launched_app["sessions"] <= 100


@pytest.mark.smoke
def test_unread_session_does_not_delay_messages_of_others(launched_app):
    assert launched_app["lost"]["estimates"] in range(1, 101), (
        "the queue stops, or keeps every estimate"
    )
    assert launched_app["lost"]["pending"] <= 2000
    assert launched_app["lost"]["unread"] <= 4000


def test_no_middleware_grants_other_origins(launched_app):
    assert "without_cors" in launched_app["middleware"]
    assert not any("CORS" in name for name in launched_app["middleware"])


@pytest.mark.parametrize(
    ("is_open", "environment", "checked"),
    [
        (False, {}, True),
        (True, {}, False),
        (True, {"SPACE_HOST": "a-b.hf.space"}, False),
        (True, {"PLAYGROUND_HOSTS": "x.org"}, True),
    ],
)
def test_hosts_are_checked_locally_and_when_configured(monkeypatch, is_open, environment, checked):
    """Check no hosts on a Space: health checks use a host name that the app does not know."""
    for name in ("SPACE_HOST", "PLAYGROUND_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    classes = [
        middleware.cls.__name__ for middleware in build_middleware(is_open, False, LoadLimits(0, 0))
    ]
    assert ("TrustedHostMiddleware" in classes) is checked


@pytest.mark.parametrize(
    ("path", "accepted", "size", "encoding"),
    [
        ("/", "gzip, deflate, br", 1000, "br"),
        ("/", "gzip", 1000, "gzip"),
        ("/", "identity", 1000, None),
        ("/playground/api/runs/list", "gzip, br", 1000, "br"),
        ("/playground/api/runs/poll", "gzip, br", 999, None),
        ("/config", "gzip, br", 1000, None),
    ],
)
def test_page_and_large_responses_are_compressed(path, accepted, size, encoding):
    async def respond(scope, receive, send):
        await PlainTextResponse("x" * size)(scope, receive, send)

    client = TestClient(CompressionMiddleware(respond))
    response = client.get(path, headers={"Accept-Encoding": accepted})
    assert response.text == "x" * size
    assert response.headers.get("content-encoding") == encoding
