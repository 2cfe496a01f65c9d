import pytest
import torch

from playground.runs.processes import usable_cores
from playground.training import devices, threads
from playground.training.checkpoint import load_trainer, save_checkpoint
from playground.training.config import Change, RunConfig
from playground.training.threads import ThreadChoice, numbers, time_of_steps
from playground.training.trainer import Trainer
from tests.support.fingerprint import fingerprint

SMALL = {
    "d_model": 16,
    "n_heads": 2,
    "d_ff": 32,
    "batch_size": 16,
    "steps": 12,
    "eval_every": 50,
    "eval_n": 20,
    "dropout": 0.1,
    "threads": 0,
}


@pytest.fixture
def trainer():
    return Trainer(RunConfig.from_fields(SMALL))


@pytest.fixture
def tries(monkeypatch):
    """What trying is to find, and what was tried; from the second step on."""
    monkeypatch.setattr(threads, "FIRST_AT", 2)
    monkeypatch.setattr(threads, "GIVEN", 0)
    monkeypatch.setattr(threads, "numbers", lambda: [1, 2, 4])
    found, tried = {1: 3.0, 2: 2.0, 4: 2.5}, []
    monkeypatch.setattr(threads, "time_of_steps", lambda trainer, numbers: tried.append(numbers) or {n: found[n] for n in numbers})
    yield found, tried
    torch.set_num_threads(1)


def steps(trainer, count):
    for _ in range(count):
        trainer.step()
    return trainer


def test_the_quickest_number_is_taken_and_is_a_change_of_the_run(trainer, tries):
    choice = ThreadChoice(trainer)
    assert not choice.look()  # before the first updates
    steps(trainer, 2)
    assert choice.look()
    assert trainer.changes == [Change(2, "threads", 2)]
    trainer.step()
    assert torch.get_num_threads() == trainer.threads == 2
    assert not choice.look()  # it was tried a moment ago
    assert tries[1] == [[1, 2, 4]]


def test_tuning_leaves_room_for_the_changes_of_the_owner(trainer, tries):
    trainer.changes = [Change(0, "learning_rate", 0.01)] * 900
    assert not ThreadChoice(steps(trainer, 2)).look()
    assert len(trainer.changes) == 900
    trainer.changes.pop()
    assert ThreadChoice(trainer).look()


def test_it_is_tried_again_when_others_may_have_come_or_gone(trainer, tries):
    choice = ThreadChoice(steps(trainer, 2))
    assert choice.look()
    trainer.step()
    tries[0].update({1: 1.0})
    choice.again_at = 0.0
    assert choice.look()
    assert trainer.changes == [Change(2, "threads", 2), Change(3, "threads", 1)]


@pytest.mark.parametrize(("later", "kept"), [(0.05, True), (0.095, False), (0.2, False)])
def test_a_number_that_does_not_make_the_run_quicker_is_taken_back(trainer, tries, monkeypatch, later, kept):
    """Whose steps took a tenth of a second, and then as long as `later` says, but for those that score: they take a second."""
    monkeypatch.setattr(threads, "FIRST_AT", threads.PACE)
    choice, changed = ThreadChoice(trainer), []
    for step in range(1, 2 * threads.PACE + 5):
        trainer.step_count = step
        trainer.seconds += 1.0 if step % 7 == 0 else 0.1 if step <= threads.PACE else later
        monkeypatch.setattr(trainer, "should_continue", lambda: True)
        if choice.look():
            changed.append((step, trainer.changes[-1].value))
    tried_at = threads.PACE
    assert changed == ([(tried_at, 2)] if kept else [(tried_at, 2), (2 * tried_at, 1)])
    assert choice.patience == (1.0 if kept else 2.0)


def test_what_is_hardly_quicker_is_not_worth_a_change(trainer, tries):
    tries[0].update({1: 2.1})
    assert not ThreadChoice(steps(trainer, 2)).look()
    assert trainer.changes == []


def test_a_number_that_was_set_stays(tries):
    trainer = steps(Trainer(RunConfig.from_fields(SMALL | {"threads": 1})), 2)
    assert not ThreadChoice(trainer).look()
    assert tries[1] == []


def test_a_server_may_say_the_number(trainer, tries, monkeypatch):
    monkeypatch.setattr(threads, "GIVEN", 2)
    assert ThreadChoice(steps(trainer, 2)).look()
    assert (trainer.changes, tries[1]) == ([Change(2, "threads", 2)], [])


def test_no_more_is_tried_than_there_are_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(6)), raising=False)
    assert numbers() == [1, 2, 4, 6]


def test_trying_changes_nothing_of_the_run(trainer):
    steps(trainer, 3)
    before = fingerprint(trainer)
    taken = time_of_steps(trainer, [1, 2])
    assert fingerprint(trainer) == before
    assert torch.get_num_threads() == trainer.threads == 1
    assert all(seconds > 0 for seconds in taken.values())
    after = fingerprint(steps(trainer, 3))
    assert fingerprint(steps(Trainer(RunConfig.from_fields(SMALL)), 6)) == after


def test_a_resumed_run_has_the_threads_it_had(trainer, tries, tmp_path):
    assert ThreadChoice(steps(trainer, 2)).look()
    steps(trainer, 2)
    save_checkpoint(tmp_path / "saved", trainer, [], None)
    expected = fingerprint(steps(trainer, 3))
    torch.set_num_threads(1)
    resumed, _ = load_trainer(tmp_path / "saved")
    assert fingerprint(steps(resumed, 3)) == expected
    assert torch.get_num_threads() == 2
    inspected, _ = load_trainer(tmp_path / "saved", threads=1)
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
def test_no_more_threads_are_tried_than_the_container_has_cores(monkeypatch, tmp_path, files, cores):
    (tmp_path / "cpu").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(f"{content}\n")
    monkeypatch.setattr(devices, "CGROUP", tmp_path, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert max(numbers()) == usable_cores() == cores


def test_only_as_many_are_tried_as_the_run_may_take(trainer, tries):
    _, tried = tries
    trainer.hold_to(2)
    choice = ThreadChoice(trainer)
    while trainer.should_continue():
        trainer.step()
        choice.look()
    assert set(map(tuple, tried)) == {(1, 2)}
