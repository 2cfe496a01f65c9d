"""Every file of the front end, as a browser requests it."""

import gzip

import brotli
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.server.middleware import build_middleware
from playground.server.rate_limit import LoadLimits
from playground.server.static_files import static_route
from playground.ui.mount import STATIC_DIR, STATIC_URL

FILES = sorted(
    path.relative_to(STATIC_DIR).as_posix() for path in STATIC_DIR.rglob("*") if path.is_file()
)
DECODERS = {"br": brotli.decompress, "gzip": gzip.decompress}
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


def connect(root_path=""):
    middleware = build_middleware(False, False, LoadLimits(0, 0))
    app = Starlette(routes=[static_route()], middleware=middleware)
    return TestClient(app, base_url="http://localhost", root_path=root_path)


@pytest.fixture(scope="module")
def client():
    return connect()


@pytest.mark.parametrize(("accepted", "encoding"), [("gzip", "gzip"), ("gzip, deflate, br", "br")])
@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(tuple(TYPES))])
def test_file_is_served_compressed_and_may_be_cached(client, name, accepted, encoding):
    path = STATIC_DIR / name
    with client.stream("GET", STATIC_URL + name, headers={"Accept-Encoding": accepted}) as response:
        body = b"".join(response.iter_raw())
    assert response.status_code == 200
    assert response.headers["content-type"] == TYPES[path.suffix]
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert response.headers["x-content-type-options"] == "nosniff"
    if path.stat().st_size >= 500:
        assert response.headers["vary"] == "Accept-Encoding"
        assert response.headers["content-encoding"] == encoding
        assert int(response.headers["content-length"]) == len(body) < path.stat().st_size
        body = DECODERS[encoding](body)
    assert body == path.read_bytes()


@pytest.mark.smoke
def test_client_without_compression_gets_the_file_itself(client):
    response = client.get(STATIC_URL + "hub/main.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in response.headers
    assert response.content == (STATIC_DIR / "hub" / "main.js").read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        STATIC_URL + "hub/missing.js",
        STATIC_URL + "hub",
        STATIC_URL,
        STATIC_URL.rsplit("/", 2)[0] + "/0.0.1-000000000000/hub/main.js",
        STATIC_URL + "../mount.py",
        STATIC_URL + "hub/..%2f..%2fmount.py",
        STATIC_URL + "hub/%2e%2e/%2e%2e/mount.py",
        STATIC_URL + "%2fetc%2fpasswd",
        STATIC_URL + "hub%5c..%5c..%5cmount.py",
        STATIC_URL + "hub/main.js%00",
    ],
)
def test_other_paths_are_not_found_and_not_cached(client, path):
    response = client.get(path)
    assert response.status_code == 404
    assert "immutable" not in response.headers.get("cache-control", "")


def test_files_are_served_behind_a_proxy_that_removes_a_prefix():
    response = connect(root_path="/prefix").get(STATIC_URL + "hub/main.js")
    assert response.content == (STATIC_DIR / "hub" / "main.js").read_bytes()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_files_cannot_be_written(client, method):
    assert client.request(method, STATIC_URL + "hub/main.js").status_code == 404


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "https://evil.example"}],
    ids=lambda headers: next(iter(headers)),
)
def test_other_sites_get_no_file(client, headers):
    response = client.get(STATIC_URL + "hub/main.js", headers=headers)
    assert response.status_code in (400, 403)


@pytest.mark.parametrize("accepted", ["identity", "gzip", "br"])
def test_browser_checks_for_changes_during_development(monkeypatch, accepted):
    monkeypatch.setenv("PLAYGROUND_DEV", "1")
    client = connect()
    client.headers["Accept-Encoding"] = accepted
    response = client.get(STATIC_URL + "hub/main.js")
    assert response.headers["cache-control"] == "no-cache"
    tag = {"If-None-Match": response.headers["etag"]}
    repeated = client.get(STATIC_URL + "hub/main.js", headers=tag)
    assert (repeated.status_code, repeated.content) == (304, b"")
    assert repeated.headers["cache-control"] == "no-cache"


def test_a_changed_file_is_compressed_again(tmp_path):
    file = tmp_path / "view.js"
    app = Starlette(routes=[static_route(tmp_path)])
    with TestClient(app) as client:
        for text in ("let a = 1; // first\n" * 90, "let a = 2; // another\n" * 90):
            file.write_text(text)
            assert client.get(STATIC_URL + file.name).text == text
