"""Store, schedule and evaluate the experiments of a server.

    <root>/experiments/<id>.json    the specification and the ids of its runs
    <root>/runs/<run>/lengths.json  the counts of a run by length (length_generalization.py)

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

from playground.checkpoints.manifest import read_json
from playground.common.atomic_write import clean_up_stale, remedy, write_file
from playground.errors import UserError
from playground.jobs.addresses import CLIENT_ADDRESS, max_per_address, uses_full_share
from playground.models.config_fields import ConfigError, short_repr
from playground.runs.inspector_client import InspectorClient
from playground.runs.registry import MAX_RUNS_PER_OWNER, SLOW_VIEW_TIMEOUT_S, VIEWER_TTL_S, Registry
from playground.runs.run import WEIGHTS_EVICTED, Run, owner_id
from playground.training.config import RunConfig

from . import analysis, length_generalization
from .spec import LENGTHS, Experiment, Variant

log = logging.getLogger(__name__)

MAX_QUEUED_RUNS = 2  # maximum number of queued runs of one experiment
POLL_INTERVAL_S = 0.2  # seconds between two iterations of the background thread
MAX_EXPERIMENTS_PER_OWNER, MAX_EXPERIMENTS_TOTAL = 50, 2000
RETRY_DELAY_S = 5.0  # seconds after a refusal until the next attempt
# the fields of a request
SPEC_FIELDS = ("name", "question", "base", "grid", "seeds", "kind", "times", "n")
TERMINAL_STATUSES = ("done", "failed")
RESUMABLE_STATUSES = ("paused", "stopped", "failed")  # statuses that only a resume ends
MAX_CACHED = 64  # experiments with computed results in memory
COMPARABLE_SETTINGS = (
    "task",
    "n_symbols",
    "min_length",
    "max_length",
    "batch_size",
    "device",
    "num_threads",
    "eval_every",
    "eval_size",
)


class ExperimentState:
    """The state of an experiment, besides its specification."""

    def __init__(self, experiment: Experiment, runs: Mapping[str, str] = {}) -> None:
        self.experiment = experiment
        self.runs = dict(runs)  # the ids of the started runs, by key
        # The secret of the owner while runs remain to be started; never written to disk.
        self.owner = ""
        self.address = CLIENT_ADDRESS.get()  # of the client; unknown after a restart
        self.runs_to_resume: set[str] = set()  # keys of the runs to resume
        self.message = ""
        self.failure = ""  # the last error, which is logged once
        # Caches: `clear_caches` may run at any time while no owner waits.
        # Each entry is a cache key and a result, by label or by run.
        self.variant_cache: dict[str, tuple[object, dict[str, Any]]] = {}
        self.results: tuple[Hashable, dict[str, Any]] | None = None
        self.lengths: tuple[Hashable, dict[str, Any]] | None = None
        self.metrics_by_run: dict[str, tuple[object, dict[str, Any]]] = {}
        self.kind_by_label: dict[str, Hashable] = {}  # `_kind_of` the runs, by label
        # The counts by length so far, by run and step, and those that are complete on disk.
        self.length_scores: dict[tuple[str, int], list[dict[str, int]]] = {}
        self.scores_saved: set[tuple[str, int]] = set()
        self.pending_request: Future[dict[str, Any]] | None = None
        self.pending_key: tuple[str, int] = ("", 0)  # the run and the step of the pending request
        self.requested_at = 0.0  # the time of that request
        self.last_viewed_at = time.monotonic()  # the time of the last poll
        self.next_start_at = 0.0  # the earliest time of the next attempt

    def clear_caches(self) -> None:
        """Clear the caches."""
        self.variant_cache, self.metrics_by_run, self.kind_by_label, self.length_scores = (
            {},
            {},
            {},
            {},
        )
        self.results = self.lengths = None


class ExperimentService:
    """The service that runs experiments and returns their results as values for JSON."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        # A separate inspection process: long evaluations must not delay other inspections.
        self.experiment_inspector = InspectorClient()
        self.folder = registry.root / "experiments"
        self._states: dict[str, ExperimentState] = {}
        # Experiments with computed results, by id, most recently used last.
        self._cached: OrderedDict[str, ExperimentState] = OrderedDict()
        self._lock = threading.RLock()
        self._stop_event = threading.Event()
        clean_up_stale(self.folder, 600)
        for path in sorted(self.folder.glob("*.json")):
            try:
                state = _read(path)
            except (ValueError, OSError):  # the file stays: it may belong to another version
                log.warning("%s cannot be read as an experiment", path, exc_info=True)
                continue
            self._states[state.experiment.id] = state
        threading.Thread(target=self._loop, name="experiments", daemon=True).start()

    def close(self) -> None:
        """Stop submitting and evaluating runs. The registry manages the started runs."""
        self._stop_event.set()
        self.experiment_inspector.stop()

    # Ownership

    def find(self, experiment_id: object, owner: str) -> Experiment | None:
        """Return the experiment of the owner with this id, or None."""
        state = self._states.get(experiment_id) if isinstance(experiment_id, str) else None
        mine = state and owner and secrets.compare_digest(state.experiment.owner, owner_id(owner))
        return state.experiment if state and mine else None

    def list_for_owner(self, owner: str) -> list[Experiment]:
        """Return the experiments of an owner, newest first."""
        with self._lock:
            experiments = [state.experiment for state in self._states.values()]
        mine = [
            each
            for each in experiments
            if owner and secrets.compare_digest(each.owner, owner_id(owner))
        ]
        return sorted(mine, key=lambda each: -each.created)

    # Creating experiments

    def plan(self, spec: Mapping[str, Any], owner: str) -> dict[str, Any]:
        """Return the variants, the runs and the estimated time without starting anything.

        Raises:
            ConfigError: when a field is invalid; `field` names it.
        """
        return self._planned(self._validated(_parse_spec(spec, owner)), owner)

    def _validated(self, experiment: Experiment) -> Experiment:
        """Return the experiment after a check of its runs against the limits.

        Raises:
            ConfigError: when a run exceeds a limit.
        """
        for cell in experiment.variants:
            self.registry.limits.validate(cell.config(experiment.seeds[0]))
        return experiment

    def _planned(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        configs = [cell.config(experiment.seeds[0]) for cell in experiment.variants]
        cells = [
            {
                "label": cell.full_label,
                "values": cell.values,
                "parameters": config.model.parameter_count(),
                "steps": config.training.max_steps,
            }
            for cell, config in zip(experiment.variants, configs, strict=True)
        ]
        return {
            "runs": experiment.n_runs,
            "cells": cells,
            "estimate": self.estimate(experiment, owner),
        }

    def submit(self, spec: Mapping[str, Any], owner: str) -> Experiment:
        """Start an experiment; its runs are queued.

        Raises:
            ConfigError: when a field is invalid; `field` names it.
            UserError: when the owner, the address or the server has too many experiments, the owner
                has too many runs, or the disk cannot store the experiment.
        """
        experiment = self._validated(_parse_spec(spec, owner))
        with self._lock:
            if len(self.list_for_owner(owner)) >= MAX_EXPERIMENTS_PER_OWNER:
                raise UserError(
                    f"you have {MAX_EXPERIMENTS_PER_OWNER} experiments, the maximum; delete one "
                    "first"
                )
            n_runs = len(self.registry.list_for_owner(owner))
            if n_runs + experiment.n_runs > MAX_RUNS_PER_OWNER:
                raise UserError(
                    f"you have {n_runs} runs and this experiment would add {experiment.n_runs}; "
                    f"the maximum is {MAX_RUNS_PER_OWNER}, delete some first"
                )
            self._evict_finished()
            state = ExperimentState(experiment)
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._write(state)
            except OSError as error:
                raise UserError(
                    f"the experiment could not be saved: {error.strerror or error}; "
                    f"{remedy(error)} and try again"
                ) from None
            state.owner = owner
            self._states[experiment.id] = state
        return experiment

    def _evict_finished(self) -> None:
        """Delete the oldest experiment of an inactive owner when the limit is reached.

        When the address of the client has half of all experiments, delete one of that address.
        The caller must hold the lock.

        Raises:
            UserError: when no experiment can be deleted.
        """
        is_share = uses_full_share(
            (each.address for each in self._states.values()), MAX_EXPERIMENTS_TOTAL
        )
        if not is_share and len(self._states) < MAX_EXPERIMENTS_TOTAL:
            return
        left = [
            each.experiment
            for each in self._states.values()
            if not each.owner
            and each.experiment.owner not in self.registry.owner_last_seen
            and (not is_share or each.address == CLIENT_ADDRESS.get())
        ]
        if not left and is_share:
            raise UserError(
                f"your address has {max_per_address(MAX_EXPERIMENTS_TOTAL):,} experiments, the "
                "maximum; delete one first"
            )
        if not left:
            raise UserError("this server has reached its limit of experiments; try again later")
        oldest = min(left, key=lambda each: each.created)
        with suppress(OSError):
            (self.folder / f"{oldest.id}.json").unlink(missing_ok=True)
        self._drop(oldest.id)

    def _drop(self, experiment_id: str) -> None:
        """Remove an experiment from memory. The caller must hold the lock."""
        del self._states[experiment_id]
        self._cached.pop(experiment_id, None)

    def _touch(self, experiment: Experiment) -> ExperimentState:
        """Return the state of an experiment and mark it as most recently used.

        The caches of the least recently used experiments are cleared, unless they are active.
        """
        state = self._states[experiment.id]
        # Non-blocking: a report must not wait while a run starts.
        if self._lock.acquire(blocking=False):
            try:
                self._cached[experiment.id] = state
                self._cached.move_to_end(experiment.id)
                if len(self._cached) > MAX_CACHED:
                    for each in list(self._cached.values())[:-MAX_CACHED]:
                        if not each.owner and each.pending_request is None:
                            each.clear_caches()
                            del self._cached[each.experiment.id]
            finally:
                self._lock.release()
        return state

    # Actions of an owner

    def cancel(self, experiment: Experiment, owner: str) -> None:
        """Remove queued runs, stop and save active runs, and start no more."""
        with self._lock:
            state = self._states[experiment.id]
            state.owner, state.message = "", ""
            state.runs_to_resume.clear()
            for key, run in self._runs(state, owner).items():
                if run.status == "waiting" and not run.step:
                    self.registry.control(run, "stop")
                    self.registry.delete(run)
                    state.runs.pop(key)
                elif run.has_worker or run.status == "waiting":
                    # The registry ends a process that does not respond.
                    with suppress(UserError):
                        self.registry.control(run, "stop")
            self._write(state)

    def resume(self, experiment: Experiment, owner: str) -> None:
        """Continue after a cancellation, a failure or a restart; finished runs are not repeated."""
        with self._lock:
            state = self._states[experiment.id]
            runs = self._runs(state, owner)
            # A run whose weights were deleted before its evaluation is trained again.
            for key, run in list(runs.items()):
                if (
                    run.evicted == WEIGHTS_EVICTED
                    and not run.diverged
                    and (run.status != "done" or self._unevaluated(state, {key: run}))
                ):
                    del state.runs[key], runs[key]
            ids = set(state.runs.values())
            state.metrics_by_run = {
                run_id: each for run_id, each in state.metrics_by_run.items() if run_id in ids
            }
            state.length_scores = {
                key: each for key, each in state.length_scores.items() if key[0] in ids
            }
            state.scores_saved = {key for key in state.scores_saved if key[0] in ids}
            state.runs_to_resume = {
                key
                for key, run in runs.items()
                if run.status in (*RESUMABLE_STATUSES, "stopping") and not run.diverged
            }
            state.message, state.owner, state.address = (
                "",
                owner,
                CLIENT_ADDRESS.get() or state.address,
            )
            state.last_viewed_at, state.next_start_at = time.monotonic(), 0.0

    def delete(self, experiment: Experiment, owner: str) -> None:
        """Delete an experiment and its runs; the runs can be restored for a limited time.

        Raises:
            UserError: when the file cannot be deleted.
        """
        self.cancel(experiment, owner)
        with self._lock:
            state = self._states[experiment.id]
            try:
                (self.folder / f"{experiment.id}.json").unlink(missing_ok=True)
            except OSError as error:
                raise UserError(
                    f"the experiment could not be deleted: {error.strerror or error}"
                ) from None
            self._drop(experiment.id)
            for run in self._runs(state, owner).values():
                self.registry.delete(run)

    # Responses for a page

    def summaries(self, owner: str) -> list[dict[str, Any]]:
        """Return the summaries of the experiments of an owner, newest first."""
        return [self.summary(each, owner) for each in self.list_for_owner(owner)]

    def summary(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Return the summary of an experiment. Polling counts as activity."""
        state = self._touch(experiment)
        state.last_viewed_at = time.monotonic()
        runs = self._runs(state, owner)
        status = Counter(run.status for run in runs.values())
        return {
            "id": experiment.id,
            "name": experiment.name,
            "question": experiment.question,
            "kind": experiment.kind,
            "created": experiment.created,
            "state": self.state(experiment, owner),
            "message": state.message,
            "runs": experiment.n_runs,
            "statuses": dict(status) | {"planned": experiment.n_runs - len(runs)},
            "queue_position": min(
                filter(None, map(self.registry.queue_position, runs.values())), default=None
            ),
        }

    def state(self, experiment: Experiment, owner: str) -> str:
        """Return "running", "done" (every run has ended and is evaluated) or "paused"."""
        current = self._states[experiment.id]
        runs = self._runs(current, owner)
        if (
            len(runs) == experiment.n_runs
            and not current.runs_to_resume
            and all(run.status in TERMINAL_STATUSES for run in runs.values())
        ):
            return (
                "done"
                if not self._unevaluated(current, runs)
                else "running"
                if current.owner
                else "paused"
            )
        busy = any(
            (run.has_worker and run.status != "paused") or run.status == "waiting"
            for run in runs.values()
        )
        return (
            "running"
            if current.owner and (busy or current.runs_to_resume or len(runs) < experiment.n_runs)
            else "paused"
        )

    def details(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Return the state, the runs with their queue positions, and the results so far.

        Polling counts as activity and keeps the runs from idling out. `version` changes with the
        results.
        """
        state = self._touch(experiment)
        runs, now = self._runs(state, owner), time.monotonic()
        response = []
        for key, cell, seed in experiment.planned_runs():
            run = runs.get(key)
            line: dict[str, Any] = {
                "cell": cell.full_label,
                "seed": seed,
                "run": None,
                "status": "planned",
                "step": 0,
                "queue_position": None,
            }
            if run:
                run.last_viewed_at = max(run.last_viewed_at, now - VIEWER_TTL_S)
                line |= {
                    "run": f"run:{run.id}",
                    "status": run.status,
                    "step": run.step,
                    "queue_position": self.registry.queue_position(run),
                }
                line |= {"steps": run.steps, "message": run.message}
            response.append(line)
        made_of, learned = self._results(experiment, owner)
        analysis = {"results": learned}
        if experiment.kind == LENGTHS:
            made_of_lengths, analysis["lengths"] = self._lengths(experiment, owner)
            made_of = (made_of, made_of_lengths)
        spec = {name: value for name, value in experiment.to_json().items() if name in SPEC_FIELDS}
        estimate = self.estimate(experiment, owner)
        version = (
            f"{hash(made_of) & 0xFFFFFFFFFFFFFFFF:016x}"  # hashes of text differ between processes
        )
        return (
            self.summary(experiment, owner)
            | {"spec": spec, "lines": response, "estimate": estimate, "version": version}
            | analysis
        )

    def results(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Return medians, ranges and curves of each variant, and a one-text summary."""
        return self._results(experiment, owner)[1]

    def _results(self, experiment: Experiment, owner: str) -> tuple[Hashable, dict[str, Any]]:
        """Return a cache key and the results; recompute only after a run has progressed."""
        state = self._touch(experiment)
        runs = self._runs(state, owner)
        made_of = tuple(_state_of(runs.get(key)) for key, _, _ in experiment.planned_runs())
        cached = state.results
        if cached is None or cached[0] != made_of:
            cells = [
                self._variant_result(state, runs, at, cell)
                for at, cell in enumerate(experiment.variants)
            ]
            results = {
                "fields": list(experiment.grid),
                "cells": cells,
                "summary": analysis.summarize(list(experiment.grid), cells),
            }
            cached = state.results = (made_of, results)
        return cached

    def _variant_result(
        self, state: ExperimentState, runs: Mapping[str, Run], at: int, cell: Variant
    ) -> dict[str, Any]:
        """Return the result of a variant; recompute only after a run has progressed."""
        by_seed = {seed: runs.get(f"{at}/{seed}") for seed in state.experiment.seeds}
        made_of = [_state_of(run) for run in by_seed.values()]
        cached = state.variant_cache.get(cell.full_label)
        if cached and cached[0] == made_of:
            return cached[1]
        summary = []
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
            summary.append({"seed": seed} | (self._run_metrics(state, run) if run else blank))
        result = analysis.summarize_variant(cell, summary)
        result["seeds"] = [
            {name: value for name, value in run.items() if name not in ("curve", "loss")}
            for run in summary
        ]
        state.variant_cache[cell.full_label] = (made_of, result)
        return result

    def lengths(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Return exact match and maximum length of each scheme, and a one-text summary."""
        return self._lengths(experiment, owner)[1]

    def _lengths(self, experiment: Experiment, owner: str) -> tuple[Hashable, dict[str, Any]]:
        """Return a cache key and the results by length.

        They are recomputed only after a run has ended or more lengths are evaluated.
        """
        state = self._touch(experiment)
        runs = self._runs(state, owner)
        made_of = tuple(
            self._run_length_scores(state, runs.get(key)) for key, _, _ in experiment.planned_runs()
        )
        cached = state.lengths
        if cached is None or cached[0] != made_of:
            cached = state.lengths = (made_of, self._compare_lengths(state, runs))
        return cached

    def _run_length_scores(self, state: ExperimentState, run: Run | None) -> Hashable:
        """Return the part of the state of a run that the results by length depend on."""
        if run is None:
            return None
        done = run.status == "done"
        return (
            run.id,
            done,
            run.step if done else 0,
            run.diverged,
            bool(run.modified_settings),
            len(self._length_scores(state, run)),
        )

    def _compare_lengths(self, state: ExperimentState, runs: Mapping[str, Run]) -> dict[str, Any]:
        experiment, rows = state.experiment, []
        for at, cell in enumerate(experiment.variants):
            config, length_rows = cell.config(experiment.seeds[0]), []
            for seed in experiment.seeds:
                run = runs.get(f"{at}/{seed}")
                whole = (
                    run
                    and run.status == "done"
                    and not run.modified_settings
                    and not self._remaining_lengths(state, run)
                )
                out = bool(
                    run and (run.diverged or (run.status == "done" and run.modified_settings))
                )
                length_rows.append(
                    {
                        "seed": seed,
                        "scores": length_generalization.scores(self._length_scores(state, run))
                        if run and whole
                        else [],
                        "out": out,
                    }
                )
            rows.append(
                length_generalization.summarize_scheme(cell.short_label, length_rows, config)
            )
        task = config.task
        max_length = max(
            experiment.max_evaluated_length(cell.settings) for cell in experiment.variants
        )
        trained = [task.min_length, task.max_length]
        return {
            "trained": trained,
            "max_length": max_length,
            "n_requested": experiment.n,
            "rows": rows,
            "summary": length_generalization.summarize(rows, trained, max_length),
        }

    def to_csv(self, experiment: Experiment, owner: str) -> str:
        """Return the results as CSV."""
        if experiment.kind == LENGTHS:
            return length_generalization.to_csv(self.lengths(experiment, owner)["rows"])
        results = self.results(experiment, owner)
        return analysis.to_csv(results["fields"], results["cells"])

    def estimate(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Estimate the remaining time from earlier runs of the owner with the same model and task.

        `seconds` is None when a remaining run has no comparable run; `text` reports that.
        """
        state = self._states.get(experiment.id)
        runs = self._runs(state, owner) if state else {}
        kinds: dict[str, Hashable] = state.kind_by_label if state else {}
        planned = [(cell, runs.get(key)) for key, cell, _ in experiment.planned_runs()]
        left = [
            (cell, run)
            for cell, run in planned
            if run is None or run.status not in TERMINAL_STATUSES
        ]
        at_once = min(len(left), self.registry.slots_per_owner) or 1
        if not left:
            return {"seconds": 0.0, "unknown": 0, "message": "every run has ended"}
        speeds, seconds, unknown = self._speeds(owner), 0.0, 0
        for cell, run in left:
            if cell.full_label not in kinds:
                kinds[cell.full_label] = _kind_of(cell.config(experiment.seeds[0]))  # of any seed
            speed = speeds.get(kinds[cell.full_label])
            if speed is None:
                unknown += 1
            else:
                seconds += max(0, cell.steps - (run.step if run else 0)) / speed
        if unknown:
            text = (
                f"unknown for {unknown} of {len(left)} runs: no comparable run has trained here yet"
            )
            return {
                "seconds": None,
                "unknown": unknown,
                "message": f"the remaining time is {text}",
            }
        estimates = (
            f"{seconds / at_once / 60:.0f} min"
            if seconds / at_once >= 120
            else f"{seconds / at_once:.0f} s"
        )
        return {
            "seconds": seconds / at_once,
            "unknown": 0,
            "message": (
                f"about {estimates} for {len(left)} runs, {at_once} at a time, at the speed "
                "measured here, if no other runs train"
            ),
        }

    def _speeds(self, owner: str) -> dict[Hashable, float]:
        """Return steps per second of the latest run of each kind, evaluations included."""
        measured = (
            run for run in self.registry.list_for_owner(owner) if run.step >= 20 and run.seconds > 0
        )
        return {_kind_of(run.config): run.step / run.seconds for run in measured}

    # Background thread

    def _loop(self) -> None:
        failure = ""
        while not self._stop_event.wait(POLL_INTERVAL_S):
            try:
                self.experiment_inspector.check_timeout(SLOW_VIEW_TIMEOUT_S)
                failure = ""
            except Exception as error:  # this thread must not end
                if repr(error) != failure:  # log a repeated error once
                    failure = repr(error)
                    log.exception("The experiment service cannot supervise its inspection process")
            self._advance()

    def _advance(self) -> None:
        """Start, resume and evaluate runs of every experiment."""
        # Longest-waiting experiments first.
        for state in sorted(self._states.copy().values(), key=lambda each: each.requested_at):
            if not state.owner:
                continue
            before = CLIENT_ADDRESS.set(state.address)  # new runs count for this address
            try:
                with self._lock:
                    if state.owner and not self._pause_unwatched(state):
                        self._submit_runs(state)
                        self._evaluate_next_lengths(state)
                state.failure = ""
            except Exception as error:  # an error in one experiment must not stop the others
                state.message = f"{type(error).__name__}: {error}"
                if state.failure != state.message:  # log a repeated error once
                    state.failure = state.message
                    log.exception("The experiment %s cannot continue", state.experiment.id)
            finally:
                CLIENT_ADDRESS.reset(before)

    def _pause_unwatched(self, state: ExperimentState) -> bool:
        """Cancel an experiment without polls during the idle timeout; its owner can resume it."""
        lease, experiment = self.registry.idle_timeout_s, state.experiment
        last_seen = max(
            state.last_viewed_at, self.registry.owner_last_seen.get(experiment.owner, 0.0)
        )
        if not lease or time.monotonic() - last_seen <= lease:
            return False
        self.cancel(experiment, state.owner)
        duration = f"{lease / 60:.0f} min" if lease >= 120 else f"{lease:g} s"
        state.message = f"stopped after {duration} without activity; resume it to continue"
        return True

    def _submit_runs(self, state: ExperimentState) -> None:
        """Submit runs until `MAX_QUEUED_RUNS` of them are queued."""
        if time.monotonic() < state.next_start_at:
            return
        experiment, owner = state.experiment, state.owner
        runs = self._runs(state, owner)
        waiting = sum(run.status == "waiting" for run in runs.values())
        started = False
        for key, cell, seed in experiment.planned_runs():
            if waiting >= MAX_QUEUED_RUNS or self._stop_event.is_set():
                break
            run = runs.get(key)
            try:
                if run is None:
                    run = self.registry.start(
                        cell.config(seed),
                        owner,
                        name=f"{experiment.name}: {cell.full_label}, seed {seed}",
                    )
                    state.runs[key] = run.id
                    self.registry.update_metadata(run, hidden=True)
                    started = True
                elif key in state.runs_to_resume:
                    if run.status == "stopping":
                        continue  # the checkpoint is being saved
                    state.runs_to_resume.discard(key)
                    self.registry.control(run, "resume")
                else:
                    continue
                state.message = ""
            except (UserError, ConfigError) as error:
                state.message, state.next_start_at = str(error), time.monotonic() + RETRY_DELAY_S
                break
            waiting += run.status == "waiting"
        if started:
            self._write(state)

    def _evaluate_next_lengths(self, state: ExperimentState) -> None:
        """Evaluate the next lengths of a finished run, one request at a time on this server."""
        if state.pending_request is not None:
            if not state.pending_request.done():
                return
            response, state.pending_request = state.pending_request.result(), None
            if "error" in response:
                # An automatic retry would fail again.
                state.message, state.owner = response["error"], ""
                return
            state.length_scores[state.pending_key] += response["scores"]
        runs, lost = self._runs(state, state.owner), None
        for run in self._unevaluated(state, runs):
            remaining, model_ref, n = (
                self._remaining_lengths(state, run),
                self.registry.model_ref(run, run.step),
                state.experiment.n,
            )
            if remaining and run.evicted == WEIGHTS_EVICTED:
                lost = run
            elif not remaining:
                with suppress(OSError):  # without the file, a restart repeats the evaluation
                    length_generalization.save_scores(
                        run.folder, run.step, n, self._length_scores(state, run)
                    )
                state.scores_saved.add((run.id, run.step))
            elif model_ref is not None:
                if any(
                    other.pending_request and not other.pending_request.done()
                    for other in self._states.values()
                ):
                    return
                state.pending_key, state.requested_at = (run.id, run.step), time.monotonic()
                text = json.dumps(
                    {
                        "lengths": length_generalization.next_lengths(
                            remaining, run.config.model.parameter_count(), n
                        ),
                        "n": n,
                    }
                )
                state.pending_request = self.experiment_inspector.request(
                    "lengths", model_ref, text
                )
                return
        if self.state(state.experiment, state.owner) == "done":
            state.owner = ""
        elif (
            lost
            and all(run.status in TERMINAL_STATUSES for run in runs.values())
            and len(runs) == state.experiment.n_runs
        ):
            state.message, state.owner = (
                f"{lost.name}: its weights were deleted to free space before the "
                "evaluation; Resume trains it again",
                "",
            )

    def _unevaluated(self, state: ExperimentState, runs: Mapping[str, Run]) -> list[Run]:
        """Return the finished runs whose evaluation is not complete on disk."""
        if state.experiment.kind != LENGTHS:
            return []
        for run in runs.values():
            if (run.id, run.step) not in state.scores_saved:
                self._length_scores(state, run)
        return [
            run
            for run in runs.values()
            if run.status == "done" and (run.id, run.step) not in state.scores_saved
        ]

    def _length_scores(self, state: ExperimentState, run: Run) -> list[dict[str, int]]:
        """Return the counts of a run, from memory or from disk."""
        key = (run.id, run.step)
        cached = state.length_scores.get(key)
        if cached is None:
            if run.status != "done":
                return []
            cached = state.length_scores[key] = length_generalization.load_scores(
                run.folder, run.step, state.experiment.n
            )
            if not self._remaining_lengths(state, run):
                state.scores_saved.add(key)
        return cached

    def _remaining_lengths(self, state: ExperimentState, run: Run) -> list[int]:
        """Return the lengths of a run that are not evaluated yet."""
        if (run.id, run.step) in state.scores_saved:
            return []
        evaluated = {line["length"] for line in self._length_scores(state, run)}
        return [
            length
            for length in state.experiment.evaluated_lengths(run.config.to_flat())
            if length not in evaluated
        ]

    def progress(self, experiment: Experiment, owner: str) -> tuple[int, int]:
        """Return the completed and the total number of steps and lengths, for a progress bar."""
        state = self._states[experiment.id]
        runs = self._runs(state, owner)
        at = of = 0
        for key, cell, _ in experiment.planned_runs():
            run, steps = runs.get(key), cell.steps
            at, of = (
                at + (steps if run and run.status in TERMINAL_STATUSES else run.step if run else 0),
                of + steps,
            )
            if experiment.kind == LENGTHS:
                n_lengths = len(experiment.evaluated_lengths(cell.settings))
                at, of = (
                    at + (n_lengths - len(self._remaining_lengths(state, run)) if run else 0),
                    of + n_lengths,
                )
        return at, of

    def _runs(self, state: ExperimentState, owner: str) -> dict[str, Run]:
        """Return the started runs that are not deleted, by key."""
        runs = {key: self.registry.find(run_id, owner) for key, run_id in list(state.runs.items())}
        return {key: run for key, run in runs.items() if run is not None and run.deleted_at is None}

    def _run_metrics(self, state: ExperimentState, run: Run) -> dict[str, Any]:
        """Return the metrics of a run; the result of a finished run is cached."""
        made_of = (run.step, run.status, run.scores is None)
        cached = state.metrics_by_run.get(run.id)
        if cached and cached[0] == made_of:
            return cached[1]
        points = run.load_points()
        scored = [(step, exact) for step, exact, *_ in points.evaluations]
        training = run.config.training
        retained = analysis.subsample_steps(
            [step for step, _ in scored], training.eval_every, training.max_steps
        )
        exact_at = dict(scored)
        metrics = {
            "run": f"run:{run.id}",
            "done": run.status == "done",
            "diverged": run.diverged,
            "changed": run.modified_settings,
            "exact_match": run.scores["exact_match"] if run.scores else None,
            "n": run.scores["n"] if run.scores else None,
            "steps": run.steps,
            "steps_to": analysis.first_step_reaching(scored, every=training.eval_every),
            "seconds": run.seconds,
            "curve": [[step, exact_at[step]] for step in retained],
            "loss": analysis.interval_means(retained, points.columns["loss"], points.first),
        }
        if run.status == "done":
            state.metrics_by_run[run.id] = (made_of, metrics)
        return metrics

    def _write(self, state: ExperimentState) -> None:
        content = state.experiment.to_json() | {"version": 1, "runs": state.runs}
        write_file(
            self.folder / f"{state.experiment.id}.json",
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
    settings = config.to_flat()
    return config.architecture, config.model, tuple(settings[name] for name in COMPARABLE_SETTINGS)


def _parse_spec(spec: Mapping[str, Any], owner: str) -> Experiment:
    """Build an experiment from a request.

    Raises:
        ConfigError: when a field is invalid; `field` names it.
    """
    unknown = sorted(set(spec) - set(SPEC_FIELDS))
    if unknown:
        raise ConfigError(
            unknown[0],
            f"{short_repr(unknown[0])} is not a field of an experiment; the fields are "
            f"{', '.join(SPEC_FIELDS)}",
        )
    for name in ("name", "grid"):
        if name not in spec:
            raise ConfigError(
                name,
                f"{name} is missing; an experiment needs a name and the values of one or "
                "two settings",
            )
    experiment = Experiment(owner=owner_id(owner), **{"base": {}} | dict(spec))
    experiment.check_cost()
    return experiment


def _read(path: Path) -> ExperimentState:
    """Read an experiment from a file.

    Raises:
        ValueError: when the file is not an experiment of this version.
    """
    content = read_json(path)
    try:
        runs = content["runs"]
        field_names = {each.name for each in fields(Experiment)}
        experiment = Experiment(
            **{name: value for name, value in content.items() if name in field_names}
        )
        texts = [experiment.id, experiment.owner, *runs, *runs.values()]
        if experiment.id != path.stem or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"id is {short_repr(experiment.id)}")
        if isinstance(experiment.created, bool) or not isinstance(experiment.created, int | float):
            raise TypeError(f"created is {short_repr(experiment.created)}")
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not an experiment: {error}") from None
    return ExperimentState(experiment, runs)
