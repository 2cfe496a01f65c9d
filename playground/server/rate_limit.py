"""Rate limits for each client address and owner."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict

from starlette.responses import Response

from playground.common.env import env_number, is_env_set
from playground.errors import BusyError

from .asgi import json_error

BURST_DURATION_S = 10.0  # a full bucket holds the load of this duration
MAX_BUCKETS = 10_000  # the least recently used one is dropped first
REJECTION_DELAY_S = 0.5  # delay of the response to a rejected request
MAX_DELAYED_REJECTIONS = 100  # delayed responses of one address; further ones are sent at once


def _rate(name: str, is_public: bool) -> float:
    """Return the rate that a variable sets; a local instance has none by default."""
    return env_number(name) if is_public or is_env_set(name) else 0.0


class TokenBuckets:
    """One token bucket for each key.

    Args:
        capacity: tokens of a full bucket.
        per_second: tokens that a bucket gains per second; 0 for no limit.
    """

    def __init__(self, capacity: float, per_second: float) -> None:
        self.capacity, self.per_second = capacity, per_second
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, time

    def take(self, key: str, tokens: float = 1.0, now: float | None = None) -> float:
        """Return 0.0 and take tokens of a key; if there are too few, return the seconds to wait."""
        if not self.per_second:
            return 0.0
        now = time.monotonic() if now is None else now
        level, updated = self._buckets.pop(key, (self.capacity, now))
        level = min(self.capacity, level + (now - updated) * self.per_second)
        tokens = min(tokens, self.capacity)
        is_enough = level >= tokens
        self._buckets[key] = (level - tokens if is_enough else level, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if is_enough else (tokens - level) / self.per_second

    def spend(self, key: str, tokens: float) -> None:
        """Take tokens that are used up already; the level may become negative."""
        if key in self._buckets:
            level, updated = self._buckets[key]
            self._buckets[key] = level - tokens, updated


class LoadLimits:
    """How much load one client address and one owner may cause.

    The load of a request is an estimate of the milliseconds that the server works for it; what it
    took beyond that counts afterwards. An owner's key costs nothing to make up, so the limit by
    address is the one that protects; the limit by owner is for a class behind one address.

    Args:
        address_ms: milliseconds of load per second for an address; 0 for no limit.
        owner_ms: the same for an owner.
    """

    def __init__(self, address_ms: float, owner_ms: float) -> None:
        self._addresses = TokenBuckets(BURST_DURATION_S * address_ms, address_ms)
        self._owners = TokenBuckets(BURST_DURATION_S * owner_ms, owner_ms)
        self._delayed: Counter[str] = Counter()

    @classmethod
    def from_environment(cls, is_public: bool) -> LoadLimits:
        return cls(_rate("ADDRESS_MS", is_public), _rate("OWNER_MS", is_public))

    def take_address(self, address: str, load: float) -> float:
        """Count a request's load. Returns the seconds to wait; 0.0 if it may be served."""
        return self._addresses.take(address, load) if load else 0.0

    def take_owner(self, owner: object, load: float) -> float:
        is_named = load and isinstance(owner, str) and owner
        return self._owners.take(str(owner)[:64], load) if is_named else 0.0

    def add(self, address: str, owner: object, load: float) -> None:
        """Count load that a request caused beyond its estimate."""
        if load > 0:
            self._addresses.spend(address, load)
            if isinstance(owner, str):
                self._owners.spend(owner[:64], load)

    async def reject(self, address: str, seconds: float) -> Response:
        """Return the response to a client that has to wait, after a pause.

        Without the pause, a client that repeats rejected requests at once keeps a core busy.
        """
        if self._delayed[address] < MAX_DELAYED_REJECTIONS:
            self._delayed[address] += 1
            try:
                await asyncio.sleep(REJECTION_DELAY_S)
            finally:
                self._delayed[address] -= 1
                if not self._delayed[address]:
                    del self._delayed[address]
        return json_error(busy(seconds), 429, {"Retry-After": str(math.ceil(seconds))})


def busy(seconds: float) -> BusyError:
    return BusyError("too many requests at once", f"in {math.ceil(seconds)} s")
