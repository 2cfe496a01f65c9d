"""The queue before a process that inspects models: clients take turns, and none can fill it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MAX_PER_CLIENT = 8  # waiting requests of one owner at one address
MAX_PER_ADDRESS = 64  # of all owners at one address, such as a class behind one router
MAX_WAITING = 512
VIEWER = "viewer"  # the owner of requests through a share link


class Client(NamedTuple):
    """The client whose quota a request uses: an address, and an owner's fingerprint or VIEWER."""

    address: str = ""
    owner: str = ""


NO_CLIENT = Client()


@dataclass(eq=False)
class InspectionRequest:
    """One request to an inspection process, and the future of its response."""

    method: str
    model_ref: dict[str, Any]
    argument: str = ""
    client: Client = NO_CLIENT
    timeout_s: float = 0.0  # seconds; 0 for the limit of the process
    future: Future[dict[str, Any]] = field(default_factory=Future)


class InspectionQueue:
    """Waiting requests of all clients.

    Addresses take turns, and so do the owners behind one address: neither a backlog nor invented
    owners delay another client by more than one request. The most recently served client comes
    last. A cancelled request frees its slot. Not thread-safe.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[str, deque[InspectionRequest]]] = OrderedDict()
        self._last_address = NO_CLIENT

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[InspectionRequest]:
        for owners in self._waiting.values():
            for requests in owners.values():
                yield from (request for request in requests if not request.future.cancelled())

    def put(self, request: InspectionRequest) -> bool:
        """Add a request; return False if its client or the queue has the maximum number."""
        address, owner = request.client
        owners = self._waiting.get(address, OrderedDict())
        for name in list(owners):
            owners[name] = deque(queued for queued in owners[name] if not queued.future.cancelled())
        of_client, of_address = len(owners.get(owner, ())), sum(map(len, owners.values()))
        if of_client >= MAX_PER_CLIENT or of_address >= MAX_PER_ADDRESS or len(self) >= MAX_WAITING:
            return False
        self._waiting.setdefault(address, owners).setdefault(owner, deque()).append(request)
        return True

    def next(self) -> InspectionRequest | None:
        """Remove and return the next request that is not cancelled; None if there is none."""
        while self._waiting:
            address = _first_except(self._waiting, self._last_address.address)
            owners = self._waiting.pop(address)
            owner = _first_except(owners, self._last_address.owner)
            requests = owners.pop(owner)
            while requests and requests[0].future.cancelled():
                requests.popleft()
            request = requests.popleft() if requests else None
            if requests:
                owners[owner] = requests
            if owners:
                self._waiting[address] = owners
            if request is not None:
                self._last_address = request.client
                return request
        return None

    def clear(self) -> list[InspectionRequest]:
        """Remove and return all waiting requests."""
        requests = list(self)
        self._waiting.clear()
        return requests


def _first_except(names: OrderedDict[str, Any], last: str) -> str:
    """Return the first name, or the second if the first one was served last."""
    first, *others = list(names)[:2]
    return others[0] if first == last and others else first
