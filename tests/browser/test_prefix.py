"""The page below a path of a proxy, which removes the path from each request."""

import http.client
import threading
import urllib.request
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from gradio_client import Client
from playwright.sync_api import expect

from tests.support.app_server import AppServer
from tests.support.browser_page import go_to, wait_for_status

PREFIX = "/play"
PAIRS = "".join(f"{a}{b}{c}\t{c}{b}{a}\n" for a in "abcdef" for b in "abcdef" for c in "abcdef")


class Proxy(BaseHTTPRequestHandler):
    """Pass a request below the path on to `port`; answer 404 to any other."""

    port = 0
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.close_connection = True
        if not self.path.startswith(PREFIX + "/"):
            self.send_error(404)
            return
        server = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name != "Connection"}
        server.request(self.command, self.path.removeprefix(PREFIX), body, headers)
        # the client may close a stream of events
        with closing(server), server.getresponse() as response, suppress(ConnectionError):
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            while data := response.read1(1 << 16):
                self.wfile.write(data)

    do_GET = do_POST = do_HEAD = pass_on


@pytest.fixture
def address(tmp_path):
    """The address of the page behind the proxy."""
    app = AppServer(tmp_path, GRADIO_ROOT_PATH=PREFIX)
    handler = type("ProxyOfApp", (Proxy,), {"port": app.port})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{proxy.server_port}{PREFIX}/"
        proxy.shutdown()
    app.stop()


def test_page_uploads_links_and_api_work_below_a_path(address, open_page):
    # Chromium complains about /favicon.ico, which it requests at the root of any host
    page, requested = open_page(address, visit=False, may_complain=True), []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(address)
    for tab in ("Inspect", "Compare", "Hub", "Learn", "Train"):
        go_to(page, tab)
    wait_for_status(page, "checkpoint")
    page.select_option("#field-task select", "dataset")
    page.click(".dataset-panel [data-value=file]")
    file = {"name": "words.tsv", "mimeType": "text/plain", "buffer": PAIRS.encode()}
    page.set_input_files(".dataset-panel .file", file)
    expect(page.locator(".dataset-panel .counts")).to_contain_text("6 different characters")
    assert [url for url in requested if "/playground/datasets" in url]
    outside = {url for url in requested if url.startswith("http")}
    assert {url for url in outside if not url.startswith(address)} == set()
    links = page.eval_on_selector_all("#help a", "links => links.map(link => link.href)")
    own = [link for link in links if link.startswith(address.removesuffix(PREFIX + "/"))]
    assert own
    for link in own:
        assert link.startswith(address)
        with urllib.request.urlopen(link, timeout=60) as response:
            assert response.status == 200
    with urllib.request.urlopen(f"{address}api", timeout=60) as response:
        assert f"curl -sN {address}gradio_api/call/predict/" in response.read().decode()
    client = Client(address, verbose=False)
    answer = client.predict(model="checkpoint:reverse", sequence="3 1 4", api_name="/predict")
    assert answer["prediction"] == ["4", "1", "3"]
    client.close()
