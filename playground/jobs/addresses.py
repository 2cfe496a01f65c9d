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


def uses_full_share(address: str, addresses: Iterable[str], slots: int) -> bool:
    """Return whether an address holds as many slots as one address may.

    Work without a request, such as that of a command, has no address and no such limit.

    Args:
        address: the address of a client.
        addresses: the address of each slot in use.
        slots: total number of slots.
    """
    return bool(address) and sum(each == address for each in addresses) >= max_per_address(slots)
