"""Which hosts, origins, paths and bodies the server accepts, and the headers of its responses."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from playground.errors import UserError
from playground.server.middleware import (
    MAX_BODY_BYTES,
    RouteFilterMiddleware,
    build_middleware,
    check_json,
)
from playground.server.rate_limit import LoadLimits
from playground.ui.page import EMBED_VIEWS

EVIL = "https://evil.example"


async def respond(request):
    """Respond with the page at "/", else with what arrived, or with `size` characters."""
    if request.url.path == "/":
        return HTMLResponse("<p>page</p><script>run()</script>")
    if "size" in request.query_params:
        return PlainTextResponse("x" * int(request.query_params["size"]))
    forwarded = request.headers.get("x-forwarded-host", "") + request.headers.get(
        "x-gradio-server", ""
    )
    return JSONResponse({"bytes": len(await request.body()), "forwarded": forwarded})


def connect(is_public=False):
    routes = [Route("/{path:path}", respond, methods=["GET", "POST", "OPTIONS"])]
    middleware = build_middleware(is_public, False, LoadLimits(0, 0))
    return TestClient(Starlette(routes=routes, middleware=middleware), base_url="http://localhost")


@pytest.fixture(params=[False, True], ids=["local", "public"])
def client(request):
    return connect(request.param)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": EVIL, "X-Forwarded-Host": "evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
def test_a_request_of_another_site_is_rejected(client, headers):
    for method, path in (
        ("POST", "/playground/api/jobs/submit"),
        ("POST", "/playground/datasets"),
        ("POST", "/playground/checkpoints"),
        ("POST", "/gradio_api/run/push"),
        ("POST", "/gradio_api/queue/join"),
        ("POST", "/gradio_api/mcp/"),
        ("GET", "/config"),
        ("GET", "/gradio_api/info"),
    ):
        response = client.request(method, path, headers=headers)
        assert response.status_code == 403, path
        assert "access-control-allow-origin" not in response.headers


def test_cross_origin_preflights_are_rejected(client):
    for path in ("/playground/api/jobs/submit", "/gradio_api/run/push", "/"):
        headers = {"Origin": EVIL, "Access-Control-Request-Method": "POST"}
        response = client.options(path, headers=headers)
        assert response.status_code >= 400
        assert not [name for name in response.headers if name.startswith("access-control")]


def test_a_page_of_this_server_and_links_to_its_pages_are_served(client):
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/playground/api/runs/list", headers=own).status_code == 200
    for page in ("/", "/api"):
        assert client.get(page, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_configured_hosts_are_served_and_others_rejected(monkeypatch):
    monkeypatch.setenv("PLAYGROUND_HOSTS", "play.example.org")
    client = connect()
    assert client.get("/", headers={"Host": "play.example.org"}).status_code == 200
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400
    proxied = {"Origin": "https://play.example.org", "Host": "localhost"}
    assert client.post("/playground/api/runs/list", headers=proxied).status_code == 200


@pytest.mark.parametrize(
    ("is_public", "environment", "checked"),
    [
        (False, {}, True),
        (True, {}, False),
        (True, {"SPACE_HOST": "a-b.hf.space"}, False),
        (True, {"PLAYGROUND_HOSTS": "x.org"}, True),
    ],
)
def test_hosts_are_checked_locally_and_when_configured(
    monkeypatch, is_public, environment, checked
):
    """Check no hosts on a Space: health checks use a host name that the app does not know."""
    for name in ("SPACE_HOST", "PLAYGROUND_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    response = connect(is_public).get("/", headers={"Host": "unknown.example"})
    assert (response.status_code == 400) is checked


def test_a_forwarded_host_reaches_the_app_only_if_it_is_configured(monkeypatch):
    monkeypatch.setenv("SPACE_HOST", "a-b.hf.space")
    hosts = ("cdn.evil.example", "a-b.hf.space")
    headers = [
        {"X-Forwarded-Host": host, "X-Gradio-Server": "http://cdn.evil.example"} for host in hosts
    ]
    bodies = [connect(True).get("/config", headers=each).json() for each in headers]
    assert [body["forwarded"] for body in bodies] == ["", "a-b.hf.space"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gradio_api/process_recording"),
        ("GET", "/gradio_api/deep_link?session_hash=abc"),
        ("POST", "/gradio_api/upload"),
        ("GET", "/gradio_api/custom_component/x%0aFORGED/client/component/a.js"),
        ("GET", "/static/../../etc/passwd"),
        ("GET", "/gradio_api/file%3Dhttp://x"),
        ("GET", "//gradio_api/file=http://x"),
        ("POST", "/gradio_api/stream/abc"),
        ("POST", "/playground/static/x"),
        ("POST", "/playground/static/1.0/app.js"),
        ("GET", "/gradio_api/run/models"),
        ("POST", "/gradio_api/call/start/\u0661"),
        ("GET", "/assets/\u00e9.js"),
        ("GET", "/login/huggingface"),
        ("GET", "/logout"),
        ("HEAD", "/playground/checkpoints/ticket"),
    ],
)
def test_unused_routes_return_404(client, method, path):
    assert client.request(method, path).status_code == 404


@pytest.mark.parametrize("path", ["/login/huggingface", "/login/callback", "/logout"])
def test_sign_in_is_served_on_a_space(path):
    served = RouteFilterMiddleware(None, can_sign_in=True, load=LoadLimits(0, 0))
    assert served.find_load("GET", path) is not None


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/playground/api/runs/poll", MAX_BODY_BYTES),
        ("/playground/checkpoints", 50_000_000),
        ("/playground/datasets", 50_000_000),
    ],
)
def test_a_body_above_the_limit_is_rejected_unread(client, path, limit):
    for declared, status in ((limit, 200), (limit + 1, 413), ("x", 413)):
        response = client.post(path, content=b"x", headers={"content-length": str(declared)})
        assert response.status_code == status, declared


def test_a_body_of_undeclared_size_is_rejected_above_the_limit(client):
    for size, status in ((MAX_BODY_BYTES, 200), (MAX_BODY_BYTES + 1, 413)):
        response = client.post("/playground/api/runs/poll", content=iter([b"x" * size]))
        assert response.status_code == status


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": NaN}',
        b'{"a": 1, "a": 2}',
        b'{"a": "\xff"}',
        b'{"a": 1e999}',
        b"[" * 6000,
        b'{"a": [' + b"[]," * 6000 + b"[]]}",
        b'{"gradio.FileData": 1}',
        b'["gradio\\u002eFileData"]',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_json_of_the_wrong_shape_is_rejected(body):
    with pytest.raises(ValueError, match=r"lists and objects|JSON object|files are not"):
        check_json(body)


@given(st.binary(max_size=60) | st.text(st.sampled_from('[]{}":,1e- a\\'), max_size=60))
def test_any_body_is_json_or_rejected(body):
    with suppress(UserError):
        check_json(body if isinstance(body, bytes) else body.encode())


# The content security policy


def policy_of(query="", path="/"):
    response = connect().get(f"{path}?{query}")
    return dict(
        each.partition(" ")[::2] for each in response.headers["content-security-policy"].split("; ")
    )


def test_only_the_scripts_of_the_page_itself_may_run():
    assert policy_of()["script-src"].startswith("'self' 'sha256-")
    for path in ("/config", "/favicon.ico", "/manifest.json"):
        assert policy_of(path=path) == {"default-src": "'none'", "sandbox": ""}


@pytest.mark.parametrize(
    "query",
    [
        *("", "watch=x", "embed=", "embed=all", "embed=Learning", "embeds=try"),
        *("embed=try&embed=all", "embed=learning+"),
    ],
)
def test_full_page_is_framed_by_itself_and_the_hub_only(query):
    assert policy_of(query)["frame-ancestors"] == "'self' https://huggingface.co"


@pytest.mark.parametrize("view", EMBED_VIEWS)
def test_embedded_view_is_framed_by_any_site(view):
    assert "frame-ancestors" not in policy_of(f"model=reverse&embed={view}")


@pytest.mark.parametrize(
    ("path", "accepted", "size", "encoding"),
    [
        ("/gradio_api/info", "gzip, br", 1000, None),
        ("/api", "gzip, br", 1000, "br"),
        ("/playground/api/runs/list", "gzip, br", 1000, "br"),
        ("/playground/api/runs/list", "gzip", 1000, "gzip"),
        ("/playground/api/runs/list", "identity", 1000, None),
        ("/playground/api/runs/list", "gzip, br;q=0", 1000, "gzip"),
        ("/playground/api/runs/list", "br;q=0.2, gzip;q=0.8", 1000, "gzip"),
        ("/playground/api/runs/list", "BR", 1000, "br"),
        ("/playground/api/runs/list", "*", 1000, "br"),
        ("/playground/api/runs/list", "*;q=0", 1000, None),
        ("/playground/api/runs/list", "br;q=0, *", 1000, "gzip"),
        ("/playground/api/runs/list", "brotli, x-gzip", 1000, None),
        ("/playground/api/runs/list", "br;q=x, gzip;q=nan", 1000, None),
        ("/playground/api/runs/list", "", 1000, None),
        ("/playground/api/runs/poll", "gzip, br", 999, None),
        ("/playground/api/runs/page", "gzip, br", 1000, None),
    ],
)
def test_large_responses_of_the_page_are_compressed(path, accepted, size, encoding):
    method = "POST" if "playground" in path else "GET"
    response = connect().request(
        method, f"{path}?size={size}", headers={"Accept-Encoding": accepted}
    )
    assert response.text == "x" * size
    assert response.headers.get("content-encoding") == encoding
