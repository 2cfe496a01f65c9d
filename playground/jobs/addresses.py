"""The client address of the current request, and the limits for one address.

A client can create any number of owner keys, but not of addresses. A limit per owner alone can
therefore be bypassed.
"""

from collections.abc import Iterable
from contextvars import ContextVar
from typing import NamedTuple

CLIENT_ADDRESS = ContextVar("client_address", default="")
VIEWER = "viewer"  # the owner of requests through a share link


class Client(NamedTuple):
    """The client whose quota a request uses: an address, and an owner's fingerprint or VIEWER."""

    address: str = ""
    owner: str = ""


NO_CLIENT = Client()


def max_per_address(slots: int) -> int:
    """Return how many of these slots one address may hold."""
    return max(1, slots // 2)


def max_amount_per_address(amount: float) -> float:
    """Return how much of an amount of disk space one address may use."""
    return amount / 2


def uses_full_share(addresses: Iterable[str], slots: int) -> bool:
    """Return whether the current client holds as many slots as one address may.

    Work without a request, such as that of a command, has no address and no such limit.

    Args:
        addresses: the address of each slot in use.
        slots: total number of slots.
    """
    client = CLIENT_ADDRESS.get()
    return bool(client) and sum(each == client for each in addresses) >= max_per_address(slots)
