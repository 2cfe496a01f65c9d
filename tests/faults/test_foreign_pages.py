"""Requests of other sites and unknown clients, over real HTTP and once in a real browser.

tests/unit/server/test_middleware.py has the same requests without a server.
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
def app(tmp_path_factory):
    """Start a shared instance."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "sitecustomize.py").write_text(LOOPBACK_IS_PUBLIC)
    app = AppServer(
        folder, PYTHONPATH=str(folder), GRADIO_SERVER_NAME="0.0.0.0", PLAYGROUND_ADDRESS_MS="0"
    )
    yield app
    app.stop()


def send(app, method, path, body=b"", **headers):
    """Send a request; return status, headers and body."""
    with closing(http.client.HTTPConnection("127.0.0.1", app.port, timeout=60)) as connection:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Content-Type": "application/json"} | headers)
        with connection.getresponse() as response:
            return response.status, response.headers, response.read()


def test_a_link_cannot_run_a_script_on_the_apps_origin(app, site):
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium or Chrome on the path")

    def follow_link():
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
            page = browser.new_page()
            response = page.goto(f"{app.url}/gradio_api/file={site.url}/x.png", wait_until="load")
            actual = response.status, "ran on" in page.title()
            browser.close()
            return actual

    with ThreadPoolExecutor(
        1
    ) as thread:  # the event loop of the browser tests may be running in this thread
        assert thread.submit(follow_link).result() == (404, False)
    assert site.requests == []


# The server fetches no URL of a request


def files(url):
    """Return a file in a request: plain, nested, and with an escaped name."""
    data = {"path": url, "url": url, "meta": {"_type": "gradio.FileData"}}
    plain = json.dumps(data)
    return [plain, json.dumps({"a": [[data]]}), plain.replace("gradio.F", "\\u0067radio.F")]


@pytest.mark.parametrize("form", range(3))
def test_a_file_in_a_request_is_rejected_and_not_fetched(app, site, form):
    before = len(site.requests)
    value = files(f"{site.url}/big")[form]
    for path in ("run/models", "call/models", "api/models", "queue/join"):
        body = f'{{"data": [{value}], "session_hash": "abc"}}'.encode()
        status, _, text = send(app, "POST", f"/gradio_api/{path}", body)
        assert 400 <= status < 500
        assert str(app.checkpoints).encode() not in text
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "models", "arguments": {"owner": json.loads(value)}},
    }
    accepted = {"Accept": "application/json, text/event-stream"}
    mcp = send(app, "POST", "/gradio_api/mcp/", json.dumps(call).encode(), **accepted)
    assert mcp[0] == 422
    assert len(site.requests) == before


# Secrets in the log

TOKEN = "hf_" + "CanaryToken" * 3


def test_invalid_requests_write_no_secret_to_the_log(app):
    info = json.loads(app.get("/gradio_api/info")[1])["named_endpoints"]
    config = json.loads(app.get("/config")[1])
    owner = new_owner_key()

    def status_of(path, body):
        return send(app, "POST", f"/gradio_api/{path}", json.dumps(body).encode())[0]

    for name, endpoint in info.items():
        n_parameters = len(endpoint["parameters"])
        too_many = [TOKEN, owner] * n_parameters + [TOKEN]
        for route in ("run", "call", "api"):
            assert status_of(f"{route}{name}", {"data": too_many}) == 422, name
        assert status_of(f"run{name}", {"data": [[TOKEN, owner]] * n_parameters}) in (200, 500)
    for body in ({"data": {TOKEN: owner}}, {"data": TOKEN}, {TOKEN: owner}, [TOKEN, owner]):
        assert status_of("run/models", body) == 422
    for event in config["dependencies"]:  # the events of the page, by index
        body = {"data": [TOKEN, owner], "fn_index": event["id"]}
        status_of("queue/join", body | {"session_hash": secrets.token_hex(5)})
        status_of("run/predict", body)
    PageClient(app, owner).call("runs/list")
    log = app.log.read_text()
    assert TOKEN not in log
    assert owner not in log
    assert "Received inputs" not in log


def test_an_aborted_request_leaves_no_traceback(app):
    for path in (
        "/playground/api/runs/poll",
        "/gradio_api/run/models",
        "/playground/datasets",
        "/playground/checkpoints",
    ):
        connection = http.client.HTTPConnection("127.0.0.1", app.port, timeout=60)
        connection.putrequest("POST", path)
        connection.putheader("content-length", "1000")
        connection.putheader("x-owner", new_owner_key())
        connection.endheaders(b'{"half":')
        connection.close()
    assert send(app, "GET", "/config")[0] == 200
    assert "Traceback" not in app.log.read_text()
