"""Slots for uploads and downloads; a slow transfer loses its slot when another one needs it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playground.errors import BusyError

GRACE_PERIOD_S = 3.0  # before a transfer can count as slow
MIN_BYTES_PER_S = 20_000  # bytes per second


class Transfer:
    """A running upload or download."""

    def __init__(self, address: str, deadline: asyncio.Timeout) -> None:
        self.address, self.deadline = address, deadline
        self.started_at, self.bytes, self.is_complete = time.monotonic(), 0, False
        self.reason = ""  # of an early end

    def add_bytes(self, size: int) -> None:
        self.bytes += size

    def complete(self) -> None:
        """Mark all bytes as received: the transfer has no deadline and keeps its slot."""
        self.is_complete = True
        self.deadline.reschedule(None)

    def rate(self) -> float:
        """Return the average bytes per second."""
        return self.bytes / max(1e-6, time.monotonic() - self.started_at)

    def is_slow(self) -> bool:
        """Return whether another transfer may take its slot."""
        is_past_grace_period = time.monotonic() - self.started_at >= GRACE_PERIOD_S
        return is_past_grace_period and not self.is_complete and self.rate() < MIN_BYTES_PER_S


class TransferSlots:
    """A fixed number of slots, of which one address may hold half.

    Args:
        slots: the number of transfers at a time.
        timeout_s: the maximum duration of a transfer.
        busy_reason: the reason in the error message if no slot is free.
    """

    def __init__(self, slots: int, timeout_s: float, busy_reason: str) -> None:
        self.slots, self.timeout_s, self.busy_reason = slots, timeout_s, busy_reason
        self._transfers: list[Transfer] = []

    @asynccontextmanager
    async def hold(self, address: str) -> AsyncIterator[Transfer]:
        """Hold a slot; the body runs under a deadline, which expires at once if it loses the slot.

        Raises:
            BusyError: if no slot is free and no transfer is slow.
            TimeoutError: if the deadline expires.
        """
        same_address = [each for each in self._transfers if each.address == address]
        if len(same_address) >= max(1, self.slots // 2):
            self._evict(same_address)
        elif len(self._transfers) >= self.slots:
            self._evict(self._transfers)
        async with asyncio.timeout(self.timeout_s) as deadline:
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
        """End the slowest of these transfers, or raise BusyError."""
        slow = [transfer for transfer in transfers if transfer.is_slow()]
        if not slow:
            raise BusyError(self.busy_reason)
        self.end(
            min(slow, key=Transfer.rate),
            "the transfer was too slow while another one was waiting; try again",
        )
