"""Report the progress of an experiment, and estimate its remaining time."""

from collections.abc import Collection, Hashable, Mapping
from typing import TypedDict

from playground.common.format import format_duration
from playground.runs.record import ACTIVE_STATUSES
from playground.runs.registry import Registry
from playground.runs.state import Run

from .length_generalization import LengthEvaluator
from .spec import LENGTHS, ExperimentSpec
from .state import ExperimentState
from .variant import speed_key

ENDED_STATUSES = ("done", "failed")
MIN_MEASURED_STEPS = 20  # steps of a run from which its speed counts


class Estimate(TypedDict):
    """The remaining time; a limit where runs end early, at an exact match."""

    seconds: float
    is_limit: bool
    is_measured: bool
    message: str


def state_name(state: ExperimentState, runs: Mapping[str, Run], evaluator: LengthEvaluator) -> str:
    """Return "running", "done" (every run has ended and is evaluated), "paused" or "cancelled"."""
    if state.is_cancelled:
        return "cancelled"
    is_active, all_started = bool(state.owner), state.n_known(runs) == state.experiment.n_runs
    if all_started and have_ended(runs) and not state.runs_to_resume:
        if not evaluator.unevaluated_runs(state, runs):
            return "done"
        return "running" if is_active else "paused"
    # By status: a starting run has no worker yet.
    is_busy = any(run.status in ("waiting", *ACTIVE_STATUSES) for run in runs.values())
    has_work = is_busy or bool(state.runs_to_resume) or not all_started
    return "running" if is_active and has_work else "paused"


def have_ended(runs: Mapping[str, Run]) -> bool:
    return all(run.status in ENDED_STATUSES for run in runs.values())


def progress(
    state: ExperimentState, runs: Mapping[str, Run], evaluator: LengthEvaluator
) -> tuple[int, int]:
    """Return the completed and the total number of steps and lengths, for a progress bar."""
    completed = total = 0
    experiment, stored = state.experiment, state.stored_keys(runs)
    has_lengths = experiment.kind == LENGTHS
    for key, variant, _ in experiment.planned_runs():
        n_lengths = len(experiment.evaluated_lengths(variant.settings)) if has_lengths else 0
        total += variant.steps + n_lengths
        if key in stored:
            completed += variant.steps + n_lengths
        elif run := runs.get(key):
            completed += variant.steps if run.status in ENDED_STATUSES else run.step
            if has_lengths:
                completed += n_lengths - len(evaluator.remaining_lengths(state, run))
    return completed, total


def estimate(
    experiment: ExperimentSpec,
    registry: Registry,
    owner: str,
    runs: Mapping[str, Run] = {},
    stored: Collection[str] = (),
) -> Estimate:
    """Estimate the remaining time of an experiment, without the runs of the keys `stored`.

    The speed is that of earlier runs on this machine with the same model and task, preferably of
    the owner; without one, `Variant.step_s`.
    """
    remaining = [
        (variant, run)
        for key, variant, _ in experiment.planned_runs()
        if key not in stored and (not (run := runs.get(key)) or run.status not in ENDED_STATUSES)
    ]
    if not remaining:
        message = "every run has ended"
        return {"seconds": 0.0, "is_limit": False, "is_measured": True, "message": message}
    n_parallel = min(len(remaining), registry.settings.slots_per_owner) or 1
    speeds, run_seconds, unknown = measure_speeds(registry, owner), [], 0
    for variant, run in remaining:
        speed = speeds.get(variant.speed_key)
        unknown += speed is None
        step_s = variant.step_s if speed is None else 1 / speed
        run_seconds.append(max(0, variant.steps - (run.step if run else 0)) * step_s)
    seconds = max(sum(run_seconds) / n_parallel, *run_seconds)
    source = (
        f"estimated from the size of the models for {unknown} of them: no comparable run has "
        "trained here yet"
        if unknown
        else "at the speed measured here, if no other runs train"
    )
    is_limit = experiment.stop_at_exact_match > 0
    extent = f"{'up to' if is_limit else 'about'} {format_duration(round(seconds))}"
    return {
        "seconds": seconds,
        "is_limit": is_limit,
        "is_measured": not unknown,
        "message": f"{extent} for {len(remaining)} runs, {n_parallel} at a time, {source}",
    }


def measure_speeds(registry: Registry, owner: str) -> dict[Hashable, float]:
    """Return steps per second of the latest run of each kind, evaluations included.

    Runs of the owner replace those of others.
    """
    runs = [*registry.all_runs(), *registry.list_for_owner(owner)]
    measured = (run for run in runs if run.step >= MIN_MEASURED_STEPS and run.seconds > 0)
    return {speed_key(run.config): run.step / run.seconds for run in measured}
