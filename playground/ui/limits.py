"""How much the API (api.py) does for one client, and for all at once. The page has limits of its own where it needs them: runs in
line, jobs, errands."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from playground.runs.run import Refused
from playground.training.environment import is_set, number

MOST_CLIENTS = 10_000  # remembered; the one that asked longest ago goes first
# Calls a minute of one client, by the number of the environment that sets them. Alone on a machine none holds but what was set.
A_MINUTE = {"starts": "API_STARTS", "heavy": "API_HEAVY", "calls": "API_CALLS"}
IN_WORDS = {"starts": "start {} runs", "heavy": "ask for {} evaluations, comparisons and pushes", "calls": "send {} calls"}
WAITING = 16  # that wait for one of so many places


class Limits:
    """A token bucket for each client and kind of call: it holds what a minute allows, and fills evenly.

    Args:
        a_minute: calls a minute by kind; 0 for as many as one likes.
    """

    def __init__(self, a_minute: Mapping[str, float]) -> None:
        self.a_minute = dict(a_minute)
        self._left: dict[tuple[str, str], tuple[float, float]] = {}  # calls left, and when they were counted

    @classmethod
    def from_environment(cls, opened: bool) -> Limits:
        """What the environment says, else what suits an instance that is `opened` to others, or is not."""
        return cls({kind: number(name) if opened or is_set(name) else 0 for kind, name in A_MINUTE.items()})

    def take(self, kind: str, client: str, now: float | None = None) -> None:
        """Count one call.

        Raises:
            Refused: when the client has to wait, saying how long.
        """
        rate = self.a_minute[kind]
        if not rate:
            return
        now = time.monotonic() if now is None else now
        left, counted_at = self._left.pop((kind, client), (max(rate, 1.0), now))
        left = min(max(rate, 1.0), left + (now - counted_at) * rate / 60)
        taken = left >= 1
        self._left[kind, client] = (left - taken, now)
        if len(self._left) > MOST_CLIENTS:
            del self._left[next(iter(self._left))]
        if not taken:
            seconds = math.ceil((1 - left) * 60 / rate)
            raise Refused(f"one address may {IN_WORDS[kind].format(f'{rate:g}')} a minute; try again in {seconds} s")


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
