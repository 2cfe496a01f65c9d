"""The storage quota of a public server (`limits.py`).

Evicts least recently used data first: weight history, then models, then records. The record and the
curves of a run without its model allow an exact repetition. Runs in use are never evicted. A user
above their share, or an address above half of all, takes no space from others: the address counts
because a client can invent any number of owners.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from playground.common.format import format_bytes
from playground.common.storage import directory_size, evict
from playground.errors import UserError
from playground.jobs.admission import max_amount_per_address

from .limits import estimated_run_bytes
from .record import HISTORY_THINNED, WEIGHTS_EVICTED, owner_id
from .state import Run
from .weight_history import STATE_SUFFIX, is_retained, weight_steps, weights_path

if TYPE_CHECKING:
    from .registry import Registry

# bytes of metrics that remain after the eviction of the model
MAX_RETAINED_METRICS_BYTES = 1_000_000
OWNER_ACTIVE_TTL_S = 60.0  # seconds for which an owner or a viewer counts as active
MAX_NAMED_RUNS = 3  # runs named in a message
Eviction = Callable[[Run], Callable[[], object]]


class StorageQuota:
    """The storage quota of a registry's runs. Safe to call from any thread.

    The damaged runs count, but are never evicted.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry, self.settings, self.runs = registry, registry.settings, registry.all_runs
        self.on_delete: Callable[[], object] = lambda: None  # called after a run was deleted

    def ensure_available(self, owner: str, address: str, n_bytes: int) -> None:
        """Ensure that an owner (a fingerprint) can store more bytes, or raise UserError.

        Of the owner's runs, only the weight history is evicted: a press on Train costs no model.
        """
        limits = self.settings.limits
        if limits.bytes_per_owner:
            owned = [run for run in self.runs() if run.owner == owner and not run.is_deleted]
            used = sum(map(self.size_of_run, owned)) + self._damaged_bytes()[owner]
            excess = used + n_bytes - limits.bytes_per_owner
            if self.thin_histories(owned, excess) > 0:
                runs_by_size = sorted(owned, key=self.size_of_run, reverse=True)[:MAX_NAMED_RUNS]
                sized = [
                    f"“{run.name}” ({format_bytes(self.size_of_run(run))})" for run in runs_by_size
                ]
                raise UserError(
                    f"your runs use {format_bytes(used)} and this "
                    f"needs about {format_bytes(n_bytes)} more, but {limits.instance_name} stores "
                    f"{format_bytes(limits.bytes_per_owner)} per user: delete "
                    f"{' or '.join(sized)}, or {limits.how_to_raise('RUNS_MB')}"
                )
        is_short = bool(limits.bytes_total) and self.enforce(n_bytes, address) > 0
        if address and limits.bytes_total and self._exceeds_address_quota(n_bytes, address):
            raise UserError(
                f"{limits.instance_name} stores {format_bytes(limits.bytes_total)} in total, of "
                "which one address may use half, and the runs from yours need more than that; "
                f"delete some, try again later, or {limits.how_to_raise('RUNS_TOTAL_MB')}"
            )
        if is_short:
            raise UserError(
                f"{limits.instance_name} stores {format_bytes(limits.bytes_total)} in total, and "
                f"all of it is in use; try again later, or {limits.how_to_raise('RUNS_TOTAL_MB')}"
            )

    def enforce(self, needed: int = 0, address: str = "") -> int:
        """Evict data if all runs, with `needed` bytes more of an address, exceed the total quota.

        Owners above their share lose data first, then addresses above half of the total. Others
        lose data only for what remains without the excess of these. Returns the bytes still above.
        """
        limits, runs = self.settings.limits, self.runs()
        share = limits.bytes_per_owner or limits.bytes_total
        used = self._bytes_by_owner(runs)
        excess = sum(max(0, each - share) for each in used.values())
        self._evict(
            [run for run in runs if used[run.owner] > share],
            min(excess, sum(used.values()) + needed - limits.bytes_total),
        )
        half = int(max_amount_per_address(limits.bytes_total))
        for crowded, size in self._bytes_by_address(self.runs(), needed, address).items():
            if crowded and size > half:
                over = sum(self._bytes_by_owner(self.runs()).values()) + needed - limits.bytes_total
                self._evict(
                    [run for run in self.runs() if run.address == crowded], min(size - half, over)
                )
        fair = self._bytes_by_address(self.runs(), needed, address, share)
        return self._evict(
            runs,
            sum(min(size, half) if name else size for name, size in fair.items())
            - limits.bytes_total,
        )

    def eviction_message(self, owner_key: str) -> str:
        """Return a message about the evicted data of an owner's runs; empty if there is none."""
        owner = owner_id(owner_key)
        owned = [run for run in self.runs() if run.owner == owner and not run.is_deleted]
        thinned = [run.name for run in owned if run.evicted == HISTORY_THINNED]
        emptied = [run.name for run in owned if run.evicted == WEIGHTS_EVICTED]
        parts = []
        if thinned:
            parts.append(f"Some earlier steps of {_join_names(thinned)} were deleted.")
        if emptied:
            parts.append(
                f"The weights of {_join_names(emptied)} were deleted. "
                "Use “Run again exactly” to retrain them."
            )
        reason = self.settings.limits.storage_limit_message()
        return " ".join([f"Storage limit reached: {reason}.", *parts]) if parts else ""

    def size_of_run(self, run: Run) -> int:
        """Return the bytes of a run; for an active run, at least its estimated final size."""
        size = None if run.has_worker else run.size_bytes
        size = directory_size(run.folder) if size is None else size
        run.size_bytes = None if run.has_worker else size
        is_growing = run.has_worker or run.status in ("waiting", "starting")
        return max(size, estimated_run_bytes(run.config)) if is_growing else size

    def evict_if_idle(self, run: Run, eviction: Eviction) -> int:
        """Evict data of a run if it is idle; return the number of freed bytes.

        A worker that starts meanwhile waits for the lock file. `eviction` updates the run with the
        locks of the registry and the run held. It returns the function that removes the data from
        disk, which runs without these locks, because a poll takes the run's lock.
        """
        freed = 0
        with (
            suppress(filelock.Timeout, OSError),
            filelock.FileLock(run.folder / ".lock", timeout=0),
        ):
            before = self.size_of_run(run)
            with self.registry.scheduler.lock, run.lock:
                if not self.registry.is_idle(run):
                    return 0
                run.size_bytes = None
                remove = eviction(run)
            remove()
            freed = before - self.size_of_run(run)
        # Windows could not remove the lock file of a deleted run while it was open.
        if freed and not (run.folder / "run.json").exists():
            shutil.rmtree(run.folder, ignore_errors=True)
        return freed

    def delete_run(self, run: Run) -> Callable[[], object]:
        """Remove a run, and return the function that removes its folder."""
        self.registry.remove(run)

        def remove_files() -> None:
            shutil.rmtree(run.folder, ignore_errors=True)
            self.on_delete()

        return remove_files

    def _damaged_bytes(self) -> Counter[str]:
        """Return the bytes of the damaged runs of each owner; "" is the unknown owner."""
        used = Counter[str]()
        for each in list(self.registry.damaged.values()):
            used[each.owner] += each.n_bytes
        return used

    def _bytes_by_owner(self, runs: list[Run]) -> Counter[str]:
        used = self._damaged_bytes()
        for run in runs:
            used[run.owner] += self.size_of_run(run)
        return used

    def _bytes_by_address(
        self, runs: list[Run], needed: int, address: str, share: int = 0
    ) -> Counter[str]:
        """Return the bytes of each address ("": unknown), with `needed` more of `address`.

        Of one owner, at most `share` bytes count (0: no limit).
        """
        sizes = [self.size_of_run(run) for run in runs]
        owners, used = Counter[str](), Counter[str]({address: needed})
        used[""] += self._damaged_bytes().total()
        for run, size in zip(runs, sizes, strict=True):
            owners[run.owner] += size
        for run, size in zip(runs, sizes, strict=True):
            n_bytes = owners[run.owner]
            used[run.address] += size * share // n_bytes if share and n_bytes > share else size
        return used

    def _exceeds_address_quota(self, needed: int, address: str) -> bool:
        limit = self.settings.limits.bytes_total
        used = self._bytes_by_address(self.runs(), needed, address)
        return used[address] > max_amount_per_address(limit) and used.total() > limit

    def thin_histories(self, runs: list[Run], excess: int) -> int:
        """Thin the weight histories to free `excess` bytes; return the bytes still missing."""
        return evict(
            self._least_recently_used(runs) if excess > 0 else (),
            excess,
            lambda run: self._truncate(run, surplus_weights, HISTORY_THINNED),
        )

    def _evict(self, runs: list[Run], excess: int) -> int:
        """Evict data of idle runs until `excess` bytes are free; return the bytes still missing.

        The order is: deleted runs, weight histories, models, records of runs without a model.
        Among the models, uploaded ones of absent owners come first, because their owners have a
        copy; then those of hidden runs.
        """
        if excess <= 0:
            return excess
        runs = self._least_recently_used(runs)
        remaining = [run for run in runs if not run.is_deleted]
        order = sorted(
            remaining, key=lambda run: (not run.imported or self._in_use(run), not run.hidden)
        )
        delete = partial(self.evict_if_idle, eviction=self.delete_run)
        empty = partial(self._truncate, select_files=all_weights, state=WEIGHTS_EVICTED)
        excess = evict((run for run in runs if run.is_deleted), excess, delete)
        excess = self.thin_histories(remaining, excess)
        excess = evict(order, excess, empty)
        return evict((run for run in remaining if run.evicted == WEIGHTS_EVICTED), excess, delete)

    def _truncate(self, run: Run, select_files: Callable[[Path], list[Path]], state: str) -> int:
        """Remove the selected files of a run and record `state` in it; return the freed bytes."""
        try:
            paths, modified_at = select_files(run.folder), (run.folder / "run.json").stat().st_mtime
        except OSError:
            return 0
        if not paths:
            return 0

        def mark_evicted(run: Run) -> Callable[[], None]:
            run.update_live(weight_steps=None, latest_weights_step=None)
            run.count_checkpoint_change()
            run.update(evicted=state)
            if state == WEIGHTS_EVICTED:
                run.update_live(snapshot=None, probe_info=None)
                why = f"{run.message}; " if run.status == "failed" else ""
                reason = self.settings.limits.storage_limit_message()
                run.update(
                    message=f"{why}its weights were deleted because the storage limit was reached "
                    f"({reason}); use “Run again exactly” to retrain it"
                )
            run.write()
            return remove

        def remove() -> None:
            for path in paths:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            # An eviction does not count as use of the run.
            os.utime(run.folder / "run.json", (modified_at, modified_at))

        return self.evict_if_idle(run, mark_evicted)

    def _least_recently_used(self, runs: list[Run]) -> list[Run]:
        """Sort runs, least recently used first; runs with an active owner or viewer come last."""

        def age(run: Run) -> tuple[bool, float]:
            try:
                written = (run.folder / "run.json").stat().st_mtime
            except OSError:
                written = 0.0
            return self._in_use(run), written

        return sorted(runs, key=age)

    def _in_use(self, run: Run) -> bool:
        seen_at = self.registry.owner_last_seen.get(run.owner, -OWNER_ACTIVE_TTL_S)
        return time.monotonic() - max(seen_at, run.last_viewed_at) < OWNER_ACTIVE_TTL_S


def surplus_weights(folder: Path) -> list[Path]:
    """Return all states, and the weights but the first, the latest, and one per doubling."""
    weights = [
        weights_path(folder, step) for step in weight_steps(folder)[:-1] if not is_retained(step, 1)
    ]
    return [*weights, *(folder / "history").glob(f"*{STATE_SUFFIX}")]


def all_weights(folder: Path) -> list[Path]:
    """Return what to remove from a run so that only its record and short curves remain."""
    paths = [path for name in ("checkpoints", "history") if directory_size(path := folder / name)]
    metrics = folder / "metrics.jsonl"
    if metrics.is_file() and metrics.stat().st_size > MAX_RETAINED_METRICS_BYTES:
        paths.append(metrics)
    return paths


def _join_names(names: list[str]) -> str:
    """Join names with commas and "and"; at most `MAX_NAMED_RUNS` of them are named."""
    parts = [f"“{name}”" for name in names[:MAX_NAMED_RUNS]]
    if len(names) > MAX_NAMED_RUNS:
        parts.append(f"{len(names) - MAX_NAMED_RUNS} more")
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
