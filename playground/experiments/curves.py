"""Reduce the evaluations of runs to curves; the functions do not access runs or files."""

from collections.abc import Mapping, Sequence
from typing import Any

from playground.common.stats import quantile

from .analysis import TARGET_SCORE, has_score

MAX_POINTS = 200  # of one curve
MAX_EVALUATIONS = 400  # maximum evaluations of one run in a curve


def first_step_reaching(
    evaluations: Sequence[tuple[int, float]], share: float = TARGET_SCORE, every: int = 1
) -> int | None:
    """Return the step of the first evaluation with at least this exact match, or None.

    Only evaluations at multiples of `every` and the last one count: an interrupted run has an extra
    evaluation, which would otherwise favor it.
    """
    planned = [
        (step, exact)
        for step, exact in evaluations
        if step % every == 0 or step == evaluations[-1][0]
    ]
    return next((step for step, exact in planned if exact >= share), None)


def exact_match_at(
    evaluations: Sequence[tuple[int, float]], budget: int, every: int
) -> float | None:
    """Return the exact match after the last of `budget` steps that every run evaluates, or None.

    These are the multiples of `every`. A run that ended before keeps its last score.
    """
    until = budget // every * every
    return next((exact for step, exact in reversed(evaluations) if step <= until), None)


def subsample_steps(steps: Sequence[int], every: int, planned: int) -> list[int]:
    """Return at most a few hundred of the evaluation steps, including the last one.

    The selection depends only on `every` and `planned`, so all seeds of a variant share it.
    """
    spacing = every * max(1, -(-planned // (every * MAX_EVALUATIONS)))
    return [step for step in steps if step % spacing == 0 or step == steps[-1]]


def interval_means(
    evaluations: Sequence[int], losses: Sequence[float], first: int = 1
) -> list[list[float]]:
    """Return the mean training loss between evaluations: [[step, mean], ...].

    `evaluations` lists the evaluation steps; `losses` has one value per step, starting at `first`.
    """
    means, begin = [], 0
    for step in evaluations:
        part = losses[begin : step - first + 1]
        if part:
            means.append([step, sum(part) / len(part)])
        begin = step - first + 1
    return means


def draw_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the part of a `VariantResult` that its runs draw; empty without runs.

    Each of `runs` has what `summarize_variant` needs, and curve ([[step, exact match], ...]) and
    loss (see `interval_means`).
    """
    done = list(filter(has_score, runs))
    return {
        "curve": median_and_range([run["curve"] for run in done]),
        "loss": median_and_range([run["loss"] for run in done]),
        "live": [
            {name: each[name] for name in ("seed", "curve", "loss")}
            for each in runs
            if each["curve"] and not each["done"]
        ],
        "seeds": [
            {name: value for name, value in each.items() if name not in ("curve", "loss")}
            for each in runs
        ],
    }


def median_and_range(curves: Sequence[Sequence[Sequence[float]]]) -> dict[str, list[float]]:
    """Return median and range over seeds at the steps that all curves share."""
    by_step = [{point[0]: point[1] for point in curve} for curve in curves]
    common = sorted(set.intersection(*map(set, by_step))) if by_step else []
    if len(common) > MAX_POINTS:
        common = [common[i * (len(common) - 1) // (MAX_POINTS - 1)] for i in range(MAX_POINTS)]
    at = [sorted(curve[step] for curve in by_step) for step in common]
    return {
        "steps": list(map(int, common)),
        "median": [quantile(shares, 0.5) for shares in at],
        "low": [shares[0] for shares in at],
        "high": [shares[-1] for shares in at],
    }
