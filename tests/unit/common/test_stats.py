import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.common import stats
from playground.common.stats import (
    censored_summary,
    five_number_summary,
    floor_to,
    min_p_value,
    quantile,
    ranges_disjoint,
    rank_test,
    wilson_interval,
)


def test_wilson_agrees_with_published_values():
    assert wilson_interval(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(10, 10) == pytest.approx((0.7225, 1), abs=1e-4)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12),
    st.sampled_from([0, 0.25, 0.5, 0.75, 1]),
)
def test_quantiles_are_those_of_numpy(values, share):
    assert quantile(values, share) == pytest.approx(np.quantile(values, share), abs=1e-6)


def test_no_values_have_no_summary():
    assert five_number_summary([]) is None
    assert censored_summary([]) is None


def test_censored_runs_rank_after_all_finished_runs():
    result = censored_summary([120, None, 80])
    known = {"n": 3, "reached": 2, "low": 80, "median": 120, "high": None}
    assert {name: result[name] for name in known} == known
    assert censored_summary([120, None, None])["median"] is None
    # the middle of a number and of what is beyond every number
    assert censored_summary([120, None])["median"] is None
    nothing = dict.fromkeys(("median", "low", "high", "q1", "q3"))
    assert censored_summary([None, None]) == nothing | {"n": 2, "reached": 0}


def test_ranges_are_disjoint_only_without_a_common_value():
    def of(*values):
        return censored_summary(values)

    assert ranges_disjoint(of(1, 2), of(3, 4))
    assert ranges_disjoint(of(3, 4), of(1, 2))
    assert not ranges_disjoint(of(1, 3), of(3, 4))
    assert ranges_disjoint(of(1, 2), of(None, None))
    assert not ranges_disjoint(of(1, None), of(None, None))  # both reach beyond what was watched


@pytest.mark.parametrize("n", [1, 5, 48, 200, 2000])
def test_wilson_intervals_at_zero_and_one_are_exact(n):
    assert wilson_interval(n, n)[1] == 1.0
    assert wilson_interval(0, n)[0] == 0.0
    with pytest.raises(ValueError, match="at least one trial"):
        wilson_interval(0, 0)


def brute_p(one, other):
    """Return the p-value from all ways to divide the pooled values."""
    pooled = [math.inf if value is None else value for value in (*one, *other)]
    ranks = [
        sum(other < value for other in pooled) + (sum(other == value for other in pooled) + 1) / 2
        for value in pooled
    ]
    mean = len(one) * (len(pooled) + 1) / 2
    sums = [abs(sum(chosen) - mean) for chosen in itertools.combinations(ranks, len(one))]
    return sum(value >= abs(sum(ranks[: len(one)]) - mean) - 1e-9 for value in sums) / len(sums)


values = st.lists(st.one_of(st.integers(1, 6), st.none()), min_size=1, max_size=5)


@given(values, values)
def test_the_rank_test_counts_orders_ties_and_censored_runs(one, other):
    assert rank_test(one, other) == pytest.approx(brute_p(one, other))
    assert rank_test(one, other) == pytest.approx(rank_test(other, one))
    assert 0 < rank_test(one, other) <= 1


@pytest.mark.parametrize("n_values", [4, 1000])
def test_the_rank_test_of_many_values_is_about_the_exact_one(monkeypatch, n_values):
    generator = np.random.default_rng(0)
    for shift in (0, 0.2, 0.4, 0.6):
        one, other = generator.integers(0, n_values, (2, 21)).tolist()
        one = [value + round(n_values * shift) for value in one]
        approximate = rank_test(one, other)
        monkeypatch.setattr(stats, "MAX_EXACT", 42)
        assert approximate == pytest.approx(rank_test(one, other), abs=0.03)
        monkeypatch.undo()
    assert rank_test([1] * 30, [1] * 30) == 1
    assert 0 <= rank_test(range(5000), range(9000, 14000)) < 1e-300


def test_the_rank_test_agrees_with_published_values():
    # Hollander and Wolfe 1973, p. 69: membrane permeability
    one = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
    other = [1.15, 0.88, 0.90, 0.74, 1.21]
    assert rank_test(one, other) == pytest.approx(2 * 0.1272, abs=1e-4)
    assert rank_test([1, 2, 3], [4, 5, 6]) == min_p_value(3, 3) == 0.1
    assert rank_test([1], [2]) == min_p_value(1, 1) == 1.0
    assert rank_test([10, 20, 30], [None] * 4) == 1 / 35 < min_p_value(3, 4)  # one side only
    with pytest.raises(ValueError, match="empty"):
        rank_test([], [1])


def test_a_share_is_rounded_down():
    for share, floor in {0.999: 0.99, 0.29: 0.29, 0.57: 0.57, 1.0: 1.0, 0.004: 0.0}.items():
        assert floor_to(share, 2) == floor
