"""The owner of a browser: what it stores, and which pages may read it."""

import json
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.runs.owner_keys import new_owner_key
from playground.server.middleware import build_middleware
from playground.server.rate_limit import LoadLimits
from playground.server.routes import build_routes
from playground.server.session import COOKIE, SessionHandlers

HOST = "owner-space.hf.space"


def app_of(single_owner):
    handlers = SessionHandlers(SimpleNamespace(single_owner=single_owner)).handlers()
    middleware = build_middleware(True, False, LoadLimits(0, 0))
    return Starlette(routes=build_routes(handlers), middleware=middleware)


@pytest.fixture
def client():
    with TestClient(app_of(""), base_url=f"https://{HOST}") as client:
        yield client


def post(client, name, what, origin=f"https://{HOST}", **headers):
    headers |= {"origin": origin} if origin else {}
    return client.post(f"/playground/api/{name}", json=what, headers=headers)


def test_the_cookie_counts_only_in_requests_of_the_page_itself(client):
    owner = new_owner_key()
    client.cookies.set(COOKIE, owner)

    def is_read(origin=f"https://{HOST}", **headers):
        return owner in post(client, "session/open", {}, origin, **headers).text

    assert is_read()
    assert is_read(**{"sec-fetch-site": "same-origin"})
    # A frame of another Space lies in the same partition, so its requests carry the cookie.
    for origin in ("https://evil-space.hf.space", "https://huggingface.co", "null", ""):
        assert not is_read(origin), origin
    assert not is_read("https://evil.example", **{"x-forwarded-host": "evil.example"})
    assert not is_read(**{"sec-fetch-site": "cross-site"})
    for odd in ("", "short", "x" * 33, "../../etc/passwd" * 2 + "\\"):
        client.cookies.set(COOKIE, odd)
        assert post(client, "session/open", {}).json()["owner"] != odd


def test_owner_cookie_is_hidden_from_scripts_and_other_sites(client):
    owner = new_owner_key()
    assert post(client, "session/open", {}).json() != {"owner": owner}
    for origin in ("https://evil-space.hf.space", ""):
        reply = post(client, "session/store", {"owner": owner}, origin)
        assert "set-cookie" not in reply.headers
    cookie = post(client, "session/store", {"owner": owner}).headers["set-cookie"]
    name, *attributes = cookie.split("; ")
    assert name == f"{COOKIE}={owner}"
    assert {"Secure", "HttpOnly", "SameSite=None", "Partitioned", "Path=/"} <= set(attributes)
    assert not any(each.startswith("Domain") for each in attributes)
    assert post(client, "session/open", {}).json() == {"owner": owner}


@pytest.mark.parametrize(
    "what", [None, {}, {"owner": ["x"]}, {"owner": "x" * 31 + ";"}, {"owner": "x" * 32 + "\n"}]
)
def test_an_odd_owner_sets_no_cookie(client, what):
    reply = post(client, "session/store", what)
    assert "set-cookie" not in reply.headers
    assert "error" in reply.json()


def test_a_server_with_one_owner_needs_no_cookie():
    owner = new_owner_key()
    with TestClient(app_of(owner), base_url="http://localhost") as client:
        answer = post(client, "session/store", {"owner": owner}, "http://localhost")
        assert "set-cookie" not in answer.headers
        assert post(client, "session/open", {}, "http://localhost").json() == {"owner": owner}


@pytest.mark.parametrize("stored", ["", "x", "[1]", '{"owner": "short"}', '{"owner": 1}'])
def test_a_browser_without_a_valid_key_gets_a_new_one(client, stored):
    keys = {post(client, "session/open", {"stored": stored}).json()["owner"] for _ in range(2)}
    assert len(keys) == 2
    owner = new_owner_key()
    what = {"stored": json.dumps({"owner": owner})}
    assert post(client, "session/open", what).json() == {"owner": owner}
    client.cookies.set(COOKIE, owner)
    assert post(client, "session/open", {"stored": stored}).json() == {"owner": owner}
    foreign = post(client, "session/open", {"stored": stored}, "https://evil-space.hf.space")
    assert owner not in foreign.text
