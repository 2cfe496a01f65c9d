import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.statistics import apart, by_chance, censored, floored, percent, quantile, spread, wilson


def test_wilson_agrees_with_published_values():
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1), abs=1e-4)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12), st.sampled_from([0, 0.25, 0.5, 0.75, 1]))
def test_quantiles_are_those_of_numpy(values, share):
    assert quantile(values, share) == pytest.approx(np.quantile(values, share), abs=1e-6)


def test_of_nothing_there_is_no_spread():
    assert spread([]) is None
    assert censored([]) is None
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_what_was_not_over_is_longer_than_everything_that_was():
    told = censored([120, None, 80])
    assert (told["n"], told["reached"], told["low"], told["median"], told["high"]) == (3, 2, 80, 120, None)
    assert censored([120, None, None])["median"] is None
    assert censored([120, None])["median"] is None  # the middle of a number and of what is beyond every number
    assert censored([None, None]) == {"n": 2, "median": None, "low": None, "high": None, "q1": None, "q3": None, "reached": 0}


def test_ranges_are_apart_only_where_they_do_not_touch():
    def of(*values):
        return censored(values)

    assert apart(of(1, 2), of(3, 4))
    assert apart(of(3, 4), of(1, 2))
    assert not apart(of(1, 3), of(3, 4))
    assert apart(of(1, 2), of(None, None))
    assert not apart(of(1, None), of(None, None))  # both reach beyond what was watched


def test_how_often_chance_alone_takes_ranges_apart():
    generator = np.random.default_rng(0)
    drawn = generator.random((20_000, 6))
    one, two = drawn[:, :3], drawn[:, 3:]
    seen = np.mean((one.max(1) < two.min(1)) | (two.max(1) < one.min(1)))
    assert by_chance(3, 3) == 2 / math.comb(6, 3) == pytest.approx(seen, abs=0.01)


@pytest.mark.parametrize(
    ("share", "said"),
    [(1, "100 %"), (1 - 1e-12, "100 %"), (0.99996, "99.9 %"), (0.29, "29.0 %"), (0.001, "0.1 %"), (0.0009, "< 0.1 %"), (0, "0 %")],
)
def test_a_share_that_falls_short_of_all_is_not_called_all(share, said):
    assert percent(share) == said


def test_a_share_is_rounded_down():
    assert [floored(share, 2) for share in (0.999, 0.29, 0.57, 1.0, 0.004)] == [0.99, 0.29, 0.57, 1.0, 0.0]
