"""The metrics of a run for the page: deltas, and curves that fit a screen."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.runs.metric_series import (
    MAX_DELTA_POINTS,
    METRIC_COLUMNS,
    PLOTTED_COLUMNS,
    MetricSeries,
    downsample_evaluations,
    thin_scores,
)


def line(step, **more):
    return {
        "step": step,
        "loss": 1 / step,
        "learning_rate": step / 7,
        "grad_norm": step + 0.5,
        "seconds": step / 10,
        "steps_per_second": 10.0,
        "tokens_per_second": 9.0,
    } | more


def up_to(last, first=1, score_every=0):
    scores = {"exact_match": 0.25, "token_accuracy": 0.5, "eval_size": 64}
    return MetricSeries(
        line(step, **(scores if score_every and step % score_every == 0 else {}))
        for step in range(first, last + 1)
    )


def noisy(last, seed=0):
    rng = random.Random(seed)
    return MetricSeries(
        line(step, loss=rng.random(), exact_match=rng.random(), eval_size=64)
        for step in range(1, last + 1)
    )


class Page:
    """Apply a response as a page does."""

    def __init__(self):
        self.known, self.points, self.scored = 0, {}, []

    def take(self, result):
        assert len({len(result[name]) for name in ("steps", *PLOTTED_COLUMNS)}) == 1
        if result["whole"]:
            self.points, self.scored = {}, []
        assert not set(result["steps"]) & set(self.points)
        assert result["steps"] == sorted(set(result["steps"]))
        assert min(result["steps"], default=10**9) > max(self.points, default=0)
        self.points |= {
            step: values
            for step, *values in zip(
                result["steps"], *(result[name] for name in PLOTTED_COLUMNS), strict=True
            )
        }
        self.scored += result["evaluations"]
        self.known = result["count"]


# Stored points


def test_points_equal_the_measurements():
    points = MetricSeries(
        [line(1), line(2, exact_match=0.5, token_accuracy=0.75, eval_size=64), line(3)]
    )
    assert (len(points), points.first, points.last, points.best) == (3, 1, 3, 0.5)
    empty = MetricSeries()
    assert (empty.last, empty.best, empty.latest()) == (0, None, {"step": 0})
    assert empty.delta_since(0)["steps"] == empty.downsampled(9)["evaluations"] == []
    assert {name: list(column) for name, column in points.columns.items()} == {
        name: [line(step)[name] for step in (1, 2, 3)] for name in METRIC_COLUMNS
    }
    assert points.evaluations == [(2, 0.5, 0.75, 64, None)]
    assert points.latest() == {"step": 3} | {name: line(3)[name] for name in METRIC_COLUMNS}


def test_held_out_loss_is_among_the_evaluations():
    scores = {"exact_match": 0.0, "token_accuracy": 0.5, "eval_size": 8}
    points = MetricSeries([line(1, **scores, held_out_loss=2.5), line(2), line(3, **scores)])
    assert points.delta_since(0)["evaluations"] == [(1, 0.0, 0.5, 8, 2.5), (3, 0.0, 0.5, 8, None)]
    with pytest.raises(ValueError, match="step 4 has invalid metrics"):
        points.add([line(4, **scores, held_out_loss=[])])


def test_points_can_start_at_any_step():
    points = up_to(12, first=10)
    assert (points.first, points.last, len(points)) == (10, 12, 3)
    assert points.delta_since(0)["steps"] == [10, 11, 12]
    assert points.delta_since(2)["steps"] == [12]
    assert up_to(1500, first=501).downsampled(10)["steps"][0] == 501


@pytest.mark.parametrize("step", [1, 3, 5])
def test_a_step_out_of_order_is_rejected_and_the_file_is_unchanged(step):
    points = up_to(3)
    with pytest.raises(ValueError, match=f"step {step} does not follow step 3"):
        points.add([line(step)])
    assert points.delta_since(0)["steps"] == [1, 2, 3]
    points.add([line(4)])
    assert points.last == 4


# What a page lacks


@given(st.lists(st.integers(0, 400), min_size=1, max_size=12))
def test_a_page_that_follows_has_every_point_once_and_in_order(portions):
    points, page, step = MetricSeries(), Page(), 0
    for portion in portions:
        points.add(
            line(each, exact_match=0.5, eval_size=1) for each in range(step + 1, step + portion + 1)
        )
        step += portion
        page.take(points.delta_since(page.known))
    assert list(page.points) == list(range(1, step + 1))
    assert all(
        values == [line(each)[name] for name in PLOTTED_COLUMNS]
        for each, values in page.points.items()
    )
    assert [each for each, *_ in page.scored] == list(range(1, step + 1))


def test_unchanged_data_is_not_sent_again():
    points = up_to(50, score_every=10)
    result = points.delta_since(20)
    assert (result["whole"], result["count"], result["steps"]) == (False, 50, list(range(21, 51)))
    assert [step for step, *_ in result["evaluations"]] == [30, 40, 50]
    nothing = points.delta_since(50)
    assert (nothing["whole"], nothing["count"], nothing["steps"], nothing["evaluations"]) == (
        False,
        50,
        [],
        [],
    )


def test_a_page_that_has_been_away_for_long_gets_the_whole_curve_decimated():
    points = noisy(10 * MAX_DELTA_POINTS)
    result = points.delta_since(3)
    assert result["whole"] is True
    assert result["count"] == len(points)
    assert MAX_DELTA_POINTS / 2 < len(result["steps"]) <= MAX_DELTA_POINTS + 2
    result = points.delta_since(len(points) - MAX_DELTA_POINTS)
    assert result["whole"] is False
    assert len(result["steps"]) == MAX_DELTA_POINTS


def test_an_answer_is_plain_json_and_small_after_a_hundred_thousand_steps():
    result = noisy(100_000).delta_since(0)
    text = json.dumps(result, allow_nan=False)
    assert len(result["steps"]) <= 3_002
    assert len(result["evaluations"]) <= 1_001
    assert len(text) < 400_000


# Curves


@given(st.integers(1, 5000), st.integers(1, 300), st.integers(0, 3))
def test_every_point_of_a_curve_is_a_measured_one(last, columns, seed):
    points = noisy(last, seed)
    result = points.downsampled(columns)
    assert result["steps"] == sorted(set(result["steps"]))
    for name in PLOTTED_COLUMNS:
        assert result[name] == [points.columns[name][step - 1] for step in result["steps"]]
    assert (result["steps"][0], result["steps"][-1]) == (1, last)
    assert len(result["steps"]) <= 2 * columns + 2
    assert result["count"] == last
    if last <= 2 * columns:
        assert result["steps"] == list(range(1, last + 1))


@given(st.integers(1, 3000), st.integers(1, 60), st.integers(0, 3), st.data())
def test_curve_keeps_extremes_of_any_interval_within_one_column(last, columns, seed, data):
    points = noisy(last, seed)
    loss, rendered = list(points.columns["loss"]), set(points.downsampled(columns)["steps"])
    low = data.draw(st.integers(1, last))
    high = data.draw(st.integers(low, last))
    close = -(-last // columns)
    drawn = [
        loss[step - 1]
        for step in range(max(1, low - close), min(last, high + close) + 1)
        if step in rendered
    ]
    assert min(drawn) <= min(loss[low - 1 : high])
    assert max(drawn) >= max(loss[low - 1 : high])
    assert {loss.index(min(loss)) + 1, loss.index(max(loss)) + 1} <= rendered


# Scores


@given(st.integers(0, 5000), st.integers(2, 200), st.integers(0, 3))
def test_downsampling_keeps_real_scores_extremes_and_the_last(count, most, seed):
    rng = random.Random(seed)
    scored = [(10 * at, rng.random(), rng.random(), 64, None) for at in range(1, count + 1)]
    stored = downsample_evaluations(scored, most)
    assert stored == sorted(set(stored))
    assert set(stored) <= set(scored)
    assert len(stored) <= most + 3
    if count <= most:
        assert stored == scored
    elif count:
        assert stored[-1] == scored[-1]
        assert {min(scored, key=lambda s: s[1]), max(scored, key=lambda s: s[1])} <= set(stored)


@given(st.integers(1, 3000))
def test_a_thinned_curve_keeps_the_first_and_the_last_score(count):
    curve: tuple[tuple[int, float], ...] = ()
    scores = [(10 * at, at / count) for at in range(1, count + 1)]
    for score in scores:
        curve = thin_scores([*curve, score])
    assert set(curve) <= set(scores)
    assert list(curve) == sorted(curve)
    assert (curve[0], curve[-1]) == (scores[0], scores[-1])
    assert min(count, 12) <= len(curve) <= 24
