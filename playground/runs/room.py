"""The disk that runs take on a server that others use (limits.py), and what goes where it gets scarce: what was left alone longest first.

First goes what training brings back: earlier weights beyond one in each doubling of the step. Then whole models: a run's record and its
curves stay, so that it can be run again exactly. What somebody is training is never touched, and what one visitor takes beyond their
share never costs another one anything. Nor does what one client address takes beyond half of all, as owners cost nothing to make up.
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

LONGEST_CURVES = 1_000_000  # bytes of metrics that stay when the model goes
HERE_FOR = 60.0  # seconds since a page last asked about a run, or its owner's runs, that somebody counts as being here
NAMED = 3  # runs that a sentence names
Taking = Callable[[Run], Callable[[], object]]


class Room:
    """Counts what the runs of a registry take, and makes room. Any thread may call in."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    @property
    def _runs(self) -> list[Run]:
        return self.registry.everybodys()

    def check(self, owner: str, needed: int) -> None:
        """See to it that there is room for so many bytes more of an owner's, given by their fingerprint. Of their own runs only earlier
        weights are taken for that: what else is to go is for them to choose, so that nobody loses a model by pressing Train.

        Raises:
            Refused: when there is no room; it names the runs that take most.
        """
        limits = self.registry.limits
        if limits.own_bytes:
            mine = [run for run in self._runs if run.owner == owner and run.deleted_at is None]
            over = sum(map(self.taken, mine)) + needed - limits.own_bytes
            if self._thin(mine, over) > 0:
                most = sorted(mine, key=self.taken, reverse=True)[:NAMED]
                raise Refused(
                    f"your runs take {in_words(sum(map(self.taken, mine)))} and this needs about {in_words(needed)} more, but "
                    f"{limits.here} keeps {in_words(limits.own_bytes)} a visitor: delete "
                    f"{' or '.join(f'“{run.name}” ({in_words(self.taken(run))})' for run in most)}, or {limits.way_out('RUNS_MB')}"
                )
        address = CLIENT_ADDRESS.get()
        is_short = bool(limits.all_bytes) and self.sweep(needed, address) > 0
        if address and limits.all_bytes and self._is_too_much(needed, address):
            raise Refused(
                f"{limits.here} keeps {in_words(limits.all_bytes)} in all, of which one address may take half, and runs from yours take "
                f"more than that; delete some, try again later, or {limits.way_out('RUNS_IN_ALL_MB')}"
            )
        if is_short:
            raise Refused(
                f"{limits.here} keeps {in_words(limits.all_bytes)} in all, and all of it is in use just now; try again later, or "
                f"{limits.way_out('RUNS_IN_ALL_MB')}"
            )

    def sweep(self, needed: int = 0, address: str = "") -> int:
        """Make room where everybody's runs together, with so many bytes more for an address, take too much.

        Who takes more than a visitor's share gives first, then the addresses that take more than half. What others have goes only as far
        as all would take too much if nobody took more than that.

        Returns:
            the bytes that are still too many.
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
        """What was taken of an owner's runs, and why, in a sentence; empty where nothing was."""
        mine = [run for run in self.registry.of_owner(owner) if run.deleted_at is None]
        did = {
            THINNED: "kept fewer of the earlier steps",
            EMPTIED: "gave up the weights (Run again exactly trains anew)",
        }
        told = [
            f"{_names(some)} {what}"
            for word, what in did.items()
            if (some := [run.name for run in mine if run.removed == word])
        ]
        why = self.registry.limits.of_room()
        return f"To make room, {', and '.join(told)}: {why}." if told else ""

    def taken(self, run: Run) -> int:
        """Bytes that a run takes, and at least what one that is not at rest is going to need."""
        size = bytes_in(run.folder) if run.live or run.size is None else run.size
        run.size = None if run.live else size
        return (
            max(size, kept_by(run.config))
            if run.live or run.status in ("waiting", "starting")
            else size
        )

    def take(self, run: Run, taking: Taking) -> int:
        """Take something of a run, if nobody is at it. Returns the bytes that came free.

        `taking` notes in memory what goes, with the locks of the registry and the run held, and
        returns what removes it from the disk. That runs without them, as a poll takes the run's; a
        worker that starts meanwhile waits for the lock file.
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
        """Take all of it."""
        self.registry.forget(run)
        return lambda: shutil.rmtree(run.folder, ignore_errors=True)

    def _used(self, runs: list[Run]) -> Counter[str]:
        """Bytes that each owner's runs take."""
        used = Counter[str]()
        for run in runs:
            used[run.owner] += self.taken(run)
        return used

    def _used_by_address(
        self, runs: list[Run], needed: int, address: str, share: int = 0
    ) -> Counter[str]:
        """Bytes that the runs of each address take, "" where it is not known, with so many more needed by one of them.

        Args:
            share: how much of an owner's runs counts at most; 0 for all of it.
        """
        sizes, owners, used = (
            [self.taken(run) for run in runs],
            Counter[str](),
            Counter[str]({address: needed}),
        )
        for run, size in zip(runs, sizes, strict=True):
            owners[run.owner] += size
        for run, size in zip(runs, sizes, strict=True):
            most = owners[run.owner]
            used[run.address] += size * share // most if share and most > share else size
        return used

    def _is_too_much(self, needed: int, address: str) -> bool:
        """Whether so many bytes more would be beyond an address's half, and there is no room for them."""
        limit, used = (
            self.registry.limits.all_bytes,
            self._used_by_address(self._runs, needed, address),
        )
        return used[address] > may_hold(limit) and used.total() > limit

    def _thin(self, runs: list[Run], over: int) -> int:
        """Thin out the histories of runs until so many bytes are free. Returns how many are not."""
        for run in self._by_age(runs) if over > 0 else []:
            if over > 0:
                over -= self._cut(run, surplus_weights, THINNED)
        return over

    def _empty(self, runs: list[Run], over: int) -> int:
        """Likewise with whatever is at rest: deleted runs, histories, then models, at last the records of runs whose models went before.
        Of models, those go first that somebody sent and who has not come back, who has them on a disk of their own; then those of hidden
        runs. What strangers send must not drive out what others trained here."""
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
        """Take weights of a run, and note that, if there are any to take. Returns the bytes that came free."""
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
                    f"its weights had to make room, as {self.registry.limits.of_room()}; Run again exactly, in its menu, trains it anew"
                )
            run.write()
            return remove

        def remove() -> None:
            for path in going:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            os.utime(
                run.folder / "run.json", (written, written)
            )  # it was left alone as long as before

        return self.take(run, taking)

    def _by_age(self, runs: list[Run]) -> list[Run]:
        """The run first that was left alone longest; those that somebody looks at, or whose owner is here, come last."""

        def age(run: Run) -> tuple[bool, float]:
            try:
                written = (run.folder / "run.json").stat().st_mtime
            except OSError:
                written = 0.0
            return self._is_near(run), written

        return sorted(runs, key=age)

    def _is_near(self, run: Run) -> bool:
        """Whether somebody looks at it, or its owner is here."""
        return (
            time.monotonic() - max(self.registry.here.get(run.owner, -HERE_FOR), run.watched_at)
            < HERE_FOR
        )


def bytes_in(folder: Path) -> int:
    """Bytes of a folder's files. A file that several runs share, as a branch does its origin's, counts in parts."""
    found = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # thinned away just now
                about = os.stat(os.path.join(inside, name))
                found += about.st_size // max(1, about.st_nlink)
    return found


def surplus_weights(folder: Path) -> list[Path]:
    """What goes of a run's earlier weights: all but the first, one in each doubling of the step, and the latest; and every state."""
    weights = [
        weights_path(folder, step) for step in kept_steps(folder)[:-1] if not on_grid(step, 1)
    ]
    return [*weights, *(folder / "history").glob(f"*{STATE}")]


def all_weights(folder: Path) -> list[Path]:
    """What goes of a run of which its record stays, and its curves where they are short. Raises OSError."""
    going = [path for name in ("checkpoints", "history") if bytes_in(path := folder / name)]
    metrics = folder / "metrics.jsonl"
    if metrics.is_file() and metrics.stat().st_size > LONGEST_CURVES:
        going.append(metrics)
    return going


def _names(names: list[str]) -> str:
    """Names in a sentence, a few of them."""
    told = [f"“{name}”" for name in names[:NAMED]] + [f"{len(names) - NAMED} more"] * (
        len(names) > NAMED
    )
    return " and ".join(filter(None, (", ".join(told[:-1]), told[-1])))
