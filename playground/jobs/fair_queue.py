"""The order in which waiting jobs start: clients take turns."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from .job import Job

_Turns = OrderedDict[str, OrderedDict[str, deque[Job]]]  # by address, then by owner


class FairQueue:
    """The waiting jobs of all clients.

    Addresses take turns, and so do the owners behind one address: neither a backlog nor invented
    owners delay another client by more than one job. The most recently served client comes last.
    Not thread-safe.
    """

    def __init__(self) -> None:
        self._waiting: _Turns = OrderedDict()
        self._last_served = ("", "")  # address and owner

    def __len__(self) -> int:
        return sum(len(jobs) for owners in self._waiting.values() for jobs in owners.values())

    def __iter__(self) -> Iterator[Job]:
        """Yield the jobs in the order in which they start."""
        turns: _Turns = OrderedDict(
            (address, OrderedDict((owner, jobs.copy()) for owner, jobs in owners.items()))
            for address, owners in self._waiting.items()
        )
        last = self._last_served
        while turns:
            address = _first_except(turns, last[0])
            owner = _first_except(turns[address], last[1])
            job = turns[address][owner][0]
            _take(turns, job)
            last = address, owner
            yield job

    def put(self, job: Job) -> None:
        """Add a job behind those of its owner."""
        owners = self._waiting.setdefault(job.address, OrderedDict())
        owners.setdefault(job.owner, deque()).append(job)

    def next(self, may_start: Callable[[Job], bool] = lambda job: True) -> Job | None:
        """Remove and return the next job that may start; None if there is none."""
        job = next(filter(may_start, self), None)
        if job is not None:
            _take(self._waiting, job)
            self._last_served = job.address, job.owner
        return job

    def discard(self, job: Job) -> None:
        """Remove a job, if it is queued; the order of the others stays."""
        owners = self._waiting.get(job.address, OrderedDict())
        jobs = owners.get(job.owner, deque())
        if job in jobs:
            jobs.remove(job)
            if not jobs:
                del owners[job.owner]
            if not owners:
                del self._waiting[job.address]


def _take(turns: _Turns, job: Job) -> None:
    """Remove a job; its address and its owner come last from now on."""
    owners = turns.pop(job.address)
    jobs = owners.pop(job.owner)
    jobs.remove(job)
    if jobs:
        owners[job.owner] = jobs
    if owners:
        turns[job.address] = owners


def _first_except(names: OrderedDict[str, Any], last: str) -> str:
    """Return the first name, or the second if the first one was served last."""
    first, *others = islice(names, 2)
    return others[0] if first == last and others else first
