"""Evaluate finished runs of an experiment at each length, in the inspection process."""

import json
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from playground.architectures.parameter_groups import parameter_count
from playground.runs.record import WEIGHTS_EVICTED
from playground.runs.registry import Registry
from playground.runs.snapshots import InspectorClient
from playground.runs.state import Run

from .length_generalization import next_lengths
from .spec import LENGTHS
from .state import ExperimentState, PendingEvaluation
from .summary import ScoreSummary


class LengthEvaluator:
    """Evaluate the runs of all experiments, one request at a time."""

    def __init__(self, registry: Registry, inspector: InspectorClient) -> None:
        self.registry = registry
        self.inspector = inspector
        self._last_response: Future[dict[str, Any]] | None = None

    def counts(self, state: ExperimentState, run: Run) -> list[dict[str, int]]:
        """Return the counts of a run, from memory or as stored."""
        key = (run.id, run.step)
        cached = state.cache.length_counts.get(key)
        if cached is None:
            if run.status != "done":
                return []
            stored = state.summary(run.id, run, ScoreSummary)
            cached = state.cache.length_counts[key] = stored.counts if stored else []
            if not self.remaining_lengths(state, run):
                state.evaluated.add(key)
        return cached

    def remaining_lengths(self, state: ExperimentState, run: Run) -> list[int]:
        """Return the lengths of a run that are not evaluated yet."""
        if (run.id, run.step) in state.evaluated:
            return []
        evaluated = {line["length"] for line in self.counts(state, run)}
        lengths = state.experiment.evaluated_lengths(run.config.to_flat())
        return [length for length in lengths if length not in evaluated]

    def unevaluated_runs(self, state: ExperimentState, runs: Mapping[str, Run]) -> list[Run]:
        """Return the finished runs whose evaluation is not complete."""
        if state.experiment.kind != LENGTHS:
            return []
        for run in runs.values():
            if (run.id, run.step) not in state.evaluated:
                self.counts(state, run)
        return [
            run
            for run in runs.values()
            if run.status == "done" and (run.id, run.step) not in state.evaluated
        ]

    def evicted_run(self, state: ExperimentState, runs: Mapping[str, Run]) -> Run | None:
        """Return a run whose weights were deleted before its evaluation, or None."""
        unevaluated = self.unevaluated_runs(state, runs)
        return next((run for run in unevaluated if run.evicted == WEIGHTS_EVICTED), None)

    def advance(self, state: ExperimentState, runs: Mapping[str, Run]) -> bool:
        """Store the counts of the last response and send the next request.

        Return whether the evaluation continues; otherwise no run can be evaluated at present. A
        failed request ends the experiment, because the same request would fail again.
        """
        if state.pending is not None:
            if not state.pending.response.done():
                return True
            finished, state.pending = state.pending, None
            response = finished.response.result()
            if "error" in response:
                state.message, state.owner = response["error"], ""
                return True
            state.cache.length_counts[finished.run_id, finished.step] += response["scores"]
        return any(self._evaluate(state, run) for run in self.unevaluated_runs(state, runs))

    def _evaluate(self, state: ExperimentState, run: Run) -> bool:
        """Request the next lengths of a run; return whether other runs must wait."""
        remaining, n = self.remaining_lengths(state, run), state.experiment.n
        if not remaining:
            state.evaluated.add((run.id, run.step))
            return False
        model_ref = self.registry.snapshots.model_ref(run, run.step)
        if model_ref is None or run.evicted == WEIGHTS_EVICTED:
            return False
        if self._last_response is not None and not self._last_response.done():
            return True
        lengths = next_lengths(remaining, parameter_count(run.config.model), n)
        request = json.dumps({"lengths": lengths, "n": n})
        self._last_response = self.inspector.request("lengths", model_ref, request)
        self.registry.snapshots.protect_weights(run, self._last_response)
        state.pending = PendingEvaluation(run.id, run.step, self._last_response)
        state.requested_at = time.monotonic()
        return True
