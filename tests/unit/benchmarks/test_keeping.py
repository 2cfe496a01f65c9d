"""Results files: their origin, and the state after an interruption."""

import json
import subprocess

import pytest

from benchmarks import __main__ as command
from benchmarks import _results, accuracy, tasks
from tests.support.app_server import ROOT

SETTING = accuracy.Setting("tried", 4, None, "fast", {})


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(_results, "RESULTS_DIR", tmp_path)
    monkeypatch.setattr(command, "BENCHMARKS_DIR", tmp_path)
    return tmp_path


class FakeTrainer:
    """A trainer that reaches the goal with even seeds and is interrupted at one seed."""

    trained, interrupted = [], None

    def __init__(self, config):
        self.seed = config.training.seed
        self.step_count, self.seconds = 10 + self.seed % accuracy.FIRST_SEED, 1.0

    def __iter__(self):
        if self.seed == self.interrupted:
            raise KeyboardInterrupt
        self.trained.append(self.seed)
        return iter(())

    def evaluate(self):
        return type("Scores", (), {"exact_match": 0.5 if self.seed % 2 else 1.0, "n": 40})


@pytest.fixture
def fake(monkeypatch):
    trainer = type("Fake", (FakeTrainer,), {"trained": []})
    for module in (accuracy, tasks):
        monkeypatch.setattr(module, "Trainer", trainer)
    return trainer


def row(**changes):
    plan = {"setting": "one head", "seeds": 5, "reached": 4, "promised": None}
    plan |= {"steps": [450, 460, 490, 550], "seconds": [1.0] * 4, "lowest_score": 0.998}
    return plan | changes


@pytest.mark.parametrize(
    ("steps", "seeds", "rendered"),
    [
        ([450, 460, 490, 550], 5, "| 490 (550 and more) |"),
        ([150, 160], 3, "| 160 (160 and more) |"),
        ([], 3, "| not reached |"),
    ],
)
def test_seeds_that_never_reach_the_goal_count_in_the_median(steps, seeds, rendered):
    seconds = [1.0] * len(steps)
    measured = row(steps=steps, seeds=seeds, reached=len(steps), seconds=seconds)
    assert rendered in accuracy.table([measured])


def test_every_table_names_the_commit_it_was_measured_at(elsewhere):
    _results.save_results("accuracy", [row()])
    stored = json.loads((elsewhere / "accuracy.json").read_text())
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    ).stdout.strip()
    if not head:
        assert (stored["commit"], stored["clean"]) == (None, None)
        return
    assert head.startswith(stored["commit"])
    assert isinstance(stored["clean"], bool)
    command.write_results()
    results = (elsewhere / "RESULTS.md").read_text()
    assert f"at commit {stored['commit']}" in results
    assert ("with uncommitted changes" in results) == (not stored["clean"])


@pytest.mark.parametrize("is_other_commit", [False, True])
def test_an_interrupted_measurement_continues_or_restarts(fake, monkeypatch, is_other_commit):
    fake.interrupted = 102
    with pytest.raises(KeyboardInterrupt):
        accuracy.measure((SETTING,))
    fake.interrupted = None
    if is_other_commit:
        monkeypatch.setattr(_results, "COMMIT_AT_START", {"commit": "another", "clean": True})
    (row,) = accuracy.measure((SETTING,))
    assert fake.trained == [100, 101, *([100, 101] if is_other_commit else []), 102, 103]
    assert (row["steps"], row["reached"], row["lowest_score"]) == ([10, 12], 2, 0.5)


def test_a_task_measured_alone_replaces_its_row_with_its_date(fake, elsewhere):
    copy, brackets = (tasks.measure_task(name, seeds=1) for name in ("copy", "brackets"))
    _results.save_results("tasks", [copy, brackets | {"scores": [0.1]}])
    _results.replace_row("tasks", "task", brackets)
    actual = _results.load_results("tasks")["rows"]
    rows = [(each["task"], each["scores"], each["lengths"]) for each in actual]
    assert rows == [("copy", [1.0], [1, 10]), ("brackets", [1.0], [1, 16])]
    assert "Measured again alone: brackets on" in tasks.table(actual)
    with pytest.raises(ValueError, match="tasks has no row sort"):
        _results.replace_row("tasks", "task", {"task": "sort"})
