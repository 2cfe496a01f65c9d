"""Every file of the front end, as a browser requests it."""

import gzip
import subprocess

import brotli
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.server.middleware import build_middleware
from playground.server.rate_limit import LoadLimits
from playground.server.static_files import COMMENT_PATTERNS, remove_comments, static_route
from playground.ui.page import STATIC_DIR, STATIC_URL
from tests.support.app_server import ROOT

FILES = sorted(
    path.relative_to(STATIC_DIR).as_posix() for path in STATIC_DIR.rglob("*") if path.is_file()
)
DECODERS = {"br": brotli.decompress, "gzip": gzip.decompress}
ESBUILD = ROOT / "node_modules" / ".bin" / "esbuild"
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


def served_text(name):
    """Return the content of a file without comments."""
    path = STATIC_DIR / name
    return remove_comments(path.read_text(), COMMENT_PATTERNS[path.suffix])


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
    assert body.decode() == served_text(name)


@pytest.mark.smoke
@pytest.mark.skipif(not ESBUILD.exists(), reason="npm ci installs esbuild")
def test_removal_of_comments_changes_no_script_and_no_stylesheet(tmp_path):
    names = [name for name in FILES if name.endswith(tuple(COMMENT_PATTERNS))]
    for name in names:
        path = tmp_path / "served" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(served_text(name))
    minified = []
    for folder in (STATIC_DIR, tmp_path / "served"):
        out = tmp_path / f"minified-{len(minified)}"
        options = ["--minify", "--outbase=.", f"--outdir={out}", "--log-level=error"]
        # without the tsconfig.json of the repository
        subprocess.run([ESBUILD, *names, *options, "--tsconfig-raw={}"], cwd=folder, check=True)
        minified.append({name: (out / name).read_bytes() for name in names})
    assert minified[0] == minified[1]


@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        (".js", "// a\nlet a = 1; // b\n", "\nlet a = 1; // b\n"),
        (".js", "  /**\n   * a\n   */\n  f();\n", "\n\n\n  f();\n"),
        (".js", "/* a */ let b = /* c */ 1;\n/* d */\n", " let b = /* c */ 1;\n\n"),
        (".js", "f(/** @type {A} */ (b));\n", "f(/** @type {A} */ (b));\n"),
        (".js", 'f("https://a"); // b /* c\nd(); /* e */\n', None),
        (".css", "// a\n/* b\n c */\nd { e: 1 }\n", "// a\n\n\nd { e: 1 }\n"),
    ],
)
def test_comments_at_the_start_of_a_line_are_removed(suffix, text, expected):
    assert remove_comments(text, COMMENT_PATTERNS[suffix]) == (expected or text)


@pytest.mark.parametrize(
    "path",
    [
        STATIC_URL + "hub/missing.js",
        STATIC_URL.rsplit("/", 2)[0] + "/0.0.1-000000000000/hub/main.js",
        STATIC_URL + "../page.py",
        STATIC_URL + "hub/%2e%2e/%2e%2e/page.py",
        STATIC_URL + "%2fetc%2fpasswd",
        STATIC_URL + "hub/main.js%00",
    ],
)
def test_other_paths_are_not_found_and_not_cached(client, path):
    response = client.get(path)
    assert response.status_code == 404
    assert "immutable" not in response.headers.get("cache-control", "")


def test_files_are_served_behind_a_proxy_that_removes_a_prefix():
    response = connect(root_path="/prefix").get(STATIC_URL + "hub/main.js")
    assert response.text == served_text("hub/main.js")


@pytest.mark.parametrize("accepted", ["identity", "br"])
def test_browser_checks_for_changes_during_development(monkeypatch, accepted):
    monkeypatch.setenv("PLAYGROUND_DEV", "1")
    client = connect()
    client.headers["Accept-Encoding"] = accepted
    response = client.get(STATIC_URL + "hub/main.js")
    assert response.headers["cache-control"] == "no-cache"
    assert response.content == (STATIC_DIR / "hub" / "main.js").read_bytes()
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
