"""Store, schedule and evaluate the experiments of a server.

    <root>/experiments/<id>.json    the specification and the ids of its runs
    <root>/runs/<run>/lengths.json  the counts of a run by length (lengths.py)

An experiment submits only a few runs to the queue of the registry at a time, so that other runs of
its owner do not wait behind all of them. The queue itself is fair between owners. An experiment
continues until it is complete or cancelled. After a restart it is paused until its owner resumes
it, as are runs. Threads: all public methods are safe to call from any thread; a background thread
submits and evaluates the runs.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from playground.models.config import SettingError, shown
from playground.runs.addresses import CLIENT_ADDRESS, half_of, holds_share
from playground.runs.eyes import Eyes
from playground.runs.registry import LONGEST_PROOF, RUNS_AN_OWNER, WATCHED_FOR, Registry
from playground.runs.run import EMPTIED, Refused, Run, fingerprint
from playground.training.config import RunConfig
from playground.training.files import sweep, way_out, write_file
from playground.training.manifest import read_json

from . import lengths, results
from .experiment import LENGTHS, Cell, Experiment

log = logging.getLogger(__name__)

AHEAD = 2  # maximum number of queued runs of one experiment
TICK = 0.2  # seconds between two iterations of the background thread
EXPERIMENTS_AN_OWNER, EXPERIMENTS_IN_ALL = 50, 2000
AGAIN_AFTER = 5.0  # seconds after a refusal until the next attempt
SPEC = (
    "name",
    "question",
    "base",
    "grid",
    "seeds",
    "kind",
    "times",
    "n",
)  # the fields of a request
ENDED = ("done", "failed")
LEFT = ("paused", "stopped", "failed")  # statuses that only a resume ends
MAX_CACHED = 64  # experiments with computed results in memory
ALIKE = (
    "task",
    "symbols",
    "min_length",
    "max_length",
    "batch_size",
    "device",
    "threads",
    "eval_every",
    "eval_n",
)


class Going:
    """The state of an experiment, besides its specification."""

    def __init__(self, experiment: Experiment, runs: Mapping[str, str] = {}) -> None:
        self.experiment = experiment
        self.runs = dict(runs)  # the ids of the started runs, by key
        # The secret of the owner while runs remain to be started; never written to disk.
        self.owner = ""
        self.address = CLIENT_ADDRESS.get()  # of the client; unknown after a restart
        self.again: set[str] = set()  # keys of the runs to resume
        self.message = ""
        self.failure = ""  # the last error, which is logged once
        # Caches: `forget` can clear them at any time while no owner waits.
        # Each entry is a cache key and a result; `cells` is by label, `measured` by run.
        self.cells: dict[str, tuple[object, dict[str, Any]]] = {}
        self.results: tuple[Hashable, dict[str, Any]] | None = None
        self.lengths: tuple[Hashable, dict[str, Any]] | None = None
        self.measured: dict[str, tuple[object, dict[str, Any]]] = {}
        self.kinds: dict[str, Hashable] = {}  # `_kind_of` the runs, by label
        # The counts by length so far, by run and step, and those that are complete on disk.
        self.counts: dict[tuple[str, int], list[dict[str, int]]] = {}
        self.kept: set[tuple[str, int]] = set()
        self.asking: Future[dict[str, Any]] | None = None
        self.asked: tuple[str, int] = ("", 0)  # the run and the step of the pending request
        self.asked_at = 0.0  # the time of that request
        self.watched_at = time.monotonic()  # the time of the last poll
        self.not_before = 0.0  # the earliest time of the next attempt

    def forget(self) -> None:
        """Clear the caches."""
        self.cells, self.measured, self.kinds, self.counts = {}, {}, {}, {}
        self.results = self.lengths = None


class Laboratory:
    """The service that runs experiments and returns their results as values for JSON."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        # A separate inspection process: long evaluations must not delay other inspections.
        self.eyes = Eyes()
        self.folder = registry.root / "experiments"
        self._known: dict[str, Going] = {}
        # Experiments with computed results, by id, most recently used last.
        self._cached: OrderedDict[str, Going] = OrderedDict()
        self._lock = threading.RLock()
        self._closing = threading.Event()
        sweep(self.folder, 600)
        for path in sorted(self.folder.glob("*.json")):
            try:
                going = _read(path)
            except (ValueError, OSError):  # the file stays: it may belong to another version
                log.warning("%s cannot be read as an experiment", path, exc_info=True)
                continue
            self._known[going.experiment.id] = going
        threading.Thread(target=self._keep_going, name="laboratory", daemon=True).start()

    def close(self) -> None:
        """Stop submitting and evaluating runs. The registry manages the started runs."""
        self._closing.set()
        self.eyes.stop()

    # Ownership

    def find(self, experiment_id: object, owner: str) -> Experiment | None:
        """Return the experiment of the owner with this id, or None."""
        going = self._known.get(experiment_id) if isinstance(experiment_id, str) else None
        mine = (
            going and owner and secrets.compare_digest(going.experiment.owner, fingerprint(owner))
        )
        return going.experiment if going and mine else None

    def of_owner(self, owner: str) -> list[Experiment]:
        """Return the experiments of an owner, newest first."""
        with self._lock:
            found = [going.experiment for going in self._known.values()]
        mine = [
            each
            for each in found
            if owner and secrets.compare_digest(each.owner, fingerprint(owner))
        ]
        return sorted(mine, key=lambda each: -each.created)

    # Creating experiments

    def plan(self, spec: Mapping[str, Any], owner: str) -> dict[str, Any]:
        """Return the variants, the runs and the estimated time without starting anything.

        Raises:
            SettingError: when a field is invalid; `field` names it.
        """
        return self._planned(self._allowed(_asked(spec, owner)), owner)

    def _allowed(self, experiment: Experiment) -> Experiment:
        """Return the experiment after a check of its runs against the limits.

        Raises:
            SettingError: when a run exceeds a limit.
        """
        for cell in experiment.cells:
            self.registry.limits.check(cell.config(experiment.seeds[0]))
        return experiment

    def _planned(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        configs = [cell.config(experiment.seeds[0]) for cell in experiment.cells]
        cells = [
            {
                "label": cell.label,
                "values": cell.values,
                "parameters": config.model.parameter_count(),
                "steps": config.training.steps,
            }
            for cell, config in zip(experiment.cells, configs, strict=True)
        ]
        return {
            "runs": experiment.n_runs,
            "cells": cells,
            "estimate": self.estimate(experiment, owner),
        }

    def begin(self, spec: Mapping[str, Any], owner: str) -> Experiment:
        """Start an experiment; its runs are queued.

        Raises:
            SettingError: when a field is invalid; `field` names it.
            Refused: when the owner, the address or the server has too many experiments, the owner
                has too many runs, or the disk cannot store the experiment.
        """
        experiment = self._allowed(_asked(spec, owner))
        with self._lock:
            if len(self.of_owner(owner)) >= EXPERIMENTS_AN_OWNER:
                raise Refused(
                    f"you have {EXPERIMENTS_AN_OWNER} experiments, the maximum; delete one first"
                )
            have = len(self.registry.of_owner(owner))
            if have + experiment.n_runs > RUNS_AN_OWNER:
                raise Refused(
                    f"you have {have} runs and this experiment would add "
                    f"{experiment.n_runs}; the maximum is {RUNS_AN_OWNER}, delete some "
                    "first"
                )
            self._make_room()
            going = Going(experiment)
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._write(going)
            except OSError as error:
                raise Refused(
                    f"the experiment could not be saved: {error.strerror or error}; "
                    f"{way_out(error)} and try again"
                ) from None
            going.owner = owner
            self._known[experiment.id] = going
        return experiment

    def _make_room(self) -> None:
        """Delete the oldest experiment of an inactive owner when the limit is reached.

        When the address of the client has half of all experiments, delete one of that address.
        The caller must hold the lock.

        Raises:
            Refused: when no experiment can be deleted.
        """
        is_share = holds_share((each.address for each in self._known.values()), EXPERIMENTS_IN_ALL)
        if not is_share and len(self._known) < EXPERIMENTS_IN_ALL:
            return
        left = [
            each.experiment
            for each in self._known.values()
            if not each.owner
            and each.experiment.owner not in self.registry.here
            and (not is_share or each.address == CLIENT_ADDRESS.get())
        ]
        if not left and is_share:
            raise Refused(
                f"your address has {half_of(EXPERIMENTS_IN_ALL):,} experiments, the "
                "maximum; delete one first"
            )
        if not left:
            raise Refused("this server has reached its limit of experiments; try again later")
        oldest = min(left, key=lambda each: each.created)
        with suppress(OSError):
            (self.folder / f"{oldest.id}.json").unlink(missing_ok=True)
        self._drop(oldest.id)

    def _drop(self, experiment_id: str) -> None:
        """Remove an experiment from memory. The caller must hold the lock."""
        del self._known[experiment_id]
        self._cached.pop(experiment_id, None)

    def _use(self, experiment: Experiment) -> Going:
        """Return the state of an experiment and mark it as most recently used.

        The caches of the least recently used experiments are cleared, unless they are active.
        """
        going = self._known[experiment.id]
        # Non-blocking: a report must not wait while a run starts.
        if self._lock.acquire(blocking=False):
            try:
                self._cached[experiment.id] = going
                self._cached.move_to_end(experiment.id)
                if len(self._cached) > MAX_CACHED:
                    for each in list(self._cached.values())[:-MAX_CACHED]:
                        if not each.owner and each.asking is None:
                            each.forget()
                            del self._cached[each.experiment.id]
            finally:
                self._lock.release()
        return going

    # Actions of an owner

    def cancel(self, experiment: Experiment, owner: str) -> None:
        """Remove queued runs, stop and save active runs, and start no more."""
        with self._lock:
            going = self._known[experiment.id]
            going.owner, going.message = "", ""
            going.again.clear()
            for key, run in self._runs(going, owner).items():
                if run.status == "waiting" and not run.step:
                    self.registry.control(run, "stop")
                    self.registry.delete(run)
                    going.runs.pop(key)
                elif run.live or run.status == "waiting":
                    # The registry ends a process that does not respond.
                    with suppress(Refused):
                        self.registry.control(run, "stop")
            self._write(going)

    def resume(self, experiment: Experiment, owner: str) -> None:
        """Continue after a cancellation, a failure or a restart; finished runs are not repeated."""
        with self._lock:
            going = self._known[experiment.id]
            runs = self._runs(going, owner)
            # A run whose weights were deleted before its evaluation is trained again.
            for key, run in list(runs.items()):
                if (
                    run.removed == EMPTIED
                    and not run.diverged
                    and (run.status != "done" or self._unasked(going, {key: run}))
                ):
                    del going.runs[key], runs[key]
            ids = set(going.runs.values())
            going.measured = {
                run_id: each for run_id, each in going.measured.items() if run_id in ids
            }
            going.counts = {key: each for key, each in going.counts.items() if key[0] in ids}
            going.kept = {key for key in going.kept if key[0] in ids}
            going.again = {
                key
                for key, run in runs.items()
                if run.status in (*LEFT, "stopping") and not run.diverged
            }
            going.message, going.owner, going.address = (
                "",
                owner,
                CLIENT_ADDRESS.get() or going.address,
            )
            going.watched_at, going.not_before = time.monotonic(), 0.0

    def delete(self, experiment: Experiment, owner: str) -> None:
        """Delete an experiment and its runs; the runs can be restored for a limited time.

        Raises:
            Refused: when the file cannot be deleted.
        """
        self.cancel(experiment, owner)
        with self._lock:
            going = self._known[experiment.id]
            try:
                (self.folder / f"{experiment.id}.json").unlink(missing_ok=True)
            except OSError as error:
                raise Refused(
                    f"the experiment could not be deleted: {error.strerror or error}"
                ) from None
            self._drop(experiment.id)
            for run in self._runs(going, owner).values():
                self.registry.delete(run)

    # Responses for a page

    def rows(self, owner: str) -> list[dict[str, Any]]:
        """Return the summaries of the experiments of an owner, newest first."""
        return [self.row(each, owner) for each in self.of_owner(owner)]

    def row(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Return the summary of an experiment. Polling counts as activity."""
        going = self._use(experiment)
        going.watched_at = time.monotonic()
        runs = self._runs(going, owner)
        status = Counter(run.status for run in runs.values())
        return {
            "id": experiment.id,
            "name": experiment.name,
            "question": experiment.question,
            "kind": experiment.kind,
            "created": experiment.created,
            "state": self.state(experiment, owner),
            "message": going.message,
            "runs": experiment.n_runs,
            "statuses": dict(status) | {"planned": experiment.n_runs - len(runs)},
            "place": min(filter(None, map(self.registry.place, runs.values())), default=None),
        }

    def state(self, experiment: Experiment, owner: str) -> str:
        """Return "going", "done" (every run has ended and is evaluated) or "paused"."""
        going = self._known[experiment.id]
        runs = self._runs(going, owner)
        if (
            len(runs) == experiment.n_runs
            and not going.again
            and all(run.status in ENDED for run in runs.values())
        ):
            return (
                "done" if not self._unasked(going, runs) else "going" if going.owner else "paused"
            )
        busy = any(
            (run.live and run.status != "paused") or run.status == "waiting"
            for run in runs.values()
        )
        return (
            "going"
            if going.owner and (busy or going.again or len(runs) < experiment.n_runs)
            else "paused"
        )

    def report(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Return the state, the runs with their queue positions, and the results so far.

        Polling counts as activity and keeps the runs from idling out. `version` changes with the
        results.
        """
        going = self._use(experiment)
        runs, now = self._runs(going, owner), time.monotonic()
        told = []
        for key, cell, seed in experiment.planned():
            run = runs.get(key)
            line: dict[str, Any] = {
                "cell": cell.label,
                "seed": seed,
                "run": None,
                "status": "planned",
                "step": 0,
                "place": None,
            }
            if run:
                run.watched_at = max(run.watched_at, now - WATCHED_FOR)
                line |= {
                    "run": f"run:{run.id}",
                    "status": run.status,
                    "step": run.step,
                    "place": self.registry.place(run),
                }
                line |= {"steps": run.steps, "message": run.message}
            told.append(line)
        made_of, learned = self._results(experiment, owner)
        found = {"results": learned}
        if experiment.kind == LENGTHS:
            made_of_lengths, found["lengths"] = self._lengths(experiment, owner)
            made_of = (made_of, made_of_lengths)
        spec = {name: value for name, value in experiment.to_json().items() if name in SPEC}
        estimate = self.estimate(experiment, owner)
        version = (
            f"{hash(made_of) & 0xFFFFFFFFFFFFFFFF:016x}"  # hashes of text differ between processes
        )
        return (
            self.row(experiment, owner)
            | {"spec": spec, "lines": told, "estimate": estimate, "version": version}
            | found
        )

    def results(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Return medians, ranges and curves of each variant, and a one-sentence summary."""
        return self._results(experiment, owner)[1]

    def _results(self, experiment: Experiment, owner: str) -> tuple[Hashable, dict[str, Any]]:
        """Return a cache key and the results; recompute only after a run has progressed."""
        going = self._use(experiment)
        runs = self._runs(going, owner)
        made_of = tuple(_state_of(runs.get(key)) for key, _, _ in experiment.planned())
        known = going.results
        if known is None or known[0] != made_of:
            cells = [self._cell(going, runs, at, cell) for at, cell in enumerate(experiment.cells)]
            found = {
                "fields": list(experiment.grid),
                "cells": cells,
                "sentence": results.sentence(list(experiment.grid), cells),
            }
            known = going.results = (made_of, found)
        return known

    def _cell(self, going: Going, runs: Mapping[str, Run], at: int, cell: Cell) -> dict[str, Any]:
        """Return the result of a variant; recompute only after a run has progressed."""
        by_seed = {seed: runs.get(f"{at}/{seed}") for seed in going.experiment.seeds}
        made_of = [_state_of(run) for run in by_seed.values()]
        known = going.cells.get(cell.label)
        if known and known[0] == made_of:
            return known[1]
        told = []
        for seed, run in by_seed.items():
            blank: dict[str, Any] = {
                "done": False,
                "diverged": False,
                "changed": [],
                "exact_match": None,
                "steps": cell.steps,
                "steps_to": None,
                "seconds": 0.0,
                "curve": [],
                "loss": [],
            }
            told.append({"seed": seed} | (self._measure(going, run) if run else blank))
        found = results.cell_result(cell, told)
        found["seeds"] = [
            {name: value for name, value in run.items() if name not in ("curve", "loss")}
            for run in told
        ]
        going.cells[cell.label] = (made_of, found)
        return found

    def lengths(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Return exact match and maximum length of each scheme, and a one-sentence summary."""
        return self._lengths(experiment, owner)[1]

    def _lengths(self, experiment: Experiment, owner: str) -> tuple[Hashable, dict[str, Any]]:
        """Return a cache key and the results by length.

        They are recomputed only after a run has ended or more lengths are evaluated.
        """
        going = self._use(experiment)
        runs = self._runs(going, owner)
        made_of = tuple(self._counted(going, runs.get(key)) for key, _, _ in experiment.planned())
        known = going.lengths
        if known is None or known[0] != made_of:
            known = going.lengths = (made_of, self._compare_lengths(going, runs))
        return known

    def _counted(self, going: Going, run: Run | None) -> Hashable:
        """Return the part of the state of a run that the results by length depend on."""
        if run is None:
            return None
        done = run.status == "done"
        return (
            run.id,
            done,
            run.step if done else 0,
            run.diverged,
            bool(run.changed),
            len(self._counts(going, run)),
        )

    def _compare_lengths(self, going: Going, runs: Mapping[str, Run]) -> dict[str, Any]:
        experiment, rows = going.experiment, []
        for at, cell in enumerate(experiment.cells):
            config, told = cell.config(experiment.seeds[0]), []
            for seed in experiment.seeds:
                run = runs.get(f"{at}/{seed}")
                whole = (
                    run and run.status == "done" and not run.changed and not self._left(going, run)
                )
                out = bool(run and (run.diverged or (run.status == "done" and run.changed)))
                told.append(
                    {
                        "seed": seed,
                        "scores": lengths.scores(self._counts(going, run)) if run and whole else [],
                        "out": out,
                    }
                )
            rows.append(lengths.scheme_result(cell.short, told, config))
        task = config.task
        longest = max(experiment.longest(cell.settings) for cell in experiment.cells)
        trained = [task.min_length, task.max_length]
        return {
            "trained": trained,
            "longest": longest,
            "asked": experiment.n,
            "rows": rows,
            "sentence": lengths.sentence(rows, trained, longest),
        }

    def to_csv(self, experiment: Experiment, owner: str) -> str:
        """Return the results as CSV."""
        if experiment.kind == LENGTHS:
            return lengths.to_csv(self.lengths(experiment, owner)["rows"])
        found = self.results(experiment, owner)
        return results.to_csv(found["fields"], found["cells"])

    def estimate(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Estimate the remaining time from earlier runs of the owner with the same model and task.

        `seconds` is None when a remaining run has no comparable run; `sentence` reports that.
        """
        going = self._known.get(experiment.id)
        runs = self._runs(going, owner) if going else {}
        kinds: dict[str, Hashable] = going.kinds if going else {}
        planned = [(cell, runs.get(key)) for key, cell, _ in experiment.planned()]
        left = [(cell, run) for cell, run in planned if run is None or run.status not in ENDED]
        at_once = min(len(left), self.registry.slots_an_owner) or 1
        if not left:
            return {"seconds": 0.0, "unknown": 0, "sentence": "every run has ended"}
        speeds, seconds, unknown = self._speeds(owner), 0.0, 0
        for cell, run in left:
            if cell.label not in kinds:
                kinds[cell.label] = _kind_of(cell.config(experiment.seeds[0]))  # of any seed
            speed = speeds.get(kinds[cell.label])
            if speed is None:
                unknown += 1
            else:
                seconds += max(0, cell.steps - (run.step if run else 0)) / speed
        if unknown:
            said = (
                f"unknown for {unknown} of {len(left)} runs: no comparable run has trained here yet"
            )
            return {
                "seconds": None,
                "unknown": unknown,
                "sentence": f"the remaining time is {said}",
            }
        told = (
            f"{seconds / at_once / 60:.0f} min"
            if seconds / at_once >= 120
            else f"{seconds / at_once:.0f} s"
        )
        return {
            "seconds": seconds / at_once,
            "unknown": 0,
            "sentence": (
                f"about {told} for {len(left)} runs, {at_once} at a time, at the speed "
                "measured here, if no other runs train"
            ),
        }

    def _speeds(self, owner: str) -> dict[Hashable, float]:
        """Return steps per second of the latest run of each kind, evaluations included."""
        measured = (
            run for run in self.registry.of_owner(owner) if run.step >= 20 and run.seconds > 0
        )
        return {_kind_of(run.config): run.step / run.seconds for run in measured}

    # Background thread

    def _keep_going(self) -> None:
        failure = ""
        while not self._closing.wait(TICK):
            try:
                self.eyes.supervise(LONGEST_PROOF)
                failure = ""
            except Exception as error:  # this thread must not end
                if repr(error) != failure:  # log a repeated error once
                    failure = repr(error)
                    log.exception("The experiment service cannot supervise its inspection process")
            self._advance()

    def _advance(self) -> None:
        """Start, resume and evaluate runs of every experiment."""
        # Longest-waiting experiments first.
        for going in sorted(self._known.copy().values(), key=lambda each: each.asked_at):
            if not going.owner:
                continue
            before = CLIENT_ADDRESS.set(going.address)  # new runs count for this address
            try:
                with self._lock:
                    if going.owner and not self._put_down(going):
                        self._feed(going)
                        self._ask(going)
                going.failure = ""
            except Exception as error:  # an error in one experiment must not stop the others
                going.message = f"{type(error).__name__}: {error}"
                if going.failure != going.message:  # log a repeated error once
                    going.failure = going.message
                    log.exception("The experiment %s cannot continue", going.experiment.id)
            finally:
                CLIENT_ADDRESS.reset(before)

    def _put_down(self, going: Going) -> bool:
        """Cancel an experiment without polls during the idle timeout; its owner can resume it."""
        lease, experiment = self.registry.lease, going.experiment
        seen = max(going.watched_at, self.registry.here.get(experiment.owner, 0.0))
        if not lease or time.monotonic() - seen <= lease:
            return False
        self.cancel(experiment, going.owner)
        told = f"{lease / 60:.0f} min" if lease >= 120 else f"{lease:g} s"
        going.message = f"stopped after {told} without activity; resume it to continue"
        return True

    def _feed(self, going: Going) -> None:
        """Submit runs until `AHEAD` of them are queued."""
        if time.monotonic() < going.not_before:
            return
        experiment, owner = going.experiment, going.owner
        runs = self._runs(going, owner)
        waiting = sum(run.status == "waiting" for run in runs.values())
        begun = False
        for key, cell, seed in experiment.planned():
            if waiting >= AHEAD or self._closing.is_set():
                break
            run = runs.get(key)
            try:
                if run is None:
                    run = self.registry.start(
                        cell.config(seed),
                        owner,
                        name=f"{experiment.name}: {cell.label}, seed {seed}",
                    )
                    going.runs[key] = run.id
                    self.registry.edit(run, hidden=True)
                    begun = True
                elif key in going.again:
                    if run.status == "stopping":
                        continue  # the checkpoint is being saved
                    going.again.discard(key)
                    self.registry.control(run, "resume")
                else:
                    continue
                going.message = ""
            except (Refused, SettingError) as error:
                going.message, going.not_before = str(error), time.monotonic() + AGAIN_AFTER
                break
            waiting += run.status == "waiting"
        if begun:
            self._write(going)

    def _ask(self, going: Going) -> None:
        """Evaluate the next lengths of a finished run, one request at a time on this server."""
        if going.asking is not None:
            if not going.asking.done():
                return
            answer, going.asking = going.asking.result(), None
            if "error" in answer:
                # An automatic retry would fail again.
                going.message, going.owner = answer["error"], ""
                return
            going.counts[going.asked] += answer["scores"]
        runs, lost = self._runs(going, going.owner), None
        for run in self._unasked(going, runs):
            left, what, n = (
                self._left(going, run),
                self.registry.what(run, run.step),
                going.experiment.n,
            )
            if left and run.removed == EMPTIED:
                lost = run
            elif not left:
                with suppress(OSError):  # without the file, a restart repeats the evaluation
                    lengths.write_counts(run.folder, run.step, n, self._counts(going, run))
                going.kept.add((run.id, run.step))
            elif what is not None:
                if any(other.asking and not other.asking.done() for other in self._known.values()):
                    return
                going.asked, going.asked_at = (run.id, run.step), time.monotonic()
                text = json.dumps(
                    {
                        "lengths": lengths.at_once(left, run.config.model.parameter_count(), n),
                        "n": n,
                    }
                )
                going.asking = self.eyes.ask("lengths", what, text)
                return
        if self.state(going.experiment, going.owner) == "done":
            going.owner = ""
        elif (
            lost
            and all(run.status in ENDED for run in runs.values())
            and len(runs) == going.experiment.n_runs
        ):
            going.message, going.owner = (
                f"{lost.name}: its weights were deleted to free space before the "
                "evaluation; Resume trains it again",
                "",
            )

    def _unasked(self, going: Going, runs: Mapping[str, Run]) -> list[Run]:
        """Return the finished runs whose evaluation is not complete on disk."""
        if going.experiment.kind != LENGTHS:
            return []
        for run in runs.values():
            if (run.id, run.step) not in going.kept:
                self._counts(going, run)
        return [
            run
            for run in runs.values()
            if run.status == "done" and (run.id, run.step) not in going.kept
        ]

    def _counts(self, going: Going, run: Run) -> list[dict[str, int]]:
        """Return the counts of a run, from memory or from disk."""
        key = (run.id, run.step)
        known = going.counts.get(key)
        if known is None:
            if run.status != "done":
                return []
            known = going.counts[key] = lengths.read_counts(
                run.folder, run.step, going.experiment.n
            )
            if not self._left(going, run):
                going.kept.add(key)
        return known

    def _left(self, going: Going, run: Run) -> list[int]:
        """Return the lengths of a run that are not evaluated yet."""
        if (run.id, run.step) in going.kept:
            return []
        known = {line["length"] for line in self._counts(going, run)}
        return [
            length
            for length in going.experiment.asked(run.config.to_fields())
            if length not in known
        ]

    def progress(self, experiment: Experiment, owner: str) -> tuple[int, int]:
        """Return the completed and the total number of steps and lengths, for a progress bar."""
        going = self._known[experiment.id]
        runs = self._runs(going, owner)
        at = of = 0
        for key, cell, _ in experiment.planned():
            run, steps = runs.get(key), cell.steps
            at, of = (
                at + (steps if run and run.status in ENDED else run.step if run else 0),
                of + steps,
            )
            if experiment.kind == LENGTHS:
                lengths_asked = len(experiment.asked(cell.settings))
                at, of = (
                    at + (lengths_asked - len(self._left(going, run)) if run else 0),
                    of + lengths_asked,
                )
        return at, of

    def _runs(self, going: Going, owner: str) -> dict[str, Run]:
        """Return the started runs that are not deleted, by key."""
        found = {key: self.registry.find(run_id, owner) for key, run_id in list(going.runs.items())}
        return {
            key: run for key, run in found.items() if run is not None and run.deleted_at is None
        }

    def _measure(self, going: Going, run: Run) -> dict[str, Any]:
        """Return the metrics of a run; the result of a finished run is cached."""
        made_of = (run.step, run.status, run.scores is None)
        known = going.measured.get(run.id)
        if known and known[0] == made_of:
            return known[1]
        points = run.load()
        scored = [(step, exact) for step, exact, *_ in points.scored]
        training = run.config.training
        kept = results.thinned([step for step, _ in scored], training.eval_every, training.steps)
        exact_at = dict(scored)
        told = {
            "run": f"run:{run.id}",
            "done": run.status == "done",
            "diverged": run.diverged,
            "changed": run.changed,
            "exact_match": run.scores["exact_match"] if run.scores else None,
            "n": run.scores["n"] if run.scores else None,
            "steps": run.steps,
            "steps_to": results.steps_to(scored, every=training.eval_every),
            "seconds": run.seconds,
            "curve": [[step, exact_at[step]] for step in kept],
            "loss": results.stretches(kept, points.columns["loss"], points.first),
        }
        if run.status == "done":
            going.measured[run.id] = (made_of, told)
        return told

    def _write(self, going: Going) -> None:
        content = going.experiment.to_json() | {"version": 1, "runs": going.runs}
        write_file(
            self.folder / f"{going.experiment.id}.json",
            json.dumps(content, indent=1).encode() + b"\n",
        )


def _state_of(run: Run | None) -> Hashable:
    """Return the part of the state of a run that its results depend on."""
    return (
        None
        if run is None
        else (run.id, run.step, run.status, run.scores is None, len(run.changes))
    )


@lru_cache(maxsize=1024)
def _kind_of(config: RunConfig) -> Hashable:
    """Return a key shared by runs of similar speed: architecture, model, task and machine."""
    settings = config.to_fields()
    return config.family, config.model, tuple(settings[name] for name in ALIKE)


def _asked(spec: Mapping[str, Any], owner: str) -> Experiment:
    """Build an experiment from a request.

    Raises:
        SettingError: when a field is invalid; `field` names it.
    """
    odd = sorted(set(spec) - set(SPEC))
    if odd:
        raise SettingError(
            odd[0],
            f"{shown(odd[0])} is not a field of an experiment; the fields are {', '.join(SPEC)}",
        )
    for name in ("name", "grid"):
        if name not in spec:
            raise SettingError(
                name,
                f"{name} is missing; an experiment needs a name and the values of one or "
                "two settings",
            )
    asked = Experiment(owner=fingerprint(owner), **{"base": {}} | dict(spec))
    asked.check_work()
    return asked


def _read(path: Path) -> Going:
    """Read an experiment from a file.

    Raises:
        ValueError: when the file is not an experiment of this version.
    """
    content = read_json(path)
    try:
        runs = content["runs"]
        known = {each.name for each in fields(Experiment)}
        experiment = Experiment(**{name: value for name, value in content.items() if name in known})
        texts = [experiment.id, experiment.owner, *runs, *runs.values()]
        if experiment.id != path.stem or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"id is {shown(experiment.id)}")
        if isinstance(experiment.created, bool) or not isinstance(experiment.created, int | float):
            raise TypeError(f"created is {shown(experiment.created)}")
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not an experiment: {error}") from None
    return Going(experiment, runs)
