"""Rate limits of a client: token buckets, and slots with a short queue."""

import asyncio
import itertools
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.testclient import TestClient

from playground.server.api import Endpoints
from playground.server.client import resolve_client_address
from playground.server.middleware import RouteFilterMiddleware
from playground.server.rate_limit import (
    MAX_BUCKETS,
    MAX_DELAYED_REJECTIONS,
    LoadLimits,
    TokenBuckets,
)
from playground.server.routes import build_routes, handler
from playground.server.schemas.base import OwnerRequest
from tests.support.coroutines import run_in_thread


def used(buckets, key, *times):
    """Return how many tokens of a key at these seconds there are."""
    return sum(buckets.take(key, now=now) == 0.0 for now in times)


def test_a_bucket_fills_evenly_up_to_its_capacity():
    buckets = TokenBuckets(6, 0.1)
    assert used(buckets, "ada", *[0.0] * 9) == 6
    assert used(buckets, "ada", 9.0) == 0
    assert used(buckets, "ada", 10.5, 10.6) == 1  # one in ten seconds
    assert used(buckets, "ada", *[1000.0] * 9) == 6
    assert used(buckets, "bob", 0.0) == 1
    assert buckets.take("ada", now=1004.0) == pytest.approx(6.0)  # until the next token


def test_a_crowd_of_addresses_takes_no_memory_for_good():
    buckets = TokenBuckets(5, 1)
    for number in range(MAX_BUCKETS + 100):
        buckets.take(str(number), now=0.0)
    assert len(buckets._buckets) == MAX_BUCKETS


def test_an_ipv6_network_is_one_client():
    buckets = TokenBuckets(1, 1)
    addresses = [
        *("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1", "::ffff:192.0.2.7"),
        *("192.0.2.7", "192.0.2.8"),
    ]
    requests = [
        Request({"type": "http", "client": (address, 1), "headers": []}) for address in addresses
    ]
    assert [used(buckets, resolve_client_address(request), 0.0) for request in requests] == [
        *(1, 0, 1, 1, 0, 1),
    ]
    assert (
        len(
            resolve_client_address(
                Request({"type": "http", "client": ("x" * 60_000, 1), "headers": []})
            )
        )
        < 100
    )


def test_client_address_is_the_one_appended_by_the_trusted_proxy(monkeypatch):
    def address_of(forwarded):
        lines = forwarded.splitlines()
        headers = [(b"x-forwarded-for", line.encode()) for line in lines]
        request = {"type": "http", "client": ("192.0.2.9", 1), "headers": headers}
        return resolve_client_address(Request(request))

    monkeypatch.delenv("SPACE_ID", raising=False)
    assert address_of("192.0.2.1") == "192.0.2.9"
    monkeypatch.setenv("SPACE_ID", "owner/space")
    assert address_of("192.0.2.1, 192.0.2.2") == "192.0.2.2"
    monkeypatch.setenv("PLAYGROUND_API_PROXIES", "2")
    assert address_of("192.0.2.7, 192.0.2.1, 192.0.2.2") == "192.0.2.1"
    assert address_of("192.0.2.2") == "192.0.2.2"
    assert address_of("") == "192.0.2.9"
    monkeypatch.delenv("PLAYGROUND_API_PROXIES")
    assert address_of("192.0.2.1\n192.0.2.2") == "192.0.2.2"  # the proxy's line comes last


def test_a_large_body_is_a_large_load(monkeypatch):
    monkeypatch.setattr("playground.server.rate_limit.time.monotonic", lambda: 7.0)
    monkeypatch.setattr("playground.server.rate_limit.REJECTION_DELAY_S", 0.0)
    served, refused = [], []

    async def app(scope, receive, send):
        served.append(scope["path"])

    async def send(message):
        refused.append(message.get("status"))

    filtered = RouteFilterMiddleware(app, can_sign_in=False, load=LoadLimits(100, 0))

    def send_request(path, *headers):
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "client": ("192.0.2.9", 1),
            "headers": list(headers),
        }
        run_in_thread(filtered(scope, None, send))

    for _ in range(150):
        send_request("/playground/api/runs/poll", (b"content-length", b"64000"))
    assert len(served) < 100
    before = len(served)
    for _ in range(10):
        send_request("/playground/api/runs/poll")  # chunked: its size is unknown
    assert len(served) == before
    assert 429 in refused


def test_rejected_requests_wait_for_their_response_up_to_a_bound(monkeypatch):
    """A client that repeats rejected requests waits; the number of waiting ones is bounded."""
    monkeypatch.setattr("playground.server.rate_limit.REJECTION_DELAY_S", 3600.0)
    limits = LoadLimits(10, 10)

    async def refuse_many():
        tasks = [
            asyncio.ensure_future(limits.reject("192.0.2.9", 1.0))
            for _ in range(MAX_DELAYED_REJECTIONS + 3)
        ]
        await asyncio.sleep(0)
        responses = [task.result().status_code for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return responses, len(limits._delayed)

    assert run_in_thread(refuse_many()) == ([429] * 3, 0)


@pytest.mark.parametrize("take", ["take_address", "take_owner"])
def test_load_is_limited_from_the_first_request_on(take, monkeypatch):
    monkeypatch.setattr("playground.server.rate_limit.time.monotonic", lambda: 7.0)
    limits = LoadLimits(10, 10)
    waits = [getattr(limits, take)("ada", 60) for _ in range(3)]
    assert waits == [0.0, 2.0, 2.0]
    assert getattr(limits, take)("bob", 60) == 0.0


def test_work_beyond_the_estimate_counts_afterwards(monkeypatch):
    """A request whose handler takes longer than its route's estimate delays the next ones."""
    monkeypatch.setattr("playground.server.rate_limit.REJECTION_DELAY_S", 0.0)
    cpu = itertools.count(0, 0.6)  # seconds, from one look to the next
    monkeypatch.setattr("playground.server.routes.time.thread_time", lambda: next(cpu))
    busy = handler("busy/now", OwnerRequest, dict[str, Any])(lambda _, request: {})
    load = LoadLimits(100, 0)
    (route,) = build_routes({"busy/now": partial(busy, None)}, load)
    limits = Middleware(RouteFilterMiddleware, can_sign_in=False, load=load)
    client = TestClient(Starlette(routes=[route], middleware=[limits]))
    statuses = [
        client.post(route.path, json={"owner": f"{number:032x}"}).status_code for number in range(2)
    ]
    assert statuses == [200, 429]


def test_api_call_counts_for_the_client_address(client_address):
    request = Request({"type": "http", "client": ("192.0.2.7", 1), "headers": []})
    endpoints = Endpoints(SimpleNamespace(single_owner=""), {}, LoadLimits(0, 0))
    with pytest.raises(StopIteration):
        endpoints.call("settings", request, {}).send(None)  # in this context
    assert client_address.get() == "192.0.2.7"
