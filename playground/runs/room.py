"""The storage quota of a public server (`limits.py`).

Evicts least recently used data first: weight history, then models, then records. Training restores
the weight history, of which one step per doubling remains. The record and the curves of a run
without its model allow an exact repetition. Runs in use are never evicted. A visitor who exceeds
their share, or a client address that exceeds half of all, takes no space from other visitors: the
address counts because a client can invent any number of owners.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from .addresses import CLIENT_ADDRESS, may_hold
from .history import STATE, kept_steps, on_grid, weights_path
from .limits import in_words, kept_by
from .run import EMPTIED, THINNED, Refused, Run

if TYPE_CHECKING:
    from .registry import Registry

LONGEST_CURVES = 1_000_000  # bytes of metrics that remain after the eviction of the model
HERE_FOR = 60.0  # seconds after the last request for which an owner or a viewer counts as active
NAMED = 3  # runs named in a message
Taking = Callable[[Run], Callable[[], object]]


class Room:
    """The storage quota of a registry's runs. Safe to call from any thread."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    @property
    def _runs(self) -> list[Run]:
        return self.registry.everybodys()

    def check(self, owner: str, needed: int) -> None:
        """Ensure that an owner can store more bytes.

        Of the owner's runs, only the weight history is evicted. The owner chooses which models to
        delete, so that a press on Train never costs a model.

        Args:
            owner: the owner's fingerprint.
            needed: number of bytes.

        Raises:
            Refused: if the quota is used up, with the names of the largest runs.
        """
        limits = self.registry.limits
        if limits.own_bytes:
            mine = [run for run in self._runs if run.owner == owner and run.deleted_at is None]
            over = sum(map(self.taken, mine)) + needed - limits.own_bytes
            if self._thin(mine, over) > 0:
                most = sorted(mine, key=self.taken, reverse=True)[:NAMED]
                sized = [f"“{run.name}” ({in_words(self.taken(run))})" for run in most]
                raise Refused(
                    f"your runs use {in_words(sum(map(self.taken, mine)))} and this needs about "
                    f"{in_words(needed)} more, but {limits.here} stores "
                    f"{in_words(limits.own_bytes)} per visitor: delete {' or '.join(sized)}, "
                    f"or {limits.way_out('RUNS_MB')}"
                )
        address = CLIENT_ADDRESS.get()
        is_short = bool(limits.all_bytes) and self.sweep(needed, address) > 0
        if address and limits.all_bytes and self._is_too_much(needed, address):
            raise Refused(
                f"{limits.here} stores {in_words(limits.all_bytes)} in total, of which one address "
                "may use half, and the runs from yours need more than that; delete some, "
                f"try again later, or {limits.way_out('RUNS_TOTAL_MB')}"
            )
        if is_short:
            raise Refused(
                f"{limits.here} stores {in_words(limits.all_bytes)} in total, and all of it is "
                f"in use; try again later, or {limits.way_out('RUNS_TOTAL_MB')}"
            )

    def sweep(self, needed: int = 0, address: str = "") -> int:
        """Evict data if all runs together, with `needed` more bytes, exceed the total quota.

        Owners above their share lose data first, then addresses above half of the total. Other
        owners lose data only if the total would be exceeded even without the excess of these.

        Args:
            needed: additional bytes to store.
            address: the client address that needs them.

        Returns:
            the bytes that still exceed the quota.
        """
        limits, runs = self.registry.limits, self._runs
        share = limits.own_bytes or limits.all_bytes
        used = self._used(runs)
        excess = sum(max(0, each - share) for each in used.values())
        self._empty(
            [run for run in runs if used[run.owner] > share],
            min(excess, sum(used.values()) + needed - limits.all_bytes),
        )
        half = int(may_hold(limits.all_bytes))
        for crowded, size in self._used_by_address(self._runs, needed, address).items():
            if crowded and size > half:
                over = sum(self._used(self._runs).values()) + needed - limits.all_bytes
                self._empty(
                    [run for run in self._runs if run.address == crowded], min(size - half, over)
                )
        fair = self._used_by_address(self._runs, needed, address, share)
        return self._empty(
            runs,
            sum(min(size, half) if name else size for name, size in fair.items())
            - limits.all_bytes,
        )

    def told(self, owner: str) -> str:
        """Return a message about the evicted data of an owner's runs; empty if there is none."""
        mine = [run for run in self.registry.of_owner(owner) if run.deleted_at is None]
        thinned = [run.name for run in mine if run.removed == THINNED]
        emptied = [run.name for run in mine if run.removed == EMPTIED]
        told = []
        if thinned:
            told.append(f"Some earlier steps of {_names(thinned)} were deleted.")
        if emptied:
            told.append(
                f"The weights of {_names(emptied)} were deleted. "
                "Use “Run again exactly” to retrain them."
            )
        why = self.registry.limits.of_room()
        return " ".join([f"Storage limit reached: {why}.", *told]) if told else ""

    def taken(self, run: Run) -> int:
        """Return the bytes of a run; for an active run, at least its estimated final size."""
        size = bytes_in(run.folder) if run.live or run.size is None else run.size
        run.size = None if run.live else size
        return (
            max(size, kept_by(run.config))
            if run.live or run.status in ("waiting", "starting")
            else size
        )

    def take(self, run: Run, taking: Taking) -> int:
        """Evict data of a run if it is idle.

        A worker that starts meanwhile waits for the lock file.

        Args:
            taking: updates the run in memory, with the locks of the registry and the run held, and
                returns the function that removes the data from disk. That function runs without
                these locks, because a poll takes the run's lock.

        Returns:
            the number of freed bytes.
        """
        with (
            suppress(filelock.Timeout, OSError),
            filelock.FileLock(run.folder / ".lock", timeout=0),
        ):
            before = self.taken(run)
            with self.registry.hold(), run.lock:
                if not self.registry.at_rest(run):
                    return 0
                run.size = None
                remove = taking(run)
            remove()
            return before - self.taken(run)
        return 0

    def forget(self, run: Run) -> Callable[[], object]:
        """Remove a run, and return the function that removes its folder."""
        self.registry.forget(run)
        return lambda: shutil.rmtree(run.folder, ignore_errors=True)

    def _used(self, runs: list[Run]) -> Counter[str]:
        """Return the bytes of the runs of each owner."""
        used = Counter[str]()
        for run in runs:
            used[run.owner] += self.taken(run)
        return used

    def _used_by_address(
        self, runs: list[Run], needed: int, address: str, share: int = 0
    ) -> Counter[str]:
        """Return the bytes of the runs of each address; "" is the unknown address.

        Args:
            needed: additional bytes of `address`.
            share: the most bytes that count for one owner; 0 for no limit.
        """
        sizes = [self.taken(run) for run in runs]
        owners, used = Counter[str](), Counter[str]({address: needed})
        for run, size in zip(runs, sizes, strict=True):
            owners[run.owner] += size
        for run, size in zip(runs, sizes, strict=True):
            most = owners[run.owner]
            used[run.address] += size * share // most if share and most > share else size
        return used

    def _is_too_much(self, needed: int, address: str) -> bool:
        """Return whether more bytes would exceed the half of an address and the total quota."""
        limit = self.registry.limits.all_bytes
        used = self._used_by_address(self._runs, needed, address)
        return used[address] > may_hold(limit) and used.total() > limit

    def _thin(self, runs: list[Run], over: int) -> int:
        """Thin the weight histories until `over` bytes are free; return the bytes still missing."""
        for run in self._by_age(runs) if over > 0 else []:
            if over > 0:
                over -= self._cut(run, surplus_weights, THINNED)
        return over

    def _empty(self, runs: list[Run], over: int) -> int:
        """Evict data of idle runs until `over` bytes are free; return the bytes still missing.

        The order is: deleted runs, weight histories, models, records of runs without a model.
        Uploaded models of absent owners come first among the models, because their owners have a
        copy; then those of hidden runs. Uploaded models must not evict models trained on this
        instance.
        """
        if over <= 0:
            return over
        runs = self._by_age(runs)
        deleted = [run for run in runs if run.deleted_at is not None]
        kept = [run for run in runs if run.deleted_at is None]
        over = self._until(over, deleted, self.forget)
        over = self._thin(kept, over)
        order = sorted(kept, key=lambda run: (not run.sent or self._is_near(run), not run.hidden))
        for run in order:
            if over > 0:
                over -= self._cut(run, all_weights, EMPTIED)
        return self._until(over, [run for run in kept if run.removed == EMPTIED], self.forget)

    def _until(self, over: int, runs: list[Run], taking: Taking) -> int:
        for run in runs:
            if over > 0:
                over -= self.take(run, taking)
        return over

    def _cut(self, run: Run, choose: Callable[[Path], list[Path]], word: str) -> int:
        """Remove weights of a run and record it in the run.

        Args:
            choose: returns the files and folders to remove from the run's folder.
            word: the value of `removed` from now on.

        Returns:
            the number of freed bytes.
        """
        try:
            going, written = choose(run.folder), (run.folder / "run.json").stat().st_mtime
        except OSError:
            return 0
        if not going:
            return 0

        def taking(run: Run) -> Callable[[], None]:
            run.recorded, run.newest, run.removed, run.saved = None, None, word, run.saved + 1
            if word == EMPTIED:
                run.snapshot = run.stage = None
                why = f"{run.message}; " if run.status == "failed" else ""
                run.message = why + (
                    "its weights were deleted because the storage limit was reached "
                    f"({self.registry.limits.of_room()}); use “Run again exactly” to retrain it"
                )
            run.write()
            return remove

        def remove() -> None:
            for path in going:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            # An eviction does not count as use of the run.
            os.utime(run.folder / "run.json", (written, written))

        return self.take(run, taking)

    def _by_age(self, runs: list[Run]) -> list[Run]:
        """Sort runs, least recently used first; runs with an active owner or viewer come last."""

        def age(run: Run) -> tuple[bool, float]:
            try:
                written = (run.folder / "run.json").stat().st_mtime
            except OSError:
                written = 0.0
            return self._is_near(run), written

        return sorted(runs, key=age)

    def _is_near(self, run: Run) -> bool:
        """Return whether a run has an active owner or viewer."""
        return (
            time.monotonic() - max(self.registry.here.get(run.owner, -HERE_FOR), run.watched_at)
            < HERE_FOR
        )


def bytes_in(folder: Path) -> int:
    """Return the bytes of a folder's files.

    A file that several runs share, such as a run and its branch, counts in equal parts.
    """
    found = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # the file was removed meanwhile
                about = os.stat(os.path.join(inside, name))
                found += about.st_size // max(1, about.st_nlink)
    return found


def surplus_weights(folder: Path) -> list[Path]:
    """Return the weight files to remove when a history is thinned, and all states.

    The first weights, one per doubling of the step, and the latest weights remain.
    """
    weights = [
        weights_path(folder, step) for step in kept_steps(folder)[:-1] if not on_grid(step, 1)
    ]
    return [*weights, *(folder / "history").glob(f"*{STATE}")]


def all_weights(folder: Path) -> list[Path]:
    """Return what to remove from a run so that only its record and short curves remain.

    Raises:
        OSError: if the folder cannot be read.
    """
    going = [path for name in ("checkpoints", "history") if bytes_in(path := folder / name)]
    metrics = folder / "metrics.jsonl"
    if metrics.is_file() and metrics.stat().st_size > LONGEST_CURVES:
        going.append(metrics)
    return going


def _names(names: list[str]) -> str:
    """Join names with commas and "and"; at most `NAMED` of them are named."""
    told = [f"“{name}”" for name in names[:NAMED]]
    if len(names) > NAMED:
        told.append(f"{len(names) - NAMED} more")
    return " and ".join(filter(None, (", ".join(told[:-1]), told[-1])))
