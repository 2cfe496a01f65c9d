"""Slots for uploads and downloads, which a slow client has to give up when another one needs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playground.runs.run import Refused

GRACE_SECONDS = 3.0  # before a transfer counts as slow
MIN_RATE = 20_000  # bytes per second


class Transfer:
    """One upload or download that is under way."""

    def __init__(self, address: str, deadline: asyncio.Timeout) -> None:
        self.address, self.deadline = address, deadline
        self.started_at, self.bytes, self.is_complete = time.monotonic(), 0, False
        self.reason = ""  # why it was ended before its time

    def count(self, size: int) -> None:
        """Note that so many bytes have been transferred."""
        self.bytes += size

    def complete(self) -> None:
        """Note that all bytes have arrived: it has no deadline any more, and gives way to none."""
        self.is_complete = True
        self.deadline.reschedule(None)

    def rate(self) -> float:
        """Return bytes per second so far."""
        return self.bytes / max(1e-6, time.monotonic() - self.started_at)

    def is_slow(self) -> bool:
        """Whether it has to give way to another transfer."""
        is_settled = time.monotonic() - self.started_at >= GRACE_SECONDS
        return is_settled and not self.is_complete and self.rate() < MIN_RATE


class TransferSlots:
    """A number of slots, of which one address may hold half.

    Args:
        slots: transfers at a time.
        seconds: the longest that one may take.
        busy: the message of a refusal.
    """

    def __init__(self, slots: int, seconds: float, busy: str) -> None:
        self.slots, self.seconds, self.busy = slots, seconds, busy
        self._transfers: list[Transfer] = []

    @asynccontextmanager
    async def hold(self, address: str) -> AsyncIterator[Transfer]:
        """Hold a slot. The body runs under a deadline, which comes at once when it gives way.

        Raises:
            Refused: when no slot is free and no transfer is slow.
            TimeoutError: when the time is over, or the transfer has given way.
        """
        own = [each for each in self._transfers if each.address == address]
        if len(own) >= max(1, self.slots // 2):
            self._evict(own)
        elif len(self._transfers) >= self.slots:
            self._evict(self._transfers)
        async with asyncio.timeout(self.seconds) as deadline:
            transfer = Transfer(address, deadline)
            self._transfers.append(transfer)
            try:
                yield transfer
            finally:
                if transfer in self._transfers:
                    self._transfers.remove(transfer)

    def end(self, transfer: Transfer, reason: str) -> None:
        """End a transfer and free its slot; its task gets TimeoutError."""
        if transfer in self._transfers:
            self._transfers.remove(transfer)
            transfer.reason = reason
            transfer.deadline.reschedule(0)

    def _evict(self, transfers: list[Transfer]) -> None:
        """End the slowest of these transfers. Raises Refused if none is slow."""
        slow = [each for each in transfers if each.is_slow()]
        if not slow:
            raise Refused(self.busy)
        self.end(
            min(slow, key=Transfer.rate),
            "it was too slow while another transfer was waiting; try again",
        )
