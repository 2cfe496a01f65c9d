"""Rate limits for each client address and owner, and slots for work that takes a processor."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import os
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from playground.runs.addresses import CLIENT_ADDRESS, half_of, holds_share
from playground.runs.run import Refused
from playground.training.environment import env_number, is_env_set

BURST_SECONDS = 10.0  # a full bucket holds the load of so many seconds
MOST_CLIENTS = 10_000  # remembered; the one that asked longest ago goes first
# Calls a minute of one client, by the number of the environment that sets them. Alone on a machine none holds but what was set.
A_MINUTE = {"starts": "API_STARTS", "heavy": "API_HEAVY", "calls": "API_CALLS"}
IN_WORDS = {
    "starts": "start {} runs",
    "heavy": "ask for {} evaluations, comparisons and pushes",
    "calls": "send {} calls",
}
WAITING = 16  # that wait for one of so many places
REFUSAL_SECONDS = 0.5  # until a refused request gets its response
MAX_DELAYED = (
    100  # refused requests of one address whose response is delayed; those beyond get it at once
)


def client_of(connection: HTTPConnection) -> str:
    """Return the address of the client that sent a request; of IPv6 the network of 64 bits.

    A proxy appends the address of its own client to X-Forwarded-For, so the entries before those of
    the trusted proxies may be forged. The header counts on a Space, and where API_PROXIES is set.
    """
    address = connection.client.host if connection.client else ""
    if "SPACE_ID" not in os.environ and not is_env_set("API_PROXIES"):
        return network_of(address)
    hops = [hop.strip() for hop in connection.headers.get("x-forwarded-for", "").split(",")]
    return network_of(hops[-min(int(env_number("API_PROXIES")), len(hops))] or address)


@lru_cache(maxsize=1000)
def network_of(address: str) -> str:
    """Return what limits count as one client: an IPv4 address, or the IPv6 network that one has."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))


class TokenBuckets:
    """One token bucket for each key.

    Args:
        capacity: tokens of a full bucket.
        per_second: tokens that a bucket gains per second.
    """

    def __init__(self, capacity: float, per_second: float) -> None:
        self.capacity, self.per_second = capacity, per_second
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, time

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, tokens: float = 1.0, now: float | None = None) -> float:
        """Take tokens of a key's bucket.

        Returns:
            0.0 if there were enough, else the seconds until there are; then none are taken.
        """
        now = time.monotonic() if now is None else now
        level, updated = self._buckets.pop(key, (self.capacity, now))
        level = min(self.capacity, level + (now - updated) * self.per_second)
        tokens = min(tokens, self.capacity)
        is_enough = level >= tokens
        self._buckets[key] = (level - tokens if is_enough else level, now)
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if is_enough else (tokens - level) / self.per_second


class Limits:
    """Calls of the API per minute, for each client and kind of call.

    Args:
        a_minute: calls a minute by kind; 0 for no limit.
    """

    def __init__(self, a_minute: Mapping[str, float]) -> None:
        self.a_minute = dict(a_minute)
        self.buckets = {
            kind: TokenBuckets(max(rate, 1.0), rate / 60) for kind, rate in a_minute.items() if rate
        }

    @classmethod
    def from_environment(cls, opened: bool) -> Limits:
        """Read the limits from the environment; a local instance has none by default."""
        return cls(
            {
                kind: env_number(name) if opened or is_env_set(name) else 0
                for kind, name in A_MINUTE.items()
            }
        )

    def take(self, kind: str, client: str, now: float | None = None) -> None:
        """Count one call.

        Raises:
            Refused: when the client has to wait; the message says how long.
        """
        if kind not in self.buckets:
            return
        if seconds := self.buckets[kind].take(client, now=now):
            allowed = IN_WORDS[kind].format(f"{self.a_minute[kind]:g}")
            raise Refused(
                f"one address may {allowed} a minute; try again in {math.ceil(seconds)} s"
            )


class LoadLimits:
    """How much load one client address and one owner may cause.

    The load of a request is an estimate of the milliseconds that the event loop works for it. An
    owner's key costs nothing to make up, so the limit by address is the one that protects; the limit
    by owner is for a class behind one address.

    Args:
        address_ms: milliseconds of load per second for an address; 0 for no limit.
        owner_ms: the same for an owner.
    """

    def __init__(self, address_ms: float, owner_ms: float) -> None:
        self._addresses = (
            TokenBuckets(BURST_SECONDS * address_ms, address_ms) if address_ms else None
        )
        self._owners = TokenBuckets(BURST_SECONDS * owner_ms, owner_ms) if owner_ms else None
        self._delayed: Counter[str] = Counter()

    @classmethod
    def from_environment(cls, is_open: bool) -> LoadLimits:
        """Read the limits from the environment; a local instance has none by default."""
        return cls(
            *(
                env_number(name) if is_open or is_env_set(name) else 0.0
                for name in ("ADDRESS_MS", "OWNER_MS")
            )
        )

    def take_address(self, address: str, load: float) -> float:
        """Count a request's load. Returns the seconds to wait; 0.0 if it may be served."""
        return self._addresses.take(address, load) if self._addresses is not None and load else 0.0

    def take_owner(self, owner: object, load: float) -> float:
        """Count a request's load for its owner, if it names one. Returns the seconds to wait."""
        if self._owners is None or not load or not isinstance(owner, str) or not owner:
            return 0.0
        return self._owners.take(owner[:64], load)

    async def refuse(self, address: str, seconds: float) -> Response:
        """Return the response to a client that has to wait, after a pause.

        Without the pause, a client that repeats refused requests at once keeps a core busy.
        """
        if self._delayed[address] < MAX_DELAYED:
            self._delayed[address] += 1
            try:
                await asyncio.sleep(REFUSAL_SECONDS)
            finally:
                self._delayed[address] -= 1
                if not self._delayed[address]:
                    del self._delayed[address]
        return too_many(seconds)


def too_many(seconds: float) -> Response:
    """Return the response to a client that has to wait."""
    wait = math.ceil(seconds)
    return JSONResponse(
        {"error": f"too many requests at once; try again in {wait} s", "again": True},
        status_code=429,
        headers={"Retry-After": str(wait)},
    )


class Places:
    """So many places for work that takes a processor, and a short line before them."""

    def __init__(self, places: int, waiting: int = WAITING) -> None:
        self._free, self._waiting, self._most = asyncio.Semaphore(places), 0, waiting

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A place, as soon as there is one.

        Raises:
            Refused: when the line is full.
        """
        if self._waiting >= self._most:
            raise Refused("many others are asking this just now; try again in a minute")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()


class FairPlaces:
    """Places for work that takes a processor, of which one client address has one at a time.

    A request of an address waits until the address's earlier ones are over, so that requests under
    invented owners delay only each other. Without an address there is no such wait.

    Args:
        places: how many requests are at work at a time.
        waiting: how many wait in all; one address may have half of them.
    """

    def __init__(self, places: int, waiting: int = WAITING) -> None:
        self._free, self._most = asyncio.Semaphore(places), waiting
        self._turns: dict[str, asyncio.Lock] = {}
        self._present: Counter[str] = Counter()  # requests that wait or are at work, by address
        self._waiting: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._present.total()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A place for the client that is being served, as soon as there is one.

        Raises:
            Refused: when too many wait.
        """
        address = CLIENT_ADDRESS.get()
        if self._waiting.total() >= self._most:
            raise Refused("many others are asking this just now; try again in a minute")
        if holds_share(self._waiting.elements(), self._most):
            raise Refused(
                f"{half_of(self._most)} requests from your address wait already; try again when one is answered"
            )
        turn = self._turns.setdefault(address, asyncio.Lock()) if address else asyncio.Lock()
        self._present[address] += 1
        self._waiting[address] += 1
        is_waiting = True
        try:
            async with turn, self._free:
                self._waiting[address] -= 1
                is_waiting = False
                yield
        finally:
            self._waiting[address] -= is_waiting
            self._present[address] -= 1
            if not self._present[address]:
                del self._present[address], self._waiting[address]
                self._turns.pop(address, None)
