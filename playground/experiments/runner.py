"""Start, resume and evaluate the runs of all experiments in a background thread.

An experiment has only a few runs in the queue of the registry at a time, so that other runs of its
owner do not wait behind all of them. The queue itself is fair between owners.
"""

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from playground.common.format import format_duration
from playground.errors import UserError
from playground.jobs.admission import CLIENT_ADDRESS
from playground.models.config_fields import ConfigError
from playground.runs.record import WEIGHTS_EVICTED
from playground.runs.registry import Registry
from playground.runs.state import RESUMABLE_STATUSES, Run

from .length_generalization import LengthEvaluator
from .progress import ENDED_STATUSES, have_ended, state_name
from .results import run_metrics
from .state import ExperimentState
from .store import ExperimentStore
from .summary import RunSummary, ScoreSummary

log = logging.getLogger(__name__)

MAX_QUEUED_RUNS = 2  # maximum number of queued runs of one experiment
POLL_INTERVAL_S = 0.2  # seconds between two iterations of the background thread
RETRY_DELAY_S = 5.0  # seconds after a rejected run until the next attempt
ENDED_EARLY = (*RESUMABLE_STATUSES, "stopping")  # only a resume continues these


class ExperimentRunner:
    """The background thread, and the actions that change what it does.

    Each method with a state, except these actions, expects the caller to hold `store.lock`.
    """

    def __init__(
        self, registry: Registry, store: ExperimentStore, evaluator: LengthEvaluator
    ) -> None:
        self.registry, self.store, self.evaluator = registry, store, evaluator
        self._stop_event = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._loop, name="experiments", daemon=True).start()

    def stop(self) -> None:
        """Start no more runs, and store the results of those that have ended."""
        self._stop_event.set()
        with self.store.lock:
            for state in self.store.states.values():
                if state.owner and state.shards is None:
                    self._store_results(state, state.find_runs(self.registry, state.owner))

    def pause(self, state: ExperimentState, owner: str) -> None:
        """Remove queued runs, stop and save active runs, and start no more."""
        with self.store.lock:
            state.owner, state.message = "", ""
            state.runs_to_resume.clear()
            others = [each for each in self.store.states.values() if each.owner]
            shared = {run_id for each in others for run_id in each.runs.values()}  # of lessons
            for key, run in state.find_runs(self.registry, owner).items():
                if run.id in shared:
                    continue
                if run.status == "waiting" and not run.step:
                    self.registry.control(run, "stop")
                    self.registry.delete(run)
                    state.runs.pop(key)
                elif run.has_worker or run.status == "waiting":
                    # The registry ends a process that does not respond.
                    with suppress(UserError):
                        self.registry.control(run, "stop")
            self.store.write(state)

    def cancel(self, state: ExperimentState, owner: str) -> None:
        """Start no more runs and delete the unfinished ones; the finished ones stay."""
        with self.store.lock:
            self.pause(state, owner)
            for key, run in state.find_runs(self.registry, owner).items():
                if run.status not in ENDED_STATUSES:
                    self.registry.delete(run)
                    state.runs.pop(key)
            state.drop_stale_results()
            state.is_cancelled = True
            self.store.write(state)

    def resume(self, state: ExperimentState, owner: str) -> None:
        """Continue after a pause, a failure or a restart; finished runs are not repeated."""
        with self.store.lock:
            runs = state.find_runs(self.registry, owner)
            for key, run in list(runs.items()):
                if self._must_train_again(state, key, run):
                    del state.runs[key], runs[key]
            state.drop_stale_results()
            state.runs_to_resume = {
                key for key, run in runs.items() if run.status in ENDED_EARLY and not run.diverged
            }
            state.is_cancelled = False
            self.store.write(state)
            state.message, state.owner = "", owner
            state.address = CLIENT_ADDRESS.get() or state.address
            state.last_viewed_at, state.next_start_at = time.monotonic(), 0.0

    def _must_train_again(self, state: ExperimentState, key: str, run: Run) -> bool:
        """Return whether the weights of a run were deleted before its end or its evaluation."""
        if run.evicted != WEIGHTS_EVICTED or run.diverged:
            return False
        return run.status != "done" or bool(self.evaluator.unevaluated_runs(state, {key: run}))

    def _loop(self) -> None:
        while not self._stop_event.wait(POLL_INTERVAL_S):
            self._advance_all()

    def _advance_all(self) -> None:
        """Advance the experiments, those first that wait longest for an evaluation."""
        states = self.store.states.copy().values()
        for state in sorted(states, key=lambda each: each.requested_at):
            if state.owner and state.shards is None:
                self._advance(state)

    def _advance(self, state: ExperimentState) -> None:
        """Start, resume and evaluate runs of an experiment."""
        before = CLIENT_ADDRESS.set(state.address)  # new runs count for this address
        try:
            with self.store.lock:
                if state.owner and not self._pause_unwatched(state):
                    self.submit_runs(state)
                    runs = state.find_runs(self.registry, state.owner)
                    is_evaluating = self.evaluator.advance(state, runs)
                    self._store_results(state, runs)
                    if not is_evaluating:
                        self._end_if_complete(state, runs)
            state.logged_error = ""
        except Exception as error:  # an error in one experiment must not stop the others
            state.message = f"{type(error).__name__}: {error}"
            if state.logged_error != state.message:  # log a repeated error once
                state.logged_error = state.message
                log.exception("The experiment %s cannot continue", state.experiment.id)
        finally:
            CLIENT_ADDRESS.reset(before)

    def _pause_unwatched(self, state: ExperimentState) -> bool:
        """Pause an experiment without polls during the idle timeout; its owner can resume it."""
        timeout_s = self.registry.settings.idle_timeout_s
        viewed_at = state.last_viewed_at
        owner_seen_at = self.registry.owner_last_seen.get(state.experiment.owner, viewed_at)
        idle_s = time.monotonic() - max(viewed_at, owner_seen_at)
        if not timeout_s or idle_s <= timeout_s:
            return False
        self.pause(state, state.owner)
        state.message = (
            f"stopped after {format_duration(timeout_s)} without activity; resume it to continue"
        )
        return True

    def adopt_runs(self, state: ExperimentState) -> None:
        """Use the owner's runs with the planned settings again; unfinished ones continue.

        A finished run comes before the others. The training of imported checkpoints is unknown.
        """
        planned = {
            variant.config(seed): key for key, variant, seed in state.experiment.planned_runs()
        }
        usable = [
            run
            for run in self.registry.list_for_owner(state.owner)
            if run.config in planned
            and not run.is_deleted
            and run.status != "failed"
            and (run.status in ("done", *ENDED_EARLY) or run.record.started_by == "lesson")
            and not run.modified_settings
            and not run.branched_from
            and not run.imported
            and (run.status != "done" or run.checkpoints())
            and run.evicted != WEIGHTS_EVICTED
        ]
        for run in sorted(usable, key=lambda run: (run.status == "done", run.created)):
            state.runs[planned[run.config]] = run.id
        resumable = {run.id for run in usable if run.status in ENDED_EARLY}
        state.runs_to_resume = {key for key, run in state.runs.items() if run in resumable}

    def submit_runs(self, state: ExperimentState) -> None:
        """Submit runs until `MAX_QUEUED_RUNS` of them are queued."""
        if time.monotonic() < state.next_start_at:
            return
        runs = state.find_runs(self.registry, state.owner)
        stored = state.stored_keys(runs)
        n_waiting = sum(run.status == "waiting" for run in runs.values())
        has_started = False
        for i, (key, variant, seed) in enumerate(state.experiment.planned_runs()):
            if n_waiting >= MAX_QUEUED_RUNS or self._stop_event.is_set():
                break
            if key in stored:
                continue
            run = runs.get(key)
            try:
                if run is None:
                    name = f"{state.experiment.name}: {variant.full_label}, seed {seed}"
                    run = self.registry.start(
                        variant.config(seed),
                        state.owner,
                        name=name if state.is_listed else state.run_names[i],
                        origin="experiment" if state.is_listed else "lesson",
                    )
                    state.runs[key] = run.id
                    has_started = True
                elif key in state.runs_to_resume and run.status != "stopping":
                    self.registry.control(run, "resume")
                    state.runs_to_resume.discard(key)  # afterwards: it is never idle in between
                else:
                    continue  # a stopping run saves its checkpoint first
                state.message = ""
            except (UserError, ConfigError) as error:
                state.message, state.next_start_at = str(error), time.monotonic() + RETRY_DELAY_S
                break
            n_waiting += run.status == "waiting"
        if has_started:
            self.store.write(state)

    def _store_results(self, state: ExperimentState, runs: Mapping[str, Run]) -> None:
        """Store the results of the runs that have ended and are evaluated."""
        if not state.is_listed:
            return
        unevaluated = self.evaluator.unevaluated_runs(state, runs)
        lines = {
            run.id: RunSummary(
                run=run.id,
                step=run.step,
                metrics=run_metrics(state, run),
                counts=self.evaluator.counts(state, run),
            ).line()
            for run in runs.values()
            if (run.status == "done" and run.scores and run not in unevaluated) or run.diverged
            if state.summary(run.id, run, ScoreSummary) is None
        }
        self.store.add_summaries(state, lines)

    def _end_if_complete(self, state: ExperimentState, runs: Mapping[str, Run]) -> None:
        """End an experiment when no run is left to train or to evaluate."""
        if state_name(state, runs, self.evaluator) == "done":
            state.owner = ""
            return
        all_ended = state.n_known(runs) == state.experiment.n_runs and have_ended(runs)
        unevaluated = self.evaluator.unevaluated_runs(state, runs) if all_ended else []
        if evicted := next((run for run in unevaluated if run.evicted == WEIGHTS_EVICTED), None):
            state.owner = ""
            state.message = (
                f"{evicted.name}: its weights were deleted to free space before the evaluation; "
                "Resume trains it again"
            )
