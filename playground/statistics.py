"""Shares in words, and intervals and medians of few numbers, written out. Nothing is imported but the standard library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def wilson(right: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of `n` (Wilson 1927): unlike the plain one it has a width at 0 and at 1."""
    z = 1.959964
    share, more = right / n, z * z / n
    middle = (share + more / 2) / (1 + more)
    half = z / (1 + more) * math.sqrt(share * (1 - share) / n + more / (4 * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def floored(share: float, digits: int) -> float:
    """A share rounded down to so many digits behind the point, so that only all is 1. A billionth is an error of computing and no more."""
    scale = 10**digits
    return math.floor(share * scale + 1e-9 * scale) / scale


def percent(share: float) -> str:
    """A share in percent with one decimal, cut off: what falls short of all is never 100 %, and what is above none is not 0 %."""
    shown = floored(share, 3)
    if shown == 1:
        return "100 %"
    return f"{100 * shown:.1f} %" if shown else "< 0.1 %" if share > 1e-9 else "0 %"


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of `values` lies, by linear interpolation between the two nearest (Hyndman and Fan 1996,
    type 7, numpy's default).

    Raises:
        ValueError: without a value.
    """
    if not values:
        raise ValueError("there is no quantile of no values")
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low, high = math.floor(at), math.ceil(at)
    if ordered[low] == ordered[high]:  # also where both are infinite
        return ordered[low]
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def spread(values: Sequence[float]) -> dict[str, Any] | None:
    """How values over seeds lie: n, median, the full range (low, high) and the quartiles (q1, q3). None without a value."""
    if not values:
        return None
    low, q1, median, q3, high = (quantile(values, share) for share in (0, 0.25, 0.5, 0.75, 1))
    return {"n": len(values), "median": median, "low": low, "high": high, "q1": q1, "q3": q3}


def censored(values: Sequence[float | None]) -> dict[str, Any] | None:
    """`spread` of waiting times of which some, the Nones, were not over when watching ended. They are longer than anything that
    was seen, so a median or a bound that falls among them is None rather than a number; `reached` counts the others.
    """
    told = spread([math.inf if value is None else value for value in values])
    if told is None:
        return None
    finite = {name: None if value == math.inf else value for name, value in told.items()}
    return finite | {"reached": sum(value is not None for value in values)}


def apart(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two full ranges do not touch. A bound of None is beyond every number."""
    ends = [[math.inf if each[name] is None else each[name] for name in ("low", "high")] for each in (one, other)]
    return ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]


def by_chance(n: int, m: int) -> float:
    """How often the ranges of `n` and `m` values from one and the same source lie wholly apart: 2 of all the ways in which they
    can be ordered."""
    return 2 / math.comb(n + m, n)
