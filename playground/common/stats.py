"""Intervals, medians and tests for few numbers.

This file imports only the standard library.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Z_95 = 1.959963984540054  # 95 % of a normal distribution is within this many standard deviations
MAX_EXACT = 40  # values of a rank test that counts all divisions: the time grows as n**4


def wilson_interval(n_correct: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a fraction of `n` (Wilson 1927).

    Unlike the normal approximation it has a width at 0 and at 1, and it contains these ends
    exactly. `n_correct` may have a fraction, where a tie counts as a part of a success. Raises
    ValueError for no trials.
    """
    if n <= 0:
        raise ValueError(f"n is {n}; an interval needs at least one trial")
    fraction, more = n_correct / n, Z_95**2 / n
    middle = (fraction + more / 2) / (1 + more)
    half = Z_95 / (1 + more) * math.sqrt(fraction * (1 - fraction) / n + more / (4 * n))
    return 0.0 if n_correct == 0 else middle - half, 1.0 if n_correct == n else middle + half


def exact_match_interval(scores: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the 95 % interval of an exact match of `n` sequences; None without any."""
    exact_match, n = scores["exact_match"], scores["n"]
    return wilson_interval(round(exact_match * n), n) if n and exact_match is not None else None


def floor_to(fraction: float, digits: int) -> float:
    """Round a fraction down to `digits` decimals, but correct an error of a billionth first."""
    scale = 10**digits
    return math.floor(fraction * scale + 1e-9 * scale) / scale


def quantile(values: Sequence[float], fraction: float) -> float:
    """Return a quantile of one or more values (type 7 of Hyndman and Fan 1996, as in numpy)."""
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    low, high = math.floor(position), math.ceil(position)
    if ordered[low] == ordered[high]:  # also if both are infinite
        return ordered[low]
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def five_number_summary(values: Sequence[float]) -> dict[str, Any] | None:
    """Summarize values: n, median, range (low, high), quartiles (q1, q3); or None."""
    if not values:
        return None
    ordered = sorted(values)  # once: sorting a sorted list is fast
    low, q1, median, q3, high = (quantile(ordered, share) for share in (0, 0.25, 0.5, 0.75, 1))
    return {"n": len(values), "median": median, "low": low, "high": high, "q1": q1, "q3": q3}


def censored_summary(values: Sequence[float | None]) -> dict[str, Any] | None:
    """Summarize waiting times, of which some (None) had not ended when the observation ended.

    They are longer than any observed time. So a median or a bound among them is None, and `reached`
    counts the others.
    """
    summary = five_number_summary([math.inf if value is None else value for value in values])
    if summary is None:
        return None
    finite = {name: None if value == math.inf else value for name, value in summary.items()}
    return finite | {"reached": sum(value is not None for value in values)}


def ranges_disjoint(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two full ranges are disjoint. A bound of None is above every number."""
    ends = [
        [math.inf if each[name] is None else each[name] for name in ("low", "high")]
        for each in (one, other)
    ]
    return ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]


def rank_test(one: Sequence[float | None], other: Sequence[float | None]) -> float:
    """Return the two-sided p-value of Mann and Whitney's rank test (1947).

    This is the fraction of all C(n + m, n) divisions of the pooled values into groups of these
    sizes whose rank sum is at least as far from its mean. For more than `MAX_EXACT` values, it
    comes from the normal distribution, corrected for ties and continuity. Ties have their mean
    rank. None is a waiting time that had not ended, longer than every number. Raises ValueError for
    an empty group.
    """
    if not one or not other:
        raise ValueError("one group is empty; a rank test needs at least one value in each group")
    first, second = (
        [math.inf if value is None else value for value in group] for group in (one, other)
    )
    pooled = first + second
    counts = sorted(Counter(pooled).items())
    doubled_rank, below = {}, 0  # twice the mean rank, which is a whole number
    for value, count in counts:
        doubled_rank[value] = 2 * below + count + 1
        below += count
    mean = len(first) * (len(pooled) + 1)  # of the doubled rank sum
    distance = abs(sum(doubled_rank[value] for value in first) - mean)
    if len(pooled) > MAX_EXACT:
        n = len(pooled)
        ties = sum(count**3 - count for _, count in counts) / (n * (n - 1))
        variance = len(first) * len(second) * (n + 1 - ties) / 3  # of the doubled rank sum
        return math.erfc(max(0, distance - 1) / math.sqrt(2 * variance)) if variance else 1.0
    # by the number of values chosen so far and their doubled rank sum
    ways: Counter[tuple[int, int]] = Counter({(0, 0): 1})
    for value, count in counts:
        added: Counter[tuple[int, int]] = Counter()
        for (chosen, total), number in ways.items():
            for more in range(min(count, len(first) - chosen) + 1):
                added[chosen + more, total + more * doubled_rank[value]] += number * math.comb(
                    count, more
                )
        ways = added
    extreme = sum(
        number
        for (chosen, total), number in ways.items()
        if chosen == len(first) and abs(total - mean) >= distance
    )
    return extreme / math.comb(len(pooled), len(first))


def mcnemar_test(only_one: int, only_other: int) -> float:
    """Return the two-sided exact p-value of McNemar's test (1947) for two models on the same items.

    The arguments count the items that only one of the two has right. The others say nothing about
    a difference.
    """
    n, fewer = only_one + only_other, min(only_one, only_other)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n)


def min_p_value(n: int, m: int, n_groups: int = 2) -> float:
    """Return the minimum p-value of `rank_test` for groups of `n` and `m` distinct values.

    It is corrected for the choice of the two among `n_groups`. With ties, groups of unequal sizes
    can have a smaller one.
    """
    return corrected_p_value(2 / math.comb(n + m, n), n_groups)


def corrected_p_value(p: float, n_groups: int) -> float:
    """Multiply a p-value by the number of pairs of groups (Bonferroni); return at most 1."""
    return min(1.0, p * math.comb(n_groups, 2))
