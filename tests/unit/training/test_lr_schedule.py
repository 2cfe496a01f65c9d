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
    ("d_model", "warmup_steps", "factor", "peak"),
    [(512, 4000, 1.0, 6.99e-4), (64, 100, 2.0, 0.025), (32, 1, 0.5, 0.0884)],
    ids=["the paper's base model", "usual", "one step"],
)
def test_noam_peaks_at_the_end_of_its_warmup(d_model, warmup_steps, factor, peak):
    settings = {"lr_schedule": "noam", "learning_rate": factor, "warmup_steps": warmup_steps}
    assert rates([warmup_steps], d_model, **settings) == [pytest.approx(peak, rel=1e-3)]
    others = [*range(1, warmup_steps), *range(warmup_steps + 1, warmup_steps + 200)]
    assert max(rates(others, d_model, **settings)) < rates([warmup_steps], d_model, **settings)[0]


def test_noam_rises_linearly_and_falls_with_the_root_of_the_step():
    settings = {"lr_schedule": "noam", "learning_rate": 1.0, "warmup_steps": 100}
    peak = rates([100], **settings)[0]
    assert rates([1, 50, 400, 10_000], **settings) == pytest.approx(
        [peak / 100, peak / 2, peak / 2, peak / 10]
    )


@pytest.mark.parametrize("schedule", ["constant", "cosine", "noam"])
def test_no_warmup_is_no_division_by_zero(schedule):
    settings = {"warmup_steps": 0, "learning_rate": 1.0, "lr_decay_steps": 1000}
    (rate,) = rates([1], lr_schedule=schedule, **settings)
    assert rate == pytest.approx(0.125 if schedule == "noam" else 1.0, rel=1e-4)


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
    if schedule == "constant":
        assert after == [0.2] * len(after)
    else:
        end = [0.2 * ratio] * (400 - max(decay_end, warmup + 1))
        assert rate_by_step[max(decay_end, warmup + 1) - 1 :] == pytest.approx(end)
