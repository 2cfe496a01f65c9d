import http.client
import json
import subprocess
import sys
from contextlib import closing

import pytest

from playground.runs.owner_keys import new_owner_key, owner_from_session
from playground.runs.registry import Registry
from playground.server.app import is_public
from playground.server.live_api import overlay_curves, poll_model, predict, snapshot
from playground.server.runs_api import list_runs, run_action, run_details
from tests.support.app_server import ROOT, AppServer
from tests.support.coroutines import run_in_thread


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    server = AppServer(tmp_path_factory.mktemp("app"))
    yield server
    server.stop()


def test_app_starts_behind_a_proxy_that_rejects_local_requests(tmp_path):
    proxy = "http://127.0.0.1:9"
    server = AppServer(tmp_path, HTTP_PROXY=proxy, http_proxy=proxy, NO_PROXY="intranet.example")
    assert server.get("/config")[0] == 200
    server.stop()


def test_a_page_holds_no_connection(app):
    config = json.loads(app.get("/config")[1])
    assert config["connect_heartbeat"] is False
    assert config["analytics_enabled"] is False


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.nip.io"]
)
def test_a_foreign_host_is_rejected(app, host):
    assert app.get("/", Host=host)[0] == 400
    assert app.get("/config", Host=host)[0] == 400


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://localhost.evil.example", "http://localhost:1", "null"],
)
def test_a_page_of_another_site_is_rejected(app, origin):
    assert app.get("/config", Origin=origin)[0] == 403
    assert app.get("/", Origin=origin)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_this_machine_is_served(app, host):
    assert app.get("/", Host=f"{host}:{app.port}", Origin=f"http://{host}:{app.port}")[0] == 200


@pytest.mark.smoke
def test_building_the_page_imports_neither_torch_nor_transformers():
    script = (
        "import sys, playground.server.app; print(*[m for m in ('torch', 'transformers', "
        "'datasets', 'matplotlib.pyplot') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("path", "length", "code"),
    [
        ("gradio_api/upload", 1, 404),
        ("gradio_api/upload?upload_id=x", 1, 404),
        ("playground/api/runs/poll", 70_000, 413),
        ("playground/api/jobs/submit", 2_000_000, 413),
        ("gradio_api/queue/join", 70_000, 413),
    ],
)
def test_large_requests_are_rejected_before_their_body(app, path, length, code):
    connection = http.client.HTTPConnection("127.0.0.1", app.port, timeout=60)
    connection.putrequest("POST", f"/{path}")
    connection.putheader("content-length", str(length))
    connection.endheaders()
    with closing(connection), connection.getresponse() as answer:
        assert answer.status == code


@pytest.mark.parametrize(
    ("host", "space", "opened"),
    [
        (None, "", False),
        ("", "", False),
        ("127.0.0.1", "", False),
        ("localhost", "", False),
        ("0.0.0.0", "", True),
        (None, "a/b", True),
    ],
)
def test_only_a_space_or_a_foreign_address_opens_the_app_to_all(monkeypatch, host, space, opened):
    monkeypatch.delenv("SPACE_ID", raising=False)
    if space:
        monkeypatch.setenv("SPACE_ID", space)
    assert is_public(host) is opened


HOSTILE = [
    None,
    3,
    "x",
    [],
    {},
    {"subject": None},
    {"subject": ["a"]},
    {"subject": "checkpoint:../../etc"},
    {"subject": "checkpoint:"},
    {"subject": "checkpoint:runs"},
    {"subject": "x" * 100_000},
    {"subject": "checkpoint:reverse\x00"},
    {"subject": "run:", "owner": ""},
    {"subject": "run:x", "owner": None},
    {"subject": "watch:"},
    {"subject": "watch:\ud800"},
    {
        "subject": "run:\ud800",
        "owner": "\ud800",
        "n_points": -1,
        "series_id": "x",
        "snapshot_version": 1e99,
    },
]


@pytest.mark.parametrize("request_", HOSTILE, ids=lambda request: repr(request)[:40])
def test_hostile_requests_reach_nothing(tmp_path, request_):
    registry = Registry(tmp_path)
    response = run_in_thread(poll_model(registry, request_))
    assert "error" in response or response["status"] == "not-found"
    for endpoint in (predict, snapshot, run_action, run_details):
        assert "error" in run_in_thread(endpoint(registry, request_))
    assert run_in_thread(overlay_curves(registry, request_)).get("curves", []) == []
    assert run_in_thread(list_runs(registry, request_)).get("runs", []) == []


@pytest.mark.parametrize(
    "memory",
    [
        None,
        "",
        "x",
        3,
        [],
        {},
        "null",
        "[]",
        '{"owner": "\u00e9", "subject": ""}',
        '{"owner": 3, "subject": 4}',
        "[" * 9999,
    ],
)
def test_invalid_browser_storage_gets_a_new_owner(memory):
    assert owner_from_session(memory) == ""
    owner = new_owner_key()
    assert owner_from_session(json.dumps({"owner": owner})) == owner
