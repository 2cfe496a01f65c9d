import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.training.step import learning_rate_at
from playground.training.train_config import TrainConfig


def rates(steps, d_model=64, **settings):
    config = TrainConfig(**settings)
    return [learning_rate_at(config, d_model, step) for step in steps]


@pytest.mark.parametrize(
    ("d_model", "warmup_steps", "factor"), [(512, 4000, 1.0), (64, 100, 2.0), (32, 1, 0.5)]
)
def test_noam_peaks_at_the_end_of_its_warmup(d_model, warmup_steps, factor):
    settings = {"lr_schedule": "noam", "learning_rate": factor, "warmup_steps": warmup_steps}
    peak = factor * d_model**-0.5 * warmup_steps**-0.5
    assert rates([warmup_steps], d_model, **settings) == [pytest.approx(peak)]
    others = [*range(1, warmup_steps), *range(warmup_steps + 1, warmup_steps + 200)]
    assert max(rates(others, d_model, **settings)) < peak


def test_noam_rises_linearly_and_falls_with_the_root_of_the_step():
    settings = {"lr_schedule": "noam", "learning_rate": 1.0, "warmup_steps": 100}
    peak = rates([100], **settings)[0]
    assert rates([1, 50, 400, 10_000], **settings) == pytest.approx(
        [peak / 100, peak / 2, peak / 2, peak / 10]
    )


def test_the_papers_base_model_peaks_at_seven_ten_thousandths():
    assert rates([4000], 512, lr_schedule="noam", learning_rate=1.0, warmup_steps=4000) == [
        pytest.approx(6.99e-4, rel=1e-3)
    ]


@pytest.mark.parametrize("schedule", ["constant", "cosine", "noam"])
def test_no_warmup_is_no_division_by_zero(schedule):
    settings = {"warmup_steps": 0, "learning_rate": 1.0, "lr_decay_steps": 1000}
    (rate,) = rates([1], lr_schedule=schedule, **settings)
    assert rate == pytest.approx(0.125 if schedule == "noam" else 1.0, rel=1e-4)


def test_constant_rises_linearly_and_stays():
    settings = {"lr_schedule": "constant", "learning_rate": 0.2, "warmup_steps": 10}
    expected = [0.02, 0.1, 0.2, 0.2, 0.2]
    assert rates([1, 5, 10, 11, 10_000], **settings) == pytest.approx(expected)


def test_cosine_decays_to_the_minimum_learning_rate_and_stays_there():
    settings = {"lr_schedule": "cosine", "learning_rate": 0.2, "warmup_steps": 0}
    settings |= {"lr_decay_steps": 100, "min_lr_ratio": 0.1}
    halfway, quarter = 0.2 * 0.55, 0.2 * (0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2)
    assert rates([25, 50, 100, 101, 5000], **settings) == pytest.approx(
        [quarter, halfway, 0.02, 0.02, 0.02]
    )
    falling = rates(range(1, 101), **settings)
    assert falling == sorted(falling, reverse=True)


SCHEDULES = st.sampled_from(["constant", "cosine"])


@given(SCHEDULES, st.integers(0, 300), st.integers(1, 300), st.floats(0, 1))
def test_every_schedule_with_a_warmup_reaches_its_rate(schedule, warmup, decay_end, ratio):
    settings = {"lr_schedule": schedule, "learning_rate": 0.2, "warmup_steps": warmup}
    settings |= {"lr_decay_steps": decay_end, "min_lr_ratio": ratio}
    rate_by_step = rates(range(1, 400), **settings)
    rising, after = rate_by_step[:warmup], rate_by_step[warmup:]
    assert rising == pytest.approx([0.2 * step / warmup for step in range(1, warmup + 1)])
    assert after == sorted(after, reverse=True)
    if warmup:
        assert max(rate_by_step) == pytest.approx(0.2)
    if schedule == "cosine":
        end = [0.2 * ratio] * (400 - max(decay_end, warmup + 1))
        assert rate_by_step[max(decay_end, warmup + 1) - 1 :] == pytest.approx(end)
