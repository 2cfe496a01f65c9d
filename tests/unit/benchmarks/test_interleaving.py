import gc

import pytest

from benchmarks._timing import MIN_ROUNDS, format_interval, interval, rounds, speedup

pytestmark = pytest.mark.usefixtures("frozen_heap")  # every round collects garbage


def test_everybody_has_as_many_turns_in_an_order_that_turns_round():
    calls = []
    took = rounds(
        {name: lambda name=name: calls.append(name) for name in "abc"}, seconds=0, calls=2
    )
    assert {name: len(each) for name, each in took.items()} == dict.fromkeys("abc", MIN_ROUNDS)
    assert "".join(calls[:18]) == "aaabbbccc" + "cccbbbaaa"
    assert gc.isenabled()


def test_a_call_that_fails_leaves_the_garbage_collector_on():
    with pytest.raises(ZeroDivisionError):
        rounds({"a": lambda: 1 / 0}, seconds=0)
    assert gc.isenabled()


def test_a_ratio_is_that_of_the_same_round():
    """A busy machine slows three rounds tenfold, which changes no ratio."""
    own_times, reference_times = [1.0, 1.0, 10.0, 10.0, 10.0], [2.0, 2.0, 20.0, 20.0, 20.0]
    assert speedup(own_times, reference_times) == {"median": 2.0, "low": 2.0, "high": 2.0}


def test_the_interval_holds_the_median_and_narrows_with_more_rounds():
    few, many = interval([1.0, 2.0, 3.0, 4.0, 5.0]), interval([1.0, 2.0, 3.0, 4.0, 5.0] * 40)
    assert few["low"] < few["median"] == 3 < few["high"]
    assert many["high"] - many["low"] < few["high"] - few["low"]
    assert format_interval(few) == f"3.00 ({few['low']:.2f} to {few['high']:.2f})"
