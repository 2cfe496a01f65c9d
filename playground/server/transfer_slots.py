"""Slots for uploads and downloads; a slow transfer loses its slot when another one needs it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playground.jobs.admission import Admission, Client

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
    """The transfers of one kind.

    Args:
        admission: how many there may be at a time.
        timeout_s: the maximum duration of a transfer.
    """

    def __init__(self, admission: Admission, timeout_s: float) -> None:
        self.admission, self.timeout_s = admission, timeout_s
        self._transfers: list[Transfer] = []

    @asynccontextmanager
    async def hold(self, address: str) -> AsyncIterator[Transfer]:
        """Hold a slot; the body runs under a deadline, which expires at once if it loses the slot.

        Raises UserError if no slot is free and no transfer is slow. Raises TimeoutError if the
        deadline expires.
        """

        def end(transfer: Transfer) -> int:
            reason = "the transfer was too slow while another one was waiting; try again"
            self.end(transfer, reason)
            return 1

        present = {each: Client(each.address) for each in self._transfers}
        slow = sorted(filter(Transfer.is_slow, present), key=Transfer.rate)
        self.admission.admit_or_evict(Client(address), present, slow, end)
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
