"""The client address of the current request, and the limits for one address.

A client can create any number of owner keys, but not of addresses. A limit per owner alone can
therefore be bypassed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

CLIENT_ADDRESS = ContextVar("client_address", default="")


def half_of(places: int) -> int:
    """Return how many of these slots one address may hold."""
    return max(1, places // 2)


def may_hold(amount: float) -> float:
    """Return how much of an amount of disk space one address may use."""
    return amount / 2


def holds_share(addresses: Iterable[str], places: int) -> bool:
    """Return whether the current client holds as many slots as one address may.

    Work without a request, such as that of a command, has no address and no such limit.

    Args:
        addresses: the address of each slot in use.
        places: total number of slots.
    """
    client = CLIENT_ADDRESS.get()
    return bool(client) and sum(each == client for each in addresses) >= half_of(places)
