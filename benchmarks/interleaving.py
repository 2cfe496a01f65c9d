"""Timing side by side on a machine that is not alone: short turns, one after the other, over and over, and ratios within a round."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

RESAMPLES = 2000
FEWEST_ROUNDS = 5


def rounds(
    contestants: Mapping[str, Callable[[], object]], seconds: float, calls: int = 5
) -> dict[str, list[float]]:
    """Seconds of one call of each contestant, a number for each round.

    A turn is one call that is not timed, for another contestant's data fill the caches, and `calls` that are. Every round has a turn of
    each, in an order that is reversed from round to round. Garbage is collected between rounds only. Rounds go on for `seconds`,
    but there are five at least.
    """
    took: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(contestants)
    collecting = gc.isenabled()
    gc.disable()
    try:
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends or len(took[order[0]]) < FEWEST_ROUNDS:
            for name in order:
                call = contestants[name]
                call()
                started = time.perf_counter()
                for _ in range(calls):
                    call()
                took[name].append((time.perf_counter() - started) / calls)
            order.reverse()
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return took


def interval(values: Sequence[float]) -> dict[str, float]:
    """The median, and its 95 % interval over resampled rounds (percentile bootstrap; Efron 1979)."""
    drawn = random.Random(0)
    medians = sorted(median(drawn.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return {
        "median": median(values),
        "low": medians[round(0.025 * RESAMPLES)],
        "high": medians[round(0.975 * RESAMPLES) - 1],
    }


def quicker(one: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """How many times as quick as `other` `one` is: the median over rounds, and its 95 % interval."""
    return interval([b / a for a, b in zip(one, other, strict=True)])


def written(told: Mapping[str, Any], unit: str = "") -> str:
    """An interval as tables have it."""
    digits = 3 if told["median"] < 0.995 else 2
    return (
        f"{told['median']:.{digits}f}{unit} ({told['low']:.{digits}f} to {told['high']:.{digits}f})"
    )
