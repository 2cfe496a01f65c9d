"""The experiments of a server: kept on disk, fed to the registry a few runs at a time, measured, told.

    <root>/experiments/<id>.json    what was asked, and which run answers which part of it
    <root>/runs/<run>/lengths.json  what was counted of a run by length (lengths.py)

Only a few of an experiment's runs wait in the registry's line at a time, so that its owner's other runs need not wait behind all
of them; between owners the line itself is fair. An experiment goes on by itself until it is over or cancelled; after a restart it
waits for its owner to resume it, as runs do. Threads: any thread may call in; one of its own feeds and measures.
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

AHEAD = 2  # runs of one experiment that may wait in the registry's line
TICK = 0.2  # seconds between two looks at what goes on
EXPERIMENTS_AN_OWNER, EXPERIMENTS_IN_ALL = 50, 2000
AGAIN_AFTER = 5.0  # seconds after a refusal until a run asks for a place again
SPEC = (
    "name",
    "question",
    "base",
    "grid",
    "seeds",
    "kind",
    "times",
    "n",
)  # what somebody who begins one may say
ENDED = ("done", "failed")
LEFT = ("paused", "stopped", "failed")  # a run that goes on only when it is told to
MAX_CACHED = 64  # experiments of which computed results stay in memory
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
    """What is known of an experiment beside what it asks for."""

    def __init__(self, experiment: Experiment, runs: Mapping[str, str] = {}) -> None:
        self.experiment = experiment
        self.runs = dict(runs)  # the id of each run that was begun, by its key
        self.owner = (
            ""  # the owner's secret while runs are still to be begun for them; never written down
        )
        self.address = CLIENT_ADDRESS.get()  # of the client that began it; unknown after a restart
        self.again: set[str] = set()  # keys of runs that are to be taken up again
        self.message = ""
        self.failure = ""  # the error of the last attempt to go on, which is logged once
        # What follows is computed anew when it is missing: it may be dropped at any time while no owner waits (`forget`).
        self.cells: dict[
            str, tuple[object, dict[str, Any]]
        ] = {}  # by label: what a result was made of, and the result
        self.results: tuple[Hashable, dict[str, Any]] | None = None  # of all cells: likewise
        self.lengths: tuple[Hashable, dict[str, Any]] | None = None  # likewise
        self.measured: dict[str, tuple[object, dict[str, Any]]] = {}  # by run: likewise
        self.kinds: dict[str, Hashable] = {}  # by label: `_kind_of` its runs
        self.counts: dict[
            tuple[str, int], list[dict[str, int]]
        ] = {}  # by run and step: what was counted by length so far
        self.kept: set[tuple[str, int]] = (
            set()
        )  # those of which everything was counted and is on disk
        self.asking: Future[dict[str, Any]] | None = None
        self.asked: tuple[str, int] = (
            "",
            0,
        )  # the run and the step that the question which is out is about
        self.asked_at = 0.0  # when that was
        self.watched_at = time.monotonic()  # when its owner last asked about it
        self.not_before = 0.0  # when a run may ask for a place again

    def forget(self) -> None:
        """Drop what can be computed or read from disk again."""
        self.cells, self.measured, self.kinds, self.counts = {}, {}, {}, {}
        self.results = self.lengths = None


class Laboratory:
    """Begins experiments for their owners, and tells what came of them. Everything that it returns can be written as JSON."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.eyes = (
            Eyes()
        )  # of its own: what takes this long must not keep those waiting who look into a model
        self.folder = registry.root / "experiments"
        self._known: dict[str, Going] = {}
        self._cached: OrderedDict[str, Going] = (
            OrderedDict()
        )  # by id, last used last: those with computed results
        self._lock = threading.RLock()
        self._closing = threading.Event()
        sweep(self.folder, 600)
        for path in sorted(self.folder.glob("*.json")):
            try:
                going = _read(path)
            except (ValueError, OSError):  # of another version, or no experiment: the file stays
                log.warning("%s cannot be read as an experiment", path, exc_info=True)
                continue
            self._known[going.experiment.id] = going
        threading.Thread(target=self._keep_going, name="laboratory", daemon=True).start()

    def close(self) -> None:
        """Feed and measure no more. Runs that were begun belong to the registry."""
        self._closing.set()
        self.eyes.stop()

    # Whose is what

    def find(self, experiment_id: object, owner: str) -> Experiment | None:
        """The owner's experiment with this id; None for anything else."""
        going = self._known.get(experiment_id) if isinstance(experiment_id, str) else None
        mine = (
            going and owner and secrets.compare_digest(going.experiment.owner, fingerprint(owner))
        )
        return going.experiment if going and mine else None

    def of_owner(self, owner: str) -> list[Experiment]:
        """An owner's experiments, newest first."""
        with self._lock:
            found = [going.experiment for going in self._known.values()]
        mine = [
            each
            for each in found
            if owner and secrets.compare_digest(each.owner, fingerprint(owner))
        ]
        return sorted(mine, key=lambda each: -each.created)

    # Beginning

    def plan(self, spec: Mapping[str, Any], owner: str) -> dict[str, Any]:
        """What an experiment would come to, before it begins: its cells, its runs, and how long they may take. Nothing is begun.

        Raises:
            SettingError: naming the field.
        """
        return self._planned(self._allowed(_asked(spec, owner)), owner)

    def _allowed(self, experiment: Experiment) -> Experiment:
        """The experiment, where each of its runs may be trained here. Raises SettingError."""
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
        """Begin an experiment: its runs join the line.

        Raises:
            SettingError: naming the field.
            Refused: when the owner, the address or all have too many experiments, the owner has too many runs, or the disk does not take
                another.
        """
        experiment = self._allowed(_asked(spec, owner))
        with self._lock:
            if len(self.of_owner(owner)) >= EXPERIMENTS_AN_OWNER:
                raise Refused(
                    f"you have {EXPERIMENTS_AN_OWNER} experiments, which is as many as are kept; delete one first"
                )
            have = len(self.registry.of_owner(owner))
            if have + experiment.n_runs > RUNS_AN_OWNER:
                raise Refused(
                    f"you have {have} runs and this experiment would add {experiment.n_runs}; at most {RUNS_AN_OWNER} are kept, delete "
                    "some first"
                )
            self._make_room()
            going = Going(experiment)
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._write(going)
            except OSError as error:
                raise Refused(
                    f"the experiment could not be kept: {error.strerror or error}; {way_out(error)} and try again"
                ) from None
            going.owner = owner
            self._known[experiment.id] = going
        return experiment

    def _make_room(self) -> None:
        """Where as many experiments are kept as can be, forget the oldest one whose owner has gone.

        Where the client's address has half of them, that is one of its own. With the lock held.

        Raises:
            Refused: where there is none.
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
                f"{half_of(EXPERIMENTS_IN_ALL):,} experiments from your address are kept here, as many as may be; delete one first"
            )
        if not left:
            raise Refused("as many experiments are kept here as can be; try again later")
        oldest = min(left, key=lambda each: each.created)
        with suppress(OSError):
            (self.folder / f"{oldest.id}.json").unlink(missing_ok=True)
        self._drop(oldest.id)

    def _drop(self, experiment_id: str) -> None:
        """Keep nothing of an experiment in memory. With the lock held."""
        del self._known[experiment_id]
        self._cached.pop(experiment_id, None)

    def _use(self, experiment: Experiment) -> Going:
        """Return what is known of an experiment, and mark it as used last.

        Of those used longest ago, computed results are dropped, unless a run of theirs is under way.
        """
        going = self._known[experiment.id]
        if self._lock.acquire(
            blocking=False
        ):  # a report does not wait for a run that is being started
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

    # What an owner does

    def cancel(self, experiment: Experiment, owner: str) -> None:
        """Begin no more of its runs, withdraw those that wait, stop and save those that train."""
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
                    with suppress(
                        Refused
                    ):  # a process that does not listen is ended by the registry
                        self.registry.control(run, "stop")
            self._write(going)

    def resume(self, experiment: Experiment, owner: str) -> None:
        """Go on with what was cancelled, failed, or was left by a server that ended. Finished runs are not repeated."""
        with self._lock:
            going = self._known[experiment.id]
            runs = self._runs(going, owner)
            for key, run in list(
                runs.items()
            ):  # what had to make room before it was asked is trained anew
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
        """Take an experiment away, and its runs; those can be brought back from the list of runs for a while.

        Raises:
            Refused: when its file cannot be removed.
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

    # What a page is told

    def rows(self, owner: str) -> list[dict[str, Any]]:
        """An owner's experiments as rows, newest first."""
        return [self.row(each, owner) for each in self.of_owner(owner)]

    def row(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """An experiment in the list of experiments. Whoever asks is there: it goes on."""
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
        """going; done (every run has ended, and was asked what was to be asked); or paused, until it is resumed."""
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
        """Everything about an experiment: how it stands, its runs with their places in the line, what was found until now.

        Whoever asks is there: none of its runs is left alone. `version` changes with what was found.
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
        version = f"{hash(made_of) & 0xFFFFFFFFFFFFFFFF:016x}"  # differs between servers, as hashes of text do
        return (
            self.row(experiment, owner)
            | {"spec": spec, "lines": told, "estimate": estimate, "version": version}
            | found
        )

    def results(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Medians and ranges for each cell, curves, and the sentence."""
        return self._results(experiment, owner)[1]

    def _results(self, experiment: Experiment, owner: str) -> tuple[Hashable, dict[str, Any]]:
        """The results behind what they were made of; computed anew only where a run has gone on."""
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
        """What came of one cell; made anew only where one of its runs has gone on."""
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
        """Exact match by length for each scheme, how far each reaches, and the sentence."""
        return self._lengths(experiment, owner)[1]

    def _lengths(self, experiment: Experiment, owner: str) -> tuple[Hashable, dict[str, Any]]:
        """The answer by length behind what it was made of; computed anew only where a run has ended or
        more lengths of one were counted."""
        going = self._use(experiment)
        runs = self._runs(going, owner)
        made_of = tuple(self._counted(going, runs.get(key)) for key, _, _ in experiment.planned())
        known = going.lengths
        if known is None or known[0] != made_of:
            known = going.lengths = (made_of, self._compare_lengths(going, runs))
        return known

    def _counted(self, going: Going, run: Run | None) -> Hashable:
        """Whatever of a run the answer by length depends on."""
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
        """What was found, for spreadsheets."""
        if experiment.kind == LENGTHS:
            return lengths.to_csv(self.lengths(experiment, owner)["rows"])
        found = self.results(experiment, owner)
        return results.to_csv(found["fields"], found["cells"])

    def estimate(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """How long what is left may take, from the speed of the owner's runs of the same model and task. `seconds` is None where some
        are left of which nothing like it has run here; `sentence` says so."""
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
            said = f"unknown for {unknown} of {len(left)} runs: nothing like them has run here yet"
            return {"seconds": None, "unknown": unknown, "sentence": f"how long it takes is {said}"}
        told = (
            f"{seconds / at_once / 60:.0f} min"
            if seconds / at_once >= 120
            else f"{seconds / at_once:.0f} s"
        )
        return {
            "seconds": seconds / at_once,
            "unknown": 0,
            "sentence": f"about {told} for {len(left)} runs, {at_once} at a time, at the speed measured here, if nobody else trains",
        }

    def _speeds(self, owner: str) -> dict[Hashable, float]:
        """Steps a second of the owner's latest run of each kind, scoring included."""
        measured = (
            run for run in self.registry.of_owner(owner) if run.step >= 20 and run.seconds > 0
        )
        return {_kind_of(run.config): run.step / run.seconds for run in measured}

    # What goes on by itself

    def _keep_going(self) -> None:
        failure = ""
        while not self._closing.wait(TICK):
            try:
                self.eyes.supervise(LONGEST_PROOF)
                failure = ""
            except Exception as error:  # without this thread no experiment would go on
                if repr(error) != failure:  # the same one comes five times a second
                    failure = repr(error)
                    log.exception("The laboratory cannot supervise its process")
            self._advance()

    def _advance(self) -> None:
        """Start, resume and measure what is due, experiment by experiment."""
        for going in sorted(
            self._known.copy().values(), key=lambda each: each.asked_at
        ):  # who asked longest ago comes first
            if not going.owner:
                continue
            before = CLIENT_ADDRESS.set(going.address)  # runs that begin now count for it
            try:
                with self._lock:
                    if going.owner and not self._put_down(going):
                        self._feed(going)
                        self._ask(going)
                going.failure = ""
            except (
                Exception
            ) as error:  # one odd experiment must not stop the others; its owner reads why
                going.message = f"{type(error).__name__}: {error}"
                if going.failure != going.message:  # likewise
                    going.failure = going.message
                    log.exception("The experiment %s cannot go on", going.experiment.id)
            finally:
                CLIENT_ADDRESS.reset(before)

    def _put_down(self, going: Going) -> bool:
        """Stop what nobody has watched for as long as the registry lets a run train alone; its owner can resume it."""
        lease, experiment = self.registry.lease, going.experiment
        seen = max(going.watched_at, self.registry.here.get(experiment.owner, 0.0))
        if not lease or time.monotonic() - seen <= lease:
            return False
        self.cancel(experiment, going.owner)
        told = f"{lease / 60:.0f} min" if lease >= 120 else f"{lease:g} s"
        going.message = (
            f"stopped by itself, because nobody was watching for {told}; resume it to go on"
        )
        return True

    def _feed(self, going: Going) -> None:
        """Let as many of its runs join the line as may wait there."""
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
                        continue  # it is still being saved
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
        """Have the next lengths of a finished run counted, one question at a time, whoever's it is."""
        if going.asking is not None:
            if not going.asking.done():
                return
            answer, going.asking = going.asking.result(), None
            if "error" in answer:
                going.message, going.owner = (
                    answer["error"],
                    "",
                )  # asking again by itself would not help
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
                with suppress(OSError):  # what cannot be kept is counted again after a restart
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
                f"{lost.name}: its weights had to make room before it was asked; Resume trains it anew",
                "",
            )

    def _unasked(self, going: Going, runs: Mapping[str, Run]) -> list[Run]:
        """Finished runs of which not every length was counted and kept."""
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
        """What was counted of a run, now or on an earlier occasion."""
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
        """The lengths of a run that are still to be counted."""
        if (run.id, run.step) in going.kept:
            return []
        known = {line["length"] for line in self._counts(going, run)}
        return [
            length
            for length in going.experiment.asked(run.config.to_fields())
            if length not in known
        ]

    def progress(self, experiment: Experiment, owner: str) -> tuple[int, int]:
        """Steps taken and, for lengths, lengths counted, out of how many; for a bar."""
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
        """The runs that were begun and not deleted since, by key."""
        found = {key: self.registry.find(run_id, owner) for key, run_id in list(going.runs.items())}
        return {
            key: run for key, run in found.items() if run is not None and run.deleted_at is None
        }

    def _measure(self, going: Going, run: Run) -> dict[str, Any]:
        """A run's numbers. What a finished run measured is read once."""
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
    """Whatever of a run its results depend on."""
    return (
        None
        if run is None
        else (run.id, run.step, run.status, run.scores is None, len(run.changes))
    )


@lru_cache(maxsize=1024)
def _kind_of(config: RunConfig) -> Hashable:
    """What runs of about the same speed have in common: family, model, task and machine."""
    settings = config.to_fields()
    return config.family, config.model, tuple(settings[name] for name in ALIKE)


def _asked(spec: Mapping[str, Any], owner: str) -> Experiment:
    """The experiment that somebody describes.

    Raises:
        SettingError: naming the field.
    """
    odd = sorted(set(spec) - set(SPEC))
    if odd:
        raise SettingError(
            odd[0], f"{shown(odd[0])} is nothing that an experiment has; it has {', '.join(SPEC)}"
        )
    for name in ("name", "grid"):
        if name not in spec:
            raise SettingError(
                name,
                f"{name} is missing; an experiment needs a name, and the values of one or two settings",
            )
    asked = Experiment(owner=fingerprint(owner), **{"base": {}} | dict(spec))
    asked.check_work()
    return asked


def _read(path: Path) -> Going:
    """The experiment in a file.

    Raises:
        ValueError: when it is none that this version writes.
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
        raise ValueError(f"{path} is no experiment: {error}") from None
    return Going(experiment, runs)
