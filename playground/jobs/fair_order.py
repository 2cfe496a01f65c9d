"""The order in which waiting jobs and runs start: clients take turns."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Protocol, TypeVar

MAX_TRACKED_TURNS = 2000  # addresses and owners whose last turn is stored


class Waiting(Protocol):
    @property
    def address(self) -> str: ...

    @property
    def owner(self) -> str: ...


Thing = TypeVar("Thing", bound=Waiting)
Rank = tuple[int, int, int, str]  # active things, last turn, number of the first thing, name


class FairOrder:
    """The turns of all clients. Not thread-safe.

    First comes the address with the fewest active things, then the one that was served longest ago,
    then the one that waits longest; and so do the owners behind one address. Neither a backlog nor
    invented owners delay another client by more than one thing.
    """

    def __init__(self) -> None:
        # number of the last turn by address, and by address and owner; earliest first
        self._last_turns: OrderedDict[tuple[str, ...], int] = OrderedDict()
        self._turn = 0

    def serve(self, thing: Waiting) -> None:
        """Count a turn of the client of a thing."""
        self._turn += 1
        for client in ((thing.address,), (thing.address, thing.owner)):
            self._last_turns[client] = self._turn
            self._last_turns.move_to_end(client)
        while len(self._last_turns) > MAX_TRACKED_TURNS:
            self._last_turns.popitem(last=False)

    def order(self, waiting: Iterable[Thing], active: Iterable[Waiting]) -> Iterator[Thing]:
        """Yield waiting things, given in order of arrival, in the order in which they start."""
        n_active = Counter[tuple[str, ...]]()
        for each in active:
            n_active.update([(each.address,), (each.address, each.owner)])
        queued = defaultdict[tuple[str, str], deque[tuple[int, Thing]]](deque)
        for number, thing in enumerate(waiting):
            queued[thing.address, thing.owner].append((number, thing))
        owners_at = defaultdict[str, list[Rank]](list)
        for client, things in queued.items():
            last_turn = self._last_turns.get(client, 0)
            owners_at[client[0]].append((n_active[client], last_turn, things[0][0], client[1]))
        addresses: list[Rank] = []
        for address, owners in owners_at.items():
            heapify(owners)
            last_turn = self._last_turns.get((address,), 0)
            addresses.append((n_active[address,], last_turn, owners[0][2], address))
        heapify(addresses)
        turn = self._turn
        while addresses:
            n_at_address, _, _, address = heappop(addresses)
            owners = owners_at[address]
            n_of_owner, _, _, owner = heappop(owners)
            things = queued[address, owner]
            yield things.popleft()[1]
            turn += 1
            if things:
                heappush(owners, (n_of_owner + 1, turn, things[0][0], owner))
            if owners:
                heappush(addresses, (n_at_address + 1, turn, owners[0][2], address))
