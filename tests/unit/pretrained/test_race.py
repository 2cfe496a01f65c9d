"""A race: each lane learns what it learns alone, in turns of equal CPU time."""

import pytest
import torch

from playground.architectures.parameter_groups import parameter_count
from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.models.config_fields import ConfigError
from playground.pretrained import race
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.small_runs import tiny_config


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch):
    monkeypatch.setattr(race, "TURN_S", 0.02)
    monkeypatch.setattr(race, "LIMIT_S", 0.2)


def run_race(checkpoint, **request):
    sent = []
    reporter = ProgressReporter(lambda kind, *content: sent.append((kind, *content)))
    race.race({"checkpoint": str(checkpoint), "seed": 3, **request}, reporter)
    (described,) = [content for kind, content, *_ in sent if kind == "partial"]
    return described, [content for kind, content, *_ in sent if kind == "row"]


def test_lanes_have_one_task_and_one_size_and_equal_time(trained_checkpoint):
    described, rows = run_race(trained_checkpoint, lanes=["transformer", "one-head"])
    sizes = {each["parameters"] for each in described["lanes"]}
    assert len(sizes) == 1
    assert [row["lane"] for row in rows[:4]] == [0, 1, 0, 1]
    for turn, row in enumerate(rows, 2):
        assert row["seconds"] >= turn // 2 * 0.02 - 0.01 or row["has_reached"]
    assert described["target"] == described["source"][::-1]
    assert all(isinstance(row["output"], list) for row in rows)


def test_a_lane_learns_what_it_learns_alone():
    config = tiny_config(dropout=0.1, max_steps=12)
    other = race.Lane(config.replace(seed=9))
    lane = race.Lane(config)
    while lane.is_racing:
        lane.train_until(lane.seconds + 1e-9)  # one update a turn
        other.train_until(other.seconds + 1e-9)
    alone = Trainer(config)
    for _ in range(lane.trainer.step_count):
        alone.train_step()
    weights, expected = lane.trainer.model.state_dict(), alone.model.state_dict()
    assert lane.trainer.step_count > 1
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_every_architecture_has_a_lane_of_the_same_size():
    config = RunConfig()
    for name in race.LANES:
        lane = race.lane_config(config, name, 5)
        assert lane.task == config.task
        assert lane.training.seed == 5
        assert parameter_count(lane.model) == pytest.approx(parameter_count(config.model), rel=0.05)


def test_an_invalid_lane_is_named(trained_checkpoint):
    for lanes in (["transformer"], ["transformer", "mamba"], "transformer", [1, 2], None):
        with pytest.raises(UserError, match="lane"):
            run_race(trained_checkpoint, lanes=lanes)
    recurrent = race.lane_config(RunConfig(), "recurrent", 0)
    with pytest.raises(ConfigError, match="n_heads"):
        race.lane_config(recurrent, race.ONE_HEAD, 0)
