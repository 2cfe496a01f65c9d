"""The client address of the request that is being served, and the share of one address.

An owner's key costs nothing to make up, an address does: limits by owner alone hold nobody back.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

CLIENT_ADDRESS = ContextVar("client_address", default="")


def half_of(places: int) -> int:
    """Return how many of these places one address may hold."""
    return max(1, places // 2)


def may_hold(amount: float) -> float:
    """Return how much of an amount of disk one address may hold."""
    return amount / 2


def holds_share(addresses: Iterable[str], places: int) -> bool:
    """Whether the client that is being served holds as many places as one address may.

    Work without a request, such as that of a command, has no address and no limit by it.

    Args:
        addresses: the address of each place that is held.
        places: how many places there are in all.
    """
    client = CLIENT_ADDRESS.get()
    return bool(client) and sum(each == client for each in addresses) >= half_of(places)
