import pytest
import torch

from playground.checkpoints.checkpoint import resume_trainer, save_checkpoint
from playground.common import devices
from playground.common.devices import usable_cores
from playground.training import thread_tuning
from playground.training.config import RunConfig
from playground.training.setting_changes import SettingChange
from playground.training.thread_tuning import (
    ThreadTuner,
    benchmark_thread_counts,
    candidate_thread_counts,
)
from playground.training.trainer import Trainer
from tests.support.trainer_fingerprint import fingerprint

SMALL = {
    "d_model": 16,
    "n_heads": 2,
    "d_ff": 32,
    "batch_size": 16,
    "max_steps": 12,
    "eval_every": 50,
    "eval_size": 20,
    "dropout": 0.1,
    "num_threads": 0,
}


@pytest.fixture
def trainer():
    return Trainer(RunConfig.from_flat(SMALL))


@pytest.fixture
def tries(monkeypatch):
    """Return the measured times of each thread count, and those that were tried."""
    monkeypatch.setattr(thread_tuning, "FIRST_TUNING_STEP", 2)
    monkeypatch.setattr(thread_tuning, "FORCED_THREADS", 0)
    monkeypatch.setattr(thread_tuning, "candidate_thread_counts", lambda: [1, 2, 4])
    actual, tried = {1: 3.0, 2: 2.0, 4: 2.5}, []
    monkeypatch.setattr(
        thread_tuning,
        "benchmark_thread_counts",
        lambda trainer, numbers: tried.append(numbers) or {n: actual[n] for n in numbers},
    )
    yield actual, tried
    torch.set_num_threads(1)


def steps(trainer, count):
    for _ in range(count):
        trainer.train_step()
    return trainer


def test_the_fastest_number_of_threads_is_chosen_as_a_change(trainer, tries):
    choice = ThreadTuner(trainer)
    assert not choice.maybe_tune()  # before the first updates
    steps(trainer, 2)
    assert choice.maybe_tune()
    assert trainer.changes == [SettingChange(2, "num_threads", 2)]
    trainer.train_step()
    assert torch.get_num_threads() == trainer.threads == 2
    assert not choice.maybe_tune()  # it was tried a moment ago
    assert tries[1] == [[1, 2, 4]]


def test_tuning_leaves_space_for_changes_of_the_owner(trainer, tries):
    trainer.changes = [SettingChange(0, "learning_rate", 0.01)] * 900
    assert not ThreadTuner(steps(trainer, 2)).maybe_tune()
    assert len(trainer.changes) == 900
    trainer.changes.pop()
    assert ThreadTuner(trainer).maybe_tune()


def test_tuning_repeats_after_a_possible_change_of_load(trainer, tries):
    choice = ThreadTuner(steps(trainer, 2))
    assert choice.maybe_tune()
    trainer.train_step()
    tries[0].update({1: 1.0})
    choice.next_tuning_at = 0.0
    assert choice.maybe_tune()
    assert trainer.changes == [
        SettingChange(2, "num_threads", 2),
        SettingChange(3, "num_threads", 1),
    ]


@pytest.mark.parametrize(("later", "stored"), [(0.05, True), (0.095, False), (0.2, False)])
def test_a_number_of_threads_without_benefit_is_reverted(
    trainer, tries, monkeypatch, later, stored
):
    """A trainer whose steps take a tenth of a second, and later the time of `later`; steps with an
    evaluation take a second.
    """
    monkeypatch.setattr(thread_tuning, "FIRST_TUNING_STEP", thread_tuning.CONTEXT_LENGTH)
    choice, changed = ThreadTuner(trainer), []
    for step in range(1, 2 * thread_tuning.CONTEXT_LENGTH + 5):
        trainer.step_count = step
        trainer.seconds += (
            1.0 if step % 7 == 0 else 0.1 if step <= thread_tuning.CONTEXT_LENGTH else later
        )
        monkeypatch.setattr(trainer, "should_continue", lambda: True)
        if choice.maybe_tune():
            changed.append((step, trainer.changes[-1].value))
    tried_at = thread_tuning.CONTEXT_LENGTH
    assert changed == ([(tried_at, 2)] if stored else [(tried_at, 2), (2 * tried_at, 1)])
    assert choice.backoff == (1.0 if stored else 2.0)


def test_a_small_speedup_does_not_change_the_threads(trainer, tries):
    tries[0].update({1: 2.1})
    assert not ThreadTuner(steps(trainer, 2)).maybe_tune()
    assert trainer.changes == []


def test_a_number_that_was_set_stays(tries):
    trainer = steps(Trainer(RunConfig.from_flat(SMALL | {"num_threads": 1})), 2)
    assert not ThreadTuner(trainer).maybe_tune()
    assert tries[1] == []


def test_a_server_may_set_the_number_of_threads(trainer, tries, monkeypatch):
    monkeypatch.setattr(thread_tuning, "FORCED_THREADS", 2)
    assert ThreadTuner(steps(trainer, 2)).maybe_tune()
    assert (trainer.changes, tries[1]) == ([SettingChange(2, "num_threads", 2)], [])


def test_tuning_tries_at_most_the_number_of_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(6)), raising=False)
    assert candidate_thread_counts() == [1, 2, 4, 6]


def test_trying_changes_nothing_of_the_run(trainer):
    steps(trainer, 3)
    before = fingerprint(trainer)
    used = benchmark_thread_counts(trainer, [1, 2])
    assert fingerprint(trainer) == before
    assert torch.get_num_threads() == trainer.threads == 1
    assert all(seconds > 0 for seconds in used.values())
    after = fingerprint(steps(trainer, 3))
    assert fingerprint(steps(Trainer(RunConfig.from_flat(SMALL)), 6)) == after


def test_a_resumed_run_keeps_its_number_of_threads(trainer, tries, tmp_path):
    assert ThreadTuner(steps(trainer, 2)).maybe_tune()
    steps(trainer, 2)
    save_checkpoint(tmp_path / "saved", trainer, [], None)
    expected = fingerprint(steps(trainer, 3))
    torch.set_num_threads(1)
    resumed, _ = resume_trainer(tmp_path / "saved")
    assert fingerprint(steps(resumed, 3)) == expected
    assert torch.get_num_threads() == 2
    inspected, _ = resume_trainer(tmp_path / "saved", num_threads=1)
    assert inspected.threads == 1


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "9900000 100000"}, 64),
        ({"cpu.max": "garbage"}, 64),
        ({"cpu.max": "100000 0"}, 64),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else " ".join(value.values()),
)
def test_no_more_threads_are_tried_than_the_container_has_cores(
    monkeypatch, tmp_path, files, cores
):
    (tmp_path / "cpu").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(f"{content}\n")
    monkeypatch.setattr(devices, "CGROUP", tmp_path, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert max(candidate_thread_counts()) == usable_cores() == cores


def test_only_as_many_are_tried_as_the_run_may_take(trainer, tries):
    _, tried = tries
    trainer.max_threads = 2
    choice = ThreadTuner(trainer)
    while trainer.should_continue():
        trainer.train_step()
        choice.maybe_tune()
    assert set(map(tuple, tried)) == {(1, 2)}
