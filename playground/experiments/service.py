"""Store, schedule and evaluate the experiments of a server.

    <root>/experiments/<id>.json    the specification and the ids of its runs (store.py)
    <root>/experiments/<id>.jsonl   the results of its finished runs, which outlive the runs

An experiment continues until it is complete, paused or cancelled. After a restart it is paused
until its owner resumes it, as are runs. All public methods are safe to call from any thread; a
background thread submits and evaluates the runs (runner.py).
"""

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from playground.architectures.parameter_groups import parameter_count
from playground.errors import UserError
from playground.jobs.admission import limit
from playground.models.config_fields import ConfigError
from playground.runs.access import require_dataset
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.runs.snapshots import SLOW_VIEW_TIMEOUT_S, VIEWER_TTL_S, InspectorClient
from playground.runs.state import Run

from . import progress
from .backends.hf_jobs import HfJobs, Machine
from .length_generalization import LengthEvaluator
from .progress import Estimate
from .remote import RemoteRunner, describe_place
from .results import drawn_results, length_results, to_csv, variant_results
from .runner import ExperimentRunner
from .shards import ShardJobs, core_seconds
from .spec import LENGTHS, MAX_RUNS, SPEC_FIELDS, Experiment, ExperimentSpec, parse_experiment
from .state import ExperimentState
from .store import ExperimentStore


class ExperimentService:
    """The service that runs experiments and returns their results as values for JSON."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        # A separate inspection process: long evaluations must not delay other inspections.
        self.experiment_inspector = InspectorClient(SLOW_VIEW_TIMEOUT_S)
        self.store = ExperimentStore(registry)
        self.evaluator = LengthEvaluator(registry, self.experiment_inspector)
        self.runner = ExperimentRunner(registry, self.store, self.evaluator)
        self.runner.start()
        self.remote = RemoteRunner(self.store)

    def close(self) -> None:
        """Stop submitting and evaluating runs. The registry manages the started runs."""
        self.runner.stop()
        self.remote.close()
        self.experiment_inspector.stop()

    # Creating and finding experiments

    def find_equivalent(self, experiment: ExperimentSpec, owner: str) -> Experiment | None:
        """Return the owner's newest experiment with the same runs, unless it is cancelled."""
        return next(
            (
                each
                for each in self.store.list_for_owner(owner)
                if each.is_equivalent(experiment)
                and (state := self.store.states.get(each.id)) is not None
                and not state.is_cancelled
            ),
            None,
        )

    def list_machines(
        self, spec: Mapping[str, Any], owner: str, token: str
    ) -> tuple[int, list[Machine]]:
        """Return the number of jobs of an experiment on HF Jobs, and the machines for them."""
        experiment = self._parse_spec(spec, owner, is_elsewhere=True)
        record = ShardJobs.plan(experiment, "hf-jobs", {})
        backend = HfJobs(record.options)
        backend.token = token
        devices = {each.config(0).training.device for each in experiment.variants}
        seconds = core_seconds(experiment, record.n_shards)
        return record.n_shards, backend.list_machines(seconds, needs_gpu="cuda" in devices)

    def plan(
        self, spec: Mapping[str, Any], owner: str, is_elsewhere: bool = False
    ) -> dict[str, Any]:
        """Return the variants, the runs and the estimated time without starting anything."""
        experiment = self._parse_spec(spec, owner, is_elsewhere)
        return {
            "runs": experiment.n_runs,
            "variants": [
                {
                    "label": variant.full_label,
                    "values": variant.values,
                    "parameters": parameter_count(variant.config(0).model),
                    "steps": variant.steps,
                }
                for variant in experiment.variants
            ],
            "estimate": self.estimate_plan(experiment, owner),
            "test": experiment.describe_planned_test(),
        }

    def start(self, spec: Mapping[str, Any], owner: str) -> Experiment:
        """Start an experiment; its runs are queued. Raises UserError at a limit."""
        experiment = self._parse_spec(spec, owner)
        self.store.add(experiment, owner)
        return experiment

    def start_elsewhere(
        self, spec: Mapping[str, Any], owner: str, on: str, options: Mapping[str, Any], token: str
    ) -> Experiment:
        """Start an experiment whose shards train as jobs of a backend."""
        experiment = self._parse_spec(spec, owner, is_elsewhere=True)
        record = ShardJobs.plan(experiment, on, options)
        with self.store.lock:
            self.remote.start(self.store.add(experiment, owner, record), token)
        return experiment

    def start_for_lesson(
        self, spec: Mapping[str, Any], run_names: Sequence[str], owner: str
    ) -> Experiment:
        """Start an experiment in no list and on no disk, which exists until `store.forget`.

        It uses runs of the owner with the same settings again; new ones get their names in order.
        Raises UserError when a run cannot start; none does.
        """
        experiment = self._parse_spec(spec, owner)
        state = ExperimentState(experiment, self.store.folder, is_listed=False)
        state.owner, state.run_names = owner, run_names
        with self.store.lock:
            self.runner.adopt_runs(state)
            self.runner.submit_runs(state)
            if problem := state.message:
                self.runner.pause(state, owner)
                raise UserError(problem)
            self.store.states[experiment.id] = state
        return experiment

    def _parse_spec(
        self, spec: Mapping[str, Any], owner: str, is_elsewhere: bool = False
    ) -> Experiment:
        """Build an experiment from a request, or raise ConfigError for an invalid field.

        The maximum number of runs is for experiments on this server.
        """
        experiment = parse_experiment(spec, owner_id(owner))
        experiment.check_cost()
        maximum = limit("experiment-runs").per_owner
        has_limit = self.registry.settings.has_count_limits and not is_elsewhere
        if has_limit and maximum and experiment.n_runs > maximum:
            raise ConfigError(
                "seeds",
                f"the experiment has {experiment.n_runs} runs; the maximum on this server is "
                f"{maximum}: use fewer values or seeds, or the command `experiment`",
            )
        for variant in experiment.variants:
            config = variant.config(experiment.seeds[0])
            config.training.check_effects()
            self.registry.settings.limits.validate(config)
            require_dataset(self.registry, config, owner)
        return experiment

    # Actions of an owner

    def pause(self, experiment: Experiment, owner: str) -> None:
        """Remove queued runs, stop and save active runs, and start no more."""
        self._act("pause", experiment, owner)

    def cancel(self, experiment: Experiment, owner: str) -> None:
        """Start no more runs and delete the unfinished ones; the finished ones stay."""
        self._act("cancel", experiment, owner)

    def resume(self, experiment: Experiment, owner: str) -> None:
        """Continue after a pause, a failure or a restart; finished runs are not repeated."""
        self._act("resume", experiment, owner)

    def _act(self, action: str, experiment: Experiment, owner: str) -> None:
        with self.store.lock:
            state = self.store.state(experiment)
            getattr(self.remote if state.shards else self.runner, action)(state, owner)

    def delete(self, experiment: Experiment, owner: str) -> None:
        """Delete an experiment and its runs; the runs can be restored for a limited time."""
        state = self.store.state(experiment)
        if state.shards and state.shards.record.jobs and not state.is_complete:
            state.shards.cancel()
        self.remote.leave(state)
        with self.store.lock:
            self.runner.pause(state, owner)
            self.store.remove(experiment)
            for run in state.find_runs(self.registry, owner).values():
                self.registry.delete(run)

    # Responses for a page

    def summary(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        """Return the summary of an experiment. Polling counts as activity."""
        state = self.store.touch(experiment)
        return self._summary(state, state.find_runs(self.registry, owner))

    def _summary(self, state: ExperimentState, runs: Mapping[str, Run]) -> dict[str, Any]:
        state.last_viewed_at = time.monotonic()
        experiment, stored = state.experiment, state.stored_keys(runs)
        statuses = Counter(run.status for run in runs.values()) + Counter(done=len(stored))
        positions = [p for run in runs.values() if (p := self.registry.scheduler.position(run))]
        return {
            "id": experiment.id,
            "name": experiment.name,
            "question": experiment.question,
            "kind": experiment.kind,
            "created": experiment.created,
            "state": progress.state_name(state, runs, self.evaluator),
            "message": state.message,
            "runs": experiment.n_runs,
            "statuses": dict(statuses) | {"planned": experiment.n_runs - statuses.total()},
            "queue_position": min(positions, default=None),
            "elsewhere": describe_place(state),
        }

    def state(self, experiment: Experiment, owner: str) -> str:
        """Return "running", "done" (all ended and evaluated), "paused" or "cancelled"."""
        state = self.store.state(experiment)
        return progress.state_name(state, state.find_runs(self.registry, owner), self.evaluator)

    def details(
        self, experiment: Experiment, owner: str, drawn: Collection[str] | int = MAX_RUNS
    ) -> dict[str, Any]:
        """Return the state, the runs with their queue positions, and the results so far.

        Polling keeps the runs from idling out. `version` changes with the results and with the
        variants that are `drawn` (results.variant_results).
        """
        state = self.store.touch(experiment)
        runs, now = state.find_runs(self.registry, owner), time.monotonic()
        planned_runs, stored = [], state.stored_keys(runs)
        for key, variant, seed in experiment.planned_runs():
            run = runs.get(key)
            if run:
                run.last_viewed_at = max(run.last_viewed_at, now - VIEWER_TTL_S)
            planned_runs.append(
                {"variant": variant.full_label, "seed": seed}
                | self._describe_run(run, "done" if key in stored else "planned")
            )
        results_key, results = variant_results(state, runs, drawn)
        computed: dict[str, Any] = {"results": results}
        if experiment.kind == LENGTHS:
            lengths_key, computed["lengths"] = length_results(state, runs, self.evaluator)
            results_key = (results_key, lengths_key)
        return (
            self._summary(state, runs)
            | {
                "planned_runs": planned_runs,
                "estimate": self._estimate(state, runs, owner),
                # hashes of text differ between processes
                "version": f"{hash(results_key) & 0xFFFFFFFFFFFFFFFF:016x}",
            }
            | describe_spec(experiment)
            | computed
        )

    def _describe_run(self, run: Run | None, status: str) -> dict[str, Any]:
        if run is None:
            return {"run": None, "status": status, "step": 0, "queue_position": None}
        return {
            "run": f"run:{run.id}",
            "status": run.status,
            "step": run.step,
            "queue_position": self.registry.scheduler.position(run),
            "steps": run.steps,
            "message": run.message,
        }

    def runs(self, experiment: Experiment, owner: str) -> list[Run]:
        """Return the started runs in the order of the plan."""
        runs = self.store.state(experiment).find_runs(self.registry, owner)
        return [runs[key] for key, *_ in experiment.planned_runs() if key in runs]

    def to_csv(self, experiment: Experiment, owner: str) -> str:
        state = self.store.touch(experiment)
        runs = state.find_runs(self.registry, owner)
        is_by_length = experiment.kind == LENGTHS
        lengths = length_results(state, runs, self.evaluator)[1] if is_by_length else None
        return to_csv(variant_results(state, runs, 0)[1], lengths)

    def to_json(self, experiment: Experiment, owner: str) -> Iterator[str]:
        """Return the parts of a JSON file with every number: one variant at a time is computed."""
        state = self.store.touch(experiment)
        runs = state.find_runs(self.registry, owner)
        results = {**variant_results(state, runs, 0)[1]}
        del results["variants"]
        file = describe_spec(experiment)
        if experiment.kind == LENGTHS:
            file["lengths"] = length_results(state, runs, self.evaluator)[1]

        def parts() -> Iterator[str]:
            yield f'{json.dumps(file)[:-1]}, "results": {json.dumps(results)[:-1]}, "variants": ['
            for at, each in enumerate(drawn_results(state, runs)):
                yield ",\n" * bool(at) + json.dumps(each)
            yield "]}}\n"

        return parts()

    def estimate(self, experiment: Experiment, owner: str) -> Estimate:
        """Estimate the remaining time (`progress.estimate`)."""
        state = self.store.state(experiment)
        return self._estimate(state, state.find_runs(self.registry, owner), owner)

    def estimate_plan(self, spec: ExperimentSpec, owner: str) -> Estimate:
        """Estimate the time of an experiment that has not started (`progress.estimate`)."""
        return progress.estimate(spec, self.registry, owner)

    def _estimate(self, state: ExperimentState, runs: Mapping[str, Run], owner: str) -> Estimate:
        stored = state.stored_keys(runs)
        return progress.estimate(state.experiment, self.registry, owner, runs, stored)

    def progress(self, experiment: Experiment, owner: str) -> tuple[int, int]:
        """Return the completed and the total number of steps and lengths, for a progress bar."""
        state = self.store.state(experiment)
        return progress.progress(state, state.find_runs(self.registry, owner), self.evaluator)


def describe_spec(experiment: Experiment) -> dict[str, Any]:
    """Return the specification of an experiment, with its name and its question."""
    return {"spec": experiment.model_dump(mode="json", include=set(SPEC_FIELDS))}
