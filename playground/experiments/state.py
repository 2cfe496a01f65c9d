"""Hold an experiment in memory: its started runs, its schedule and its computed results."""

import time
from collections.abc import Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from playground.jobs.admission import CLIENT_ADDRESS
from playground.runs.registry import Registry
from playground.runs.state import Run

from .analysis import VariantResult
from .spec import Experiment


@dataclass
class ResultCache:
    """Computed results. Each entry is a cache key and a result."""

    results: tuple[Hashable, dict[str, Any]] | None = None
    lengths: tuple[Hashable, dict[str, Any]] | None = None
    by_variant: dict[str, tuple[Hashable, VariantResult]] = field(default_factory=dict)
    by_run: dict[str, tuple[Hashable, dict[str, Any]]] = field(default_factory=dict)
    losses: dict[tuple[str, int], float] = field(default_factory=dict)  # by run and step
    # What the speed of a variant's runs depends on, by label.
    speeds_by_variant: dict[str, tuple[Hashable, float]] = field(default_factory=dict)
    # The counts by length so far, by run and step.
    length_counts: dict[tuple[str, int], list[dict[str, int]]] = field(default_factory=dict)


@dataclass
class PendingEvaluation:
    """A request to evaluate some lengths of a run."""

    run_id: str
    step: int
    response: Future[dict[str, Any]]


class ExperimentState:
    """The state of an experiment, without its specification."""

    def __init__(
        self, experiment: Experiment, runs: Mapping[str, str] = {}, address_id: str = ""
    ) -> None:
        self.experiment = experiment
        self.runs = dict(runs)  # the ids of the started runs, by key
        # The secret of the owner while runs remain to be started; never written to disk.
        self.owner = ""
        # of the client that created it, as `StorageFolder.address_id` hashes it
        self.address_id = address_id
        self.address = CLIENT_ADDRESS.get()  # for which new runs count; unknown after a restart
        self.runs_to_resume: set[str] = set()  # keys of the runs to resume
        self.is_cancelled = False
        self.message = ""
        self.logged_error = ""  # the last error, which is logged once
        self.cache = ResultCache()  # it can be replaced at any time while `owner` is empty
        self.saved_counts: set[tuple[str, int]] = set()  # counts that are complete on disk
        self.pending: PendingEvaluation | None = None
        self.requested_at = 0.0  # the time of the last evaluation request
        self.last_viewed_at = time.monotonic()  # the time of the last poll
        self.next_start_at = 0.0  # the earliest time of the next attempt to start a run

    def find_runs(self, registry: Registry, owner: str) -> dict[str, Run]:
        """Return the started runs that are not deleted, by key."""
        runs = {key: registry.find(run_id, owner) for key, run_id in list(self.runs.items())}
        return {key: run for key, run in runs.items() if run is not None and run.deleted_at is None}

    def drop_stale_results(self) -> None:
        """Remove the results of runs that do not belong to the experiment any more."""
        ids, cache = set(self.runs.values()), self.cache
        cache.by_run = {run_id: each for run_id, each in cache.by_run.items() if run_id in ids}
        cache.length_counts = {k: each for k, each in cache.length_counts.items() if k[0] in ids}
        self.saved_counts = {key for key in self.saved_counts if key[0] in ids}
