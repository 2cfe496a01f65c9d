"""Requests of other sites and unknown clients, over real HTTP and once in a real browser.

The tests use only names that existed before the fixes, so that they run on the old code, too.
"""

import http.client
import json
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import sync_playwright

from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import AppServer
from tests.support.chromium import FLAGS, find_browser
from tests.support.page_client import PageClient

# The server fetches public addresses only; this makes 127.0.0.1 count as public.
LOOPBACK_IS_PUBLIC = """
import ipaddress
for name in ("is_private", "is_loopback", "is_reserved"):
    setattr(ipaddress.IPv4Address, name, property(lambda self: False))
"""
ATTACK = """<!doctype html><title>attack</title><script>
document.title = "ran on " + location.origin + " " + Object.keys(localStorage).length;
</script>"""


class ForeignSite:
    """A site of an attacker: a page with a script, and a count of its requests."""

    def __init__(self) -> None:
        site = self
        self.requests: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(ATTACK.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def site():
    site = ForeignSite()
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("customized")
    (folder / "sitecustomize.py").write_text(LOOPBACK_IS_PUBLIC)
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def local_app(tmp_path_factory, environment):
    app = AppServer(
        tmp_path_factory.mktemp("local"), **environment, PLAYGROUND_HOSTS="play.example.org"
    )
    yield app
    app.stop()


@pytest.fixture(scope="module")
def shared_app(tmp_path_factory, environment):
    app = AppServer(
        tmp_path_factory.mktemp("shared"),
        **environment,
        GRADIO_SERVER_NAME="0.0.0.0",
        PLAYGROUND_ADDRESS_MS="0",
    )
    yield app
    app.stop()


@pytest.fixture(params=[pytest.param("local_app", marks=pytest.mark.smoke), "shared_app"])
def app(request):
    return request.getfixturevalue(request.param)


def send(app, method, path, body=b"", **headers):
    """Send a request; return status, headers and body."""
    with closing(http.client.HTTPConnection("127.0.0.1", app.port, timeout=60)) as connection:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Content-Type": "application/json"} | headers)
        with connection.getresponse() as response:
            return response.status, response.headers, response.read()


# C1: a link takes over the app


def test_a_link_cannot_run_a_script_on_the_apps_origin(local_app, shared_app, site):
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium or Chrome on the path")

    def follow_links():
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
            actual = []
            for app in (local_app, shared_app):
                page = browser.new_page()
                response = page.goto(
                    f"{app.url}/gradio_api/file={site.url}/x.png", wait_until="load"
                )
                actual.append((response.status, "ran on" in page.title()))
            browser.close()
            return actual

    with ThreadPoolExecutor(
        1
    ) as thread:  # the event loop of the browser tests may be running in this thread
        actual = thread.submit(follow_links).result()
    assert actual == [(404, False)] * 2
    assert site.requests == []


def test_only_the_page_may_run_scripts(app):
    _, page, html = send(app, "GET", "/")
    policy = page["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    assert b"<script>" in html
    for path in ("/config", "/nothing", "/theme.css", "/manifest.json"):
        assert "sandbox" in send(app, "GET", path)[1]["content-security-policy"], path


# C2, C15: another site acts in a user's name

EVIL = "https://evil.example"
FOREIGN = [
    {"Origin": EVIL},
    {"Origin": EVIL, "X_Forwarded_Host": "evil.example"},
    {"Origin": "null"},
    {"Sec_Fetch_Site": "cross-site"},
]
CALLS = [
    ("POST", "/playground/api/hub/submit", {"kind": "push", "repo": "ada/pwned"}),
    ("POST", "/playground/api/runs/list", {"owner": "a" * 32}),
    ("POST", "/playground/datasets", {}),
    ("POST", "/playground/checkpoints", {}),
    (
        "POST",
        "/gradio_api/run/push",
        {"data": ["checkpoint:reverse", "ada/x", "", False, "main", False, 0, ""]},
    ),
    ("POST", "/gradio_api/call/models", {"data": [""]}),
    ("POST", "/gradio_api/queue/join", {"data": [""], "fn_index": 14, "session_hash": "abc"}),
    ("POST", "/gradio_api/mcp/", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ("GET", "/config", None),
    ("GET", "/gradio_api/info", None),
]


@pytest.mark.parametrize("headers", FOREIGN, ids=lambda headers: " ".join(headers))
@pytest.mark.parametrize(
    ("method", "path", "body"), CALLS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_request_of_another_site_is_rejected(app, headers, method, path, body):
    owner = {"X_Owner": new_owner_key(), "Accept": "application/json, text/event-stream"}
    status, response_headers, _ = send(
        app,
        method,
        path,
        json.dumps(body).encode() if body is not None else b"",
        **owner,
        **headers,
    )
    assert status == 403
    assert response_headers["access-control-allow-origin"] is None


@pytest.mark.parametrize(
    "path", ["/playground/api/hub/submit", "/gradio_api/run/push", "/gradio_api/queue/join", "/"]
)
def test_cross_origin_preflights_are_rejected(app, path):
    preflight_headers = {
        "Access_Control_Request_Method": "POST",
        "Access_Control_Request_Headers": "x-forwarded-host",
    }
    for origin in (EVIL, "http://localhost:1"):
        status, response_headers, _ = send(app, "OPTIONS", path, Origin=origin, **preflight_headers)
        assert status >= 400
        assert response_headers["access-control-allow-origin"] is None
        assert response_headers["access-control-allow-credentials"] is None


def test_a_page_of_this_server_is_served(app):
    origin = f"http://127.0.0.1:{app.port}"
    body = json.dumps({"owner": new_owner_key()}).encode()
    assert (
        send(
            app,
            "POST",
            "/playground/api/runs/list",
            body,
            Origin=origin,
            Sec_Fetch_Site="same-origin",
        )[0]
        == 200
    )
    assert (
        send(app, "GET", "/", Sec_Fetch_Site="cross-site")[0] == 200
    )  # following a link on another site


def test_a_forwarded_host_is_not_reflected_into_the_page(app):
    _, response_headers, html = send(app, "GET", "/", X_Forwarded_Host="cdn.evil.example")
    assert b"cdn.evil.example" not in html
    assert "no-cache" in response_headers["cache-control"]


@pytest.mark.smoke
def test_configured_hosts_are_served_and_others_rejected(local_app):
    assert local_app.get("/", Host="play.example.org")[0] == 200
    assert local_app.get("/", Host="evil.example")[0] == 400
    body = json.dumps({"owner": new_owner_key()}).encode()
    # a proxy that rewrites Host
    headers = {"Origin": "https://play.example.org", "Host": f"127.0.0.1:{local_app.port}"}
    assert send(local_app, "POST", "/playground/api/runs/list", body, **headers)[0] == 200


# C3: the server fetches a URL of the request


def files(url):
    """Return a file in a request: plain, nested, and with an escaped name."""
    data = {"path": url, "url": url, "meta": {"_type": "gradio.FileData"}}
    plain = json.dumps(data)
    return [
        plain,
        json.dumps([[data]]),
        json.dumps({"a": {"b": data}}),
        plain.replace("gradio.F", "\\u0067radio.F"),
    ]


@pytest.mark.parametrize("form", range(4))
def test_a_file_in_a_request_is_rejected_and_not_fetched(app, site, form):
    before = len(site.requests)
    value = files(f"{site.url}/big")[form]
    for path in (
        "/gradio_api/run/models",
        "/gradio_api/call/models",
        "/gradio_api/api/models",
        "/gradio_api/queue/join",
    ):
        body = f'{{"data": [{value}], "session_hash": "abc"}}'.encode()
        status, _, text = send(app, "POST", path, body)
        assert 400 <= status < 500
        assert str(app.checkpoints).encode() not in text
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "models", "arguments": {"owner": json.loads(value)}},
    }
    mcp = send(
        app,
        "POST",
        "/gradio_api/mcp/",
        json.dumps(call).encode(),
        Accept="application/json, text/event-stream",
    )
    assert mcp[0] == 422
    assert len(site.requests) == before


# C10: routes that write files


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gradio_api/process_recording"),
        ("GET", "/gradio_api/deep_link?session_hash=abc"),
        ("GET", "/?deep_link=abc"),
        ("GET", "/?deep%5Flink=abc"),
        ("POST", "/gradio_api/upload"),
        ("POST", "/gradio_api/component_server"),
        ("GET", "/gradio_api/custom_component/x%0aFORGED/client/component/a.js"),
        ("GET", "/static/../../etc/passwd"),
        ("GET", "/gradio_api/file%3Dhttp://x"),
        ("GET", "//gradio_api/file=http://x"),
        ("POST", "/gradio_api/stream/abc"),
    ],
)
def test_unused_routes_return_404(app, method, path):
    assert send(app, method, path)[0] == 404


# C11: secrets in the log

TOKEN = "hf_" + "CanaryToken" * 3


def test_invalid_requests_write_no_secret_to_the_log(shared_app):
    info = json.loads(shared_app.get("/gradio_api/info")[1])["named_endpoints"]
    owner = new_owner_key()
    config = json.loads(shared_app.get("/config")[1])
    event_ids = [event["id"] for event in config["dependencies"]]
    for name, endpoint in info.items():
        n_parameters = len(endpoint["parameters"])
        for count in {0, 1, 2, 3, n_parameters - 1, n_parameters + 1, n_parameters + 5} - {
            n_parameters,
            -1,
        }:
            body = json.dumps(
                {
                    "data": [TOKEN, owner, TOKEN, owner, TOKEN, owner, TOKEN, owner, TOKEN, owner][
                        :count
                    ]
                }
            ).encode()
            for route in ("run", "call", "api"):
                assert send(shared_app, "POST", f"/gradio_api/{route}{name}", body)[0] == 422, name
        invalid_bodies = [
            {"data": {TOKEN: owner}},
            {"data": TOKEN},
            {"data": None},
            {TOKEN: owner},
            [TOKEN, owner],
        ]
        for body in invalid_bodies:
            assert (
                send(shared_app, "POST", f"/gradio_api/run{name}", json.dumps(body).encode())[0]
                == 422
            )
        invalid_values = json.dumps({"data": [[TOKEN, {"owner": owner}]] * n_parameters}).encode()
        assert send(shared_app, "POST", f"/gradio_api/run{name}", invalid_values)[0] in (200, 500)
    for index in event_ids:  # the events of the page, by index
        body = json.dumps(
            {"data": [TOKEN, owner], "fn_index": index, "session_hash": secrets.token_hex(5)}
        ).encode()
        send(shared_app, "POST", "/gradio_api/queue/join", body)
        send(shared_app, "POST", "/gradio_api/run/predict", body)
    PageClient(shared_app, owner).call("runs/list")
    log = shared_app.log.read_text()
    assert TOKEN not in log
    assert owner not in log
    assert "Received inputs" not in log


def test_an_aborted_request_leaves_no_traceback(shared_app):
    for path in (
        "/playground/api/runs/poll",
        "/gradio_api/run/models",
        "/playground/datasets",
        "/playground/checkpoints",
    ):
        connection = http.client.HTTPConnection("127.0.0.1", shared_app.port, timeout=60)
        connection.putrequest("POST", path)
        connection.putheader("content-length", "1000")
        connection.putheader("x-owner", new_owner_key())
        connection.endheaders(b'{"half":')
        connection.close()
    assert send(shared_app, "GET", "/config")[0] == 200
    assert "Traceback" not in shared_app.log.read_text()
