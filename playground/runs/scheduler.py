"""The queue of runs that wait for a worker: fair order, slots and memory."""

import threading
import time
from collections.abc import Callable, Iterator

from playground.jobs.admission import Client, limit
from playground.jobs.fair_order import FairOrder
from playground.models.config_fields import ConfigError

from .limits import RegistrySettings, ensure_memory_available
from .state import RecordLock, Run


class RunScheduler:
    """The queue of runs, and the slots of the workers. Safe to call from any thread.

    `launch` starts the worker of a run; it is called with `lock`, that of the registry, held. A
    thread that holds it may take the lock of a run, never the other way round.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        runs: Callable[[], list[Run]],
        launch: Callable[[Run], None],
        lock: RecordLock,
    ) -> None:
        self.settings, self.lock = settings, lock
        self.stop_event = threading.Event()  # once it is set, no run starts
        self._runs, self._launch = runs, launch
        self._queue: list[Run] = []  # in order of arrival
        # queue positions by run id, 1 for the next run; replaced as a whole, never modified
        self._positions: dict[str, int] = {}
        self.turns = FairOrder()

    def __contains__(self, run: Run) -> bool:
        return run in self._queue

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._queue))

    def position(self, run: Run) -> int | None:
        """Return the queue position of a run, 1 for the next one; None if it is not queued."""
        return self._positions.get(run.id) if run.status == "waiting" else None

    def ensure_can_enqueue(self, client: Client) -> None:
        """Raise UserError unless the queue accepts one more run of a client."""
        limit("queued-runs").admit(client, (Client(run.address, run.owner) for run in self))

    def enqueue(self, run: Run, first_command: str) -> None:
        """Add a run without a worker to the queue."""
        with self.lock:
            if run.has_worker or run in self:
                return
            run.first_command = first_command
            run.update(status="waiting", message="")
            run.last_viewed_at = time.monotonic()
            self._queue.append(run)
            self.schedule()

    def remove(self, run: Run) -> bool:
        """Remove a run from the queue; return False if it is not there."""
        with self.lock:
            if run not in self:
                return False
            self._queue.remove(run)
            self._publish_positions()
            return True

    def schedule(self) -> None:
        """Start queued runs in the free slots; if none is free, reclaim one of a paused run."""
        with self.lock:
            while not self.stop_event.is_set() and self._start_next():
                pass
            self._publish_positions()

    def _publish_positions(self) -> None:
        """Store the queue positions where a poll reads them without a lock. Needs the lock."""
        self._positions = {run.id: at for at, run in enumerate(self.order(), start=1)}

    def _start_next(self) -> bool:
        """Launch the first queued run that has a slot and enough memory, if any. Needs the lock.

        A run that needs less memory may start before one that lacks it, for which a paused run
        releases its memory.
        """
        live = [run for run in self._runs() if run.has_worker]
        for run in self.order():
            mine = sum(other.owner == run.owner for other in live)
            if len(live) >= self.settings.slots or mine >= self.settings.slots_per_owner:
                run.update(message="")  # the run waits for a slot, not for memory
                if mine >= self.settings.slots_per_owner:
                    _reclaim_slot([other for other in live if other.owner == run.owner], live)
                else:
                    _reclaim_slot(live, live)
                return False
            starting = sum(
                other.config.estimate_memory() for other in live if other.status == "starting"
            )
            try:
                ensure_memory_available(run.config, reserved_bytes=starting)
            except ConfigError as error:
                run.update(message=f"waiting for memory: {error}")
                _reclaim_slot(live, [other for other in live if other.status == "paused"])
                continue
            self._queue.remove(run)
            self.turns.serve(run)
            self._launch(run)
            return True
        return False

    def order(self) -> list[Run]:
        """Return the queued runs in the order in which they start."""
        with self.lock:
            live = (run for run in self._runs() if run.has_worker)
            return list(self.turns.order(self._queue, live))


def _reclaim_slot(candidates: list[Run], live: list[Run]) -> None:
    """Reclaim the slot of the paused candidate that was viewed least recently.

    Its run saves, and its worker exits. Nothing happens while a run of `live` exits already.
    """
    paused = [run for run in candidates if run.status == "paused"]
    if paused and not any(run.exiting for run in live):
        idle = min(paused, key=lambda run: run.last_viewed_at)
        idle.exiting = idle.send_command("park")
