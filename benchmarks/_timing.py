"""Interleaved timing on a shared machine: short alternating turns, and ratios within a round."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

RESAMPLES = 2000
MIN_ROUNDS = 5


def rounds(
    candidates: Mapping[str, Callable[[], object]], seconds: float, calls: int = 5
) -> dict[str, list[float]]:
    """Return the seconds per call of each candidate, one number per round.

    A turn is one untimed call, because the caches hold the data of another candidate, and `calls`
    timed ones. Each round has one turn per candidate, in an order that reverses every round.
    Garbage collection runs only between rounds. Rounds continue for `seconds`, at least five.
    """
    seconds_by_name: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    collecting = gc.isenabled()
    gc.disable()
    try:
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends or len(seconds_by_name[order[0]]) < MIN_ROUNDS:
            for name in order:
                call = candidates[name]
                call()
                started = time.perf_counter()
                for _ in range(calls):
                    call()
                seconds_by_name[name].append((time.perf_counter() - started) / calls)
            order.reverse()
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return seconds_by_name


def interval(values: Sequence[float]) -> dict[str, float]:
    """Return the median and its 95 % interval.

    The interval is a percentile bootstrap over rounds (Efron 1979).
    """
    generator = random.Random(0)
    medians = sorted(median(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return {
        "median": median(values),
        "low": medians[round(0.025 * RESAMPLES)],
        "high": medians[round(0.975 * RESAMPLES) - 1],
    }


def speedup(one: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """Return the speedup of `one` over `other`.

    The speedup is the median over rounds, with its 95 % interval.
    """
    return interval([b / a for a, b in zip(one, other, strict=True)])


def format_interval(interval: Mapping[str, Any], unit: str = "") -> str:
    """Format an interval for a table."""
    digits = 3 if interval["median"] < 0.995 else 2
    median, low, high = (f"{interval[name]:.{digits}f}" for name in ("median", "low", "high"))
    return f"{median}{unit} ({low} to {high})"
