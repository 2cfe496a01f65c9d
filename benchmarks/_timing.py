"""Timing side by side on a machine that is not alone: short turns, one after the other, over and over, and ratios within a round."""

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
    """Seconds of one call of each contestant, a number for each round.

    A turn is one call that is not timed, for another contestant's data fill the caches, and `calls` that are. Every round has a turn of
    each, in an order that is reversed from round to round. Garbage is collected between rounds only. Rounds go on for `seconds`,
    but there are five at least.
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
    """The median, and its 95 % interval over resampled rounds (percentile bootstrap; Efron 1979)."""
    drawn = random.Random(0)
    medians = sorted(median(drawn.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return {
        "median": median(values),
        "low": medians[round(0.025 * RESAMPLES)],
        "high": medians[round(0.975 * RESAMPLES) - 1],
    }


def speedup(one: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """How many times as quick as `other` `one` is: the median over rounds, and its 95 % interval."""
    return interval([b / a for a, b in zip(one, other, strict=True)])


def format_interval(interval: Mapping[str, Any], unit: str = "") -> str:
    """An interval as tables have it."""
    digits = 3 if interval["median"] < 0.995 else 2
    return f"{interval['median']:.{digits}f}{unit} ({interval['low']:.{digits}f} to {interval['high']:.{digits}f})"
