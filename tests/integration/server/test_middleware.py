"""The app as Gradio builds it: the routes that are served, and the state of lost sessions."""

import json
import re
import subprocess
import sys

import pytest

from playground.server.middleware import RouteFilterMiddleware
from playground.server.rate_limit import LoadLimits
from tests.support.app_server import ROOT

# Those of Gradio that the page and the API use, as (method, template).
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
def test_only_listed_routes_are_served(launched_app):
    routes = {(method, path) for method, path in launched_app["routes"]}
    own_routes = {route for route in routes if route[1].startswith("/playground/")}
    listed = {(method, path) for method, paths in USED.items() for path in paths}
    assert listed < routes, "Gradio registers other routes"
    assert own_routes
    route_filter = RouteFilterMiddleware(None, can_sign_in=False, load=LoadLimits(0, 0))
    for method, template in routes:
        path = re.sub(r"\{[^}]*\}", "list", template)
        is_used = (method, template) in listed | own_routes
        assert (route_filter.find_load(method, path) is not None) is is_used, (method, path)


def test_page_contains_no_script_or_style_of_a_tab(launched_app):
    """Check that modules and stylesheets are separate files, which browsers cache."""
    names = {view["elem_id"] for view in launched_app["views"]}
    assert names >= {"train-tab", "inspect", "compare", "lab", "hub", "learn"}
    for props in launched_app["views"]:
        assert props["css_template"] == ""
        assert re.search(r"playground/static/[\w.+-]+/\w+/\w+\.js", props["js_on_load"])
        assert len(props["js_on_load"]) < 700
    assert launched_app["config_bytes"] < 150_000


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
