"""The app as Gradio builds it: the routes that are served, and the state of lost sessions."""

import json
import re
import subprocess
import sys

import pytest

from playground.server.api_page import API_PAGE
from playground.server.middleware import RouteFilterMiddleware
from playground.server.rate_limit import LoadLimits
from tests.support.app_server import ROOT

# Those of Gradio that the page and the API use, as (method, template).
USED = {
    "GET": {
        *("/", "/config", "/config/", "/favicon.ico", "/robots.txt", "/pwa_icon"),
        *("/manifest.json", "/gradio_api/info", "/gradio_api/info/"),
        *("/gradio_api/startup-events", "/gradio_api/queue/data"),
        *("/gradio_api/call/{api_name}/{event_id}", "/gradio_api/call/v2/{api_name}/{event_id}"),
        "/gradio_api/mcp/schema",
    },
    "POST": {
        "/gradio_api/queue/join",
        "/gradio_api/mcp",
        *(f"/gradio_api/{way}/{{api_name}}" for way in ("run", "api", "call", "call/v2")),
        *(f"/gradio_api/{way}/{{api_name}}/" for way in ("run", "api", "call", "call/v2")),
    },
    "HEAD": {"/", "/gradio_api/mcp/schema"},
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
from playground.server.rate_limit import LoadLimits

registry = Registry(Path(tempfile.mkdtemp()), idle_timeout_s=0, release_after_s=0)
answers = build_handlers(registry, ExperimentService(registry), False)
load = LoadLimits(0, 0)
page = build_app(Endpoints(registry, answers, load))
options = launch_options(registry, answers, None, None, load)
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
for number in range(300):
    app.state_holder[f"session-{number}"]

from starlette.testclient import TestClient
from playground.server import event_streams

# Sixty calls of as many sessions wait, because no task of the queue runs; no client reads them.
event_streams.MAX_SESSIONS = 20
client, queue = TestClient(app, base_url="http://127.0.0.1"), page._queue
statuses = [
    client.post("/gradio_api/call/models", json={"data": [""]}).status_code for _ in range(60)
]
for concurrency_id in queue.event_queue_per_concurrency_id:
    queue.broadcast_estimations(concurrency_id)  # KeyError for a session without messages
lost = {
    "statuses": sorted(set(statuses)), "waiting": len(queue), "live_updates": queue.live_updates,
    "sessions": len(queue.pending_messages_per_session), "ids": len(queue.pending_event_ids_session)
}
by_name = [
    client.post("/gradio_api/call/v2/" + path, json=body).status_code
    for path, body in json.loads(sys.argv[1])
]
print(json.dumps({
    "config_bytes": len(json.dumps(config)),
    "lost": lost, "by_name": by_name, "routes": sorted(set(registered(app.routes))),
    "sessions": len(app.state_holder.session_data),
}))
import os; sys.stdout.flush(); os._exit(0)
"""


BY_NAME_ANSWERS = (
    ("models", {}, 200),
    ("models", {"owner": ""}, 200),
    ("predict", {"model": "checkpoint:reverse", "sequence": "3 1 4"}, 200),
    ("models", {"unknown": 1}, 422),
    ("models/", {"owner": "", "data": []}, 422),
    ("predict", {"model": "checkpoint:reverse"}, 422),
    ("predict", {"sequence": "3 1 4", "modle": "checkpoint:reverse"}, 422),
    ("predict", {"request": {}}, 422),
    ("on_load", {}, 404),
    ("nothing", {}, 404),
)
BY_NAME = [(path, body) for path, body, _ in BY_NAME_ANSWERS]


@pytest.fixture(scope="module")
def launched_app():
    """Launch the app in a subprocess; return what it registers."""
    completed = subprocess.run(
        [sys.executable, "-c", BUILD, json.dumps(BY_NAME)], cwd=ROOT, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


@pytest.mark.smoke
def test_only_listed_routes_are_served(launched_app):
    routes = {(method, path) for method, path in launched_app["routes"]}
    own_routes = {route for route in routes if route[1].startswith(("/playground/", API_PAGE.path))}
    own_routes -= {("HEAD", "/playground/checkpoints/{ticket}")}  # a ticket is valid once
    listed = {(method, path) for method, paths in USED.items() for path in paths}
    assert listed < routes, "Gradio registers other routes"
    assert own_routes
    route_filter = RouteFilterMiddleware(None, can_sign_in=False, load=LoadLimits(0, 0))
    for method, template in routes:
        path = re.sub(r"\{[^}]*\}", "list", template)
        is_used = (method, template) in listed | own_routes
        assert (route_filter.find_load(method, path) is not None) is is_used, (method, path)


def test_gradio_holds_nothing_of_the_page(launched_app):
    assert launched_app["config_bytes"] < 40_000


def test_gradio_has_a_limited_number_of_sessions(launched_app):
    assert launched_app["sessions"] <= 100


@pytest.mark.smoke
def test_the_oldest_unread_calls_end_at_the_limit_of_sessions(launched_app):
    assert launched_app["lost"] == {
        "statuses": [200],
        "waiting": 20,
        "sessions": 20,
        "ids": 20,
        "live_updates": False,
    }


def test_a_call_by_name_with_wrong_arguments_is_rejected(launched_app):
    assert launched_app["by_name"] == [expected for _, _, expected in BY_NAME_ANSWERS]
