"""Hold an experiment in memory: its started runs, its schedule and its results."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from playground.jobs.admission import CLIENT_ADDRESS
from playground.runs.registry import Registry
from playground.runs.state import Run

from .analysis import VariantResult
from .spec import Experiment
from .summary import ScoreSummary, read_lines

if TYPE_CHECKING:
    from .shards import ShardedExperiment

Summary = TypeVar("Summary", bound=ScoreSummary)


@dataclass
class ResultCache:
    """Stored results by run, and computed ones: a cache key and a result."""

    summaries: dict[str, bytes | memoryview] | None = None  # None: not read yet

    results: tuple[Hashable, dict[str, Any]] | None = None
    lengths: tuple[Hashable, dict[str, Any]] | None = None
    by_variant: dict[str, tuple[Hashable, VariantResult]] = field(default_factory=dict)
    drawn: dict[str, tuple[Hashable, VariantResult]] = field(default_factory=dict)  # with curves
    losses: dict[tuple[str, int], float] = field(default_factory=dict)  # by run and step
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
        self,
        experiment: Experiment,
        folder: Path,
        runs: Mapping[str, str] = {},
        summarized: Iterable[str] = (),
        address_id: str = "",
        is_listed: bool = True,
    ) -> None:
        self.experiment = experiment
        self.is_listed = is_listed  # in the list of its owner and on the disk; or of a lesson
        self.run_names: Sequence[str] = ()  # of a lesson, in the order of the planned runs
        self.path = folder / f"{experiment.id}.json"
        self.summaries_path = folder / f"{experiment.id}.jsonl"
        self.shards: ShardedExperiment | None = None  # of one that trains elsewhere
        self.job_states: dict[int, str] = {}  # of its shards whose job waits or runs
        self.runs = dict(runs)  # the ids of the started runs, by key
        self.summarized = set(summarized)  # the ids of the runs with stored results
        self._reading = threading.Lock()  # held while they are read
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
        self.pending: PendingEvaluation | None = None
        self.requested_at = 0.0  # the time of the last evaluation request
        self.last_viewed_at = time.monotonic()  # the time of the last poll
        self.next_start_at = 0.0  # the earliest time of the next attempt to start a run

    def find_runs(self, registry: Registry, owner: str) -> dict[str, Run]:
        """Return the started runs that are not deleted, by key."""
        owned = {run.id: run for run in registry.list_for_owner(owner) if run.deleted_at is None}
        return {key: owned[run] for key, run in list(self.runs.items()) if run in owned}

    def stored_keys(self, runs: Mapping[str, Run]) -> set[str]:
        """Return the keys of the runs that are deleted, but whose results are stored."""
        return {
            key
            for key, run_id in list(self.runs.items())
            if key not in runs and run_id in self.summarized
        }

    def n_known(self, runs: Mapping[str, Run]) -> int:
        """Return how many runs have started, of which some are deleted and stored."""
        return len(runs) + len(self.stored_keys(runs))

    @property
    def shards_folder(self) -> Path:
        return self.path.with_suffix("")

    @property
    def is_complete(self) -> bool:
        """Whether every run has stored results."""
        return len(self.summarized) == self.experiment.n_runs

    @property
    def summaries(self) -> dict[str, bytes | memoryview]:
        """The stored results by run, as lines of JSON."""
        cache = self.cache
        with self._reading:
            if cache.summaries is None:
                cache.summaries = {**read_lines(self.summaries_path)} if self.summarized else {}
                self.summarized &= cache.summaries.keys()
        return cache.summaries

    def release_summaries(self) -> None:
        """Free the stored results in memory, unless the experiment is active."""
        if not self.owner:
            self.cache.summaries = None

    def summary(self, run_id: str | None, run: Run | None, kind: type[Summary]) -> Summary | None:
        """Return the stored results of a run, unless it has trained further or they are damaged."""
        line = self.summaries.get(run_id) if run_id else None
        try:
            stored = kind.model_validate_json(bytes(line)) if line else None
        except ValueError:
            self.summarized.discard(str(run_id))
            stored = None
        has_ended = run is None or run.status == "done" or run.diverged
        return stored if stored and has_ended and (run is None or run.step == stored.step) else None

    def drop_stale_results(self) -> None:
        """Remove the results of runs that do not belong to the experiment any more."""
        ids, cache = set(self.runs.values()), self.cache
        cache.length_counts = {k: each for k, each in cache.length_counts.items() if k[0] in ids}
        self.summarized &= ids
