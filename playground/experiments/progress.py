"""Report how far an experiment is, and estimate its remaining time."""

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any

from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.runs.summary import format_duration
from playground.training.config import RunConfig

from .length_evaluator import LengthEvaluator
from .spec import LENGTHS, Experiment
from .state import ExperimentState

ENDED_STATUSES = ("done", "failed")
MIN_MEASURED_STEPS = 20  # steps of a run from which its speed counts
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


def state_name(state: ExperimentState, runs: Mapping[str, Run], evaluator: LengthEvaluator) -> str:
    """Return "running", "done" (every run has ended and is evaluated) or "paused"."""
    is_active, all_started = bool(state.owner), len(runs) == state.experiment.n_runs
    all_ended = all(run.status in ENDED_STATUSES for run in runs.values())
    if all_started and all_ended and not state.runs_to_resume:
        if not evaluator.unevaluated_runs(state, runs):
            return "done"
        return "running" if is_active else "paused"
    is_busy = any(
        run.status == "waiting" or (run.has_worker and run.status != "paused")
        for run in runs.values()
    )
    has_work = is_busy or bool(state.runs_to_resume) or not all_started
    return "running" if is_active and has_work else "paused"


def progress(
    state: ExperimentState, runs: Mapping[str, Run], evaluator: LengthEvaluator
) -> tuple[int, int]:
    """Return the completed and the total number of steps and lengths, for a progress bar."""
    completed = total = 0
    experiment = state.experiment
    for key, cell, _ in experiment.planned_runs():
        run = runs.get(key)
        total += cell.steps
        if run:
            completed += cell.steps if run.status in ENDED_STATUSES else run.step
        if experiment.kind == LENGTHS:
            n_lengths = len(experiment.evaluated_lengths(cell.settings))
            total += n_lengths
            if run:
                completed += n_lengths - len(evaluator.remaining_lengths(state, run))
    return completed, total


def estimate(
    experiment: Experiment,
    runs: Mapping[str, Run],
    speed_keys: dict[str, Hashable],
    registry: Registry,
    owner: str,
) -> dict[str, Any]:
    """Estimate the remaining time from earlier runs of the owner with the same model and task.

    `seconds` is None when a remaining run has no comparable run; `message` reports that.
    `speed_keys` caches what the speed of each variant depends on.
    """
    planned = [(cell, runs.get(key)) for key, cell, _ in experiment.planned_runs()]
    left = [(cell, run) for cell, run in planned if not run or run.status not in ENDED_STATUSES]
    if not left:
        return {"seconds": 0.0, "unknown": 0, "message": "every run has ended"}
    n_parallel = min(len(left), registry.settings.slots_per_owner) or 1
    speeds, seconds, unknown = _measure_speeds(registry, owner), 0.0, 0
    for cell, run in left:
        if cell.full_label not in speed_keys:  # all seeds have the same one
            speed_keys[cell.full_label] = _speed_key(cell.config(experiment.seeds[0]))
        speed = speeds.get(speed_keys[cell.full_label])
        if speed is None:
            unknown += 1
        else:
            seconds += max(0, cell.steps - (run.step if run else 0)) / speed
    if unknown:
        message = (
            f"the remaining time is unknown for {unknown} of {len(left)} runs: no comparable run "
            "has trained here yet"
        )
        return {"seconds": None, "unknown": unknown, "message": message}
    seconds /= n_parallel
    message = (
        f"about {format_duration(round(seconds))} for {len(left)} runs, {n_parallel} at a time, at "
        "the speed measured here, if no other runs train"
    )
    return {"seconds": seconds, "unknown": 0, "message": message}


def _measure_speeds(registry: Registry, owner: str) -> dict[Hashable, float]:
    """Return steps per second of the latest run of each kind, evaluations included."""
    runs = registry.list_for_owner(owner)
    measured = (run for run in runs if run.step >= MIN_MEASURED_STEPS and run.seconds > 0)
    return {_speed_key(run.config): run.step / run.seconds for run in measured}


@lru_cache(maxsize=1024)
def _speed_key(config: RunConfig) -> Hashable:
    """Return a key shared by runs of similar speed: architecture, model, task and machine."""
    settings = config.to_flat()
    return config.architecture, config.model, tuple(settings[name] for name in COMPARABLE_SETTINGS)
