"""Settings that change during training: accepted changes, and their first update."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.models.config_fields import ConfigError
from playground.training.setting_changes import MUTABLE_SETTINGS, SettingChange, config_at_step
from playground.training.train_config import TrainConfig
from playground.training.trainer import Trainer
from tests.support.trainer_fingerprint import fingerprint

VALUES = {
    "learning_rate": st.floats(1e-9, 100),
    "max_steps": st.integers(1, 1_000_000),
    "stop_at_exact_match": st.floats(0, 1),
    "speed": st.floats(0, 1000),
}
CHANGES = st.one_of(
    st.builds(SettingChange, st.integers(0, 300), st.just(name), values)
    for name, values in VALUES.items()
)


@pytest.fixture(scope="module")
def tiny(small_run):
    return small_run.replace(
        max_steps=12, d_model=8, d_ff=8, batch_size=8, warmup_steps=0, eval_size=32
    )


def parse(*changes):
    return SettingChange.parse([list(change) for change in changes])


def rates(trainer):
    return [metrics.learning_rate for metrics in trainer]


# One change


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("learning_rate", float("nan")),
        ("max_steps", 1_000_001),
        ("speed", "fast"),
        pytest.param("speed", 10**5000, id="endless"),
    ],
)
def test_invalid_setting_change_is_rejected_by_setting_name(setting, value):
    with pytest.raises(ConfigError, match=f"^{setting} is ") as caught:
        SettingChange(5, setting, value)
    assert caught.value.field == setting
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("setting", ["seed", None, ["max_steps"], "x" * 10_000])
def test_other_settings_cannot_change_and_the_error_names_those_that_can(setting):
    message = "cannot change during a run; these can: learning_rate, max_steps, "
    with pytest.raises(ConfigError, match=message) as caught:
        SettingChange(5, setting, 1)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("step", [-1, True, 2**31])
def test_a_change_needs_a_whole_step(step):
    with pytest.raises(ConfigError, match="it must be a whole number from 0") as caught:
        SettingChange(step, "speed", 1)
    assert caught.value.field == "step"


def test_a_whole_rate_is_the_same_change_as_one_with_a_point():
    assert SettingChange(3, "learning_rate", 1) == SettingChange(3, "learning_rate", 1.0)
    assert type(SettingChange(3, "learning_rate", 1).value) is float
    assert type(SettingChange(3, "speed", 2).value) is float
    assert type(SettingChange(3, "max_steps", 2).value) is int


@given(st.lists(CHANGES, max_size=5))
def test_changes_survive_a_round_trip(changes):
    # the last of one step is the one that holds
    in_order = sorted(changes, key=lambda change: change.step)
    assert SettingChange.parse([change.to_list() for change in changes]) == in_order


@pytest.mark.parametrize(
    "lines",
    [{"max_steps": 3}, ["abc"], [[1, "max_steps"]], [[1, [], 2]], [[1, "max_steps", 5], [2]]],
)
def test_an_invalid_list_of_changes_is_rejected(lines):
    with pytest.raises(ValueError, match=r"changes are|cannot change|it must be"):
        SettingChange.parse(lines)


# What is in force


@given(
    st.lists(CHANGES, max_size=8).map(lambda changes: sorted(changes, key=lambda c: c.step)),
    st.integers(0, 300),
)
def test_a_change_is_in_force_from_its_step_on(changes, step):
    training = TrainConfig()
    expected = {name: getattr(training, name) for name in MUTABLE_SETTINGS if name != "speed"}
    for change in changes:
        if change.step <= step and change.setting != "speed":
            expected[change.setting] = change.value
    at_step = config_at_step(training, changes, step)
    assert at_step == TrainConfig(**expected)
    assert config_at_step(training, iter(changes), step) == at_step


# In a trainer


def test_a_scheduled_rate_is_that_of_the_update_after_its_step(tiny):
    changes = [(0, "learning_rate", 0.01), (4, "learning_rate", 0.02), (4, "speed", 5.0)]
    assert rates(Trainer(tiny, parse(*changes))) == [0.01] * 4 + [0.02] * 8


def test_the_schedule_starts_from_a_changed_learning_rate(tiny):
    run = tiny.replace(lr_schedule="cosine", lr_decay_steps=12, warmup_steps=4)
    plain = rates(Trainer(run))
    changed = rates(Trainer(run, [SettingChange(6, "learning_rate", 12e-3)]))
    assert changed == pytest.approx(plain[:6] + [2 * rate for rate in plain[6:]])


def test_a_run_may_be_made_longer_or_shorter_on_the_way(tiny):
    trainer = Trainer(tiny)
    trainer.train_step()
    trainer.schedule_change("max_steps", 15)
    assert [metrics.step for metrics in trainer] == list(range(2, 16))
    trainer.schedule_change("max_steps", 17)
    assert [metrics.step for metrics in trainer] == [16, 17]
    short = list(Trainer(tiny.replace(eval_every=1000), [SettingChange(3, "max_steps", 5)]))
    assert [metrics.step for metrics in short] == [1, 2, 3, 4, 5]
    assert [metrics.step for metrics in short if metrics.eval_size] == [5]


def test_live_change_cancels_later_changes_of_that_setting_only(tiny):
    changes = [(2, "learning_rate", 0.01), (9, "learning_rate", 0.5), (10, "max_steps", 11)]
    trainer = Trainer(tiny, parse(*changes))
    seen = [trainer.train_step().learning_rate for _ in range(4)]
    trainer.schedule_change("learning_rate", 0.02)
    assert seen + rates(trainer) == [6e-3] * 2 + [0.01] * 2 + [0.02] * 7
    assert trainer.changes == parse(changes[0], (4, "learning_rate", 0.02), changes[2])


def test_a_rejected_change_has_no_effect(tiny):
    trainer = Trainer(tiny, [SettingChange(5, "learning_rate", 0.01)])
    with pytest.raises(ConfigError):
        trainer.schedule_change("learning_rate", -1)
    with pytest.raises(ConfigError):
        trainer.schedule_change("batch_size", 4)
    assert trainer.changes == [SettingChange(5, "learning_rate", 0.01)]
    assert trainer.active_config == tiny.training


def test_a_run_takes_no_more_changes_than_a_checkpoint_can_hold(tiny):
    trainer = Trainer(tiny, [SettingChange(0, "learning_rate", 0.01)] * 1000)
    with pytest.raises(ConfigError, match="1,000 changes"):
        trainer.schedule_change("learning_rate", 0.02)
    assert len(trainer.changes) == 1000


def test_speed_is_no_setting_of_the_training_and_leaves_no_bit_otherwise(tiny):
    slow, fast = Trainer(tiny, parse((0, "speed", 3.0), (4, "speed", 0.0))), Trainer(tiny)
    assert rates(slow) == rates(fast)
    assert fingerprint(slow) == fingerprint(fast)


def test_live_and_scheduled_change_give_identical_weights(tiny):
    run = tiny.replace(dropout=0.1)
    live = Trainer(run)
    for _ in range(5):
        live.train_step()
    live.schedule_change("learning_rate", 0.02)
    list(live)
    ends = []
    for changes in (parse((5, "learning_rate", 0.02)), parse((6, "learning_rate", 0.02)), []):
        trainer = Trainer(run, changes)  # one after the other: they share torch's generator
        list(trainer)
        ends.append(fingerprint(trainer))
    assert fingerprint(live) == ends[0]
    assert len(set(ends)) == 3


def test_the_config_of_a_trainer_does_not_change(tiny):
    trainer = Trainer(tiny, [SettingChange(1, "learning_rate", 0.5)])
    trainer.train_step()
    trainer.schedule_change("max_steps", 3)
    list(trainer)
    assert trainer.config == tiny
