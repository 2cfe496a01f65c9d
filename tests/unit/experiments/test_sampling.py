import math

import pytest

from playground.experiments.spec import ExperimentSpec, parse_experiment
from playground.experiments.variant import Range, sample
from playground.models.config_fields import ConfigError

GRID = {"learning_rate": Range(low=1e-4, high=1e-2, scale="log"), "n_layers": [1, 2, 3, 4]}
SPEC = {
    "name": "speed",
    "grid": {"learning_rate": {"low": 1e-4, "high": 1e-2, "scale": "log"}, "n_layers": [1, 2]},
    "samples": 6,
    "seeds": [0, 1],
}


def sampled(sampling, n=64, grid=GRID):
    return sample(grid, n, sampling, whole={"n_layers"})


@pytest.mark.parametrize("sampling", ["random", "latin-hypercube"])
def test_samples_are_in_range_and_the_same_at_every_call(sampling):
    combinations = sampled(sampling)
    assert combinations == sampled(sampling)
    assert len(combinations) == 64
    assert all(1e-4 <= each["learning_rate"] <= 1e-2 for each in combinations)
    assert {each["n_layers"] for each in combinations} == {1, 2, 3, 4}


def test_a_latin_hypercube_has_one_value_in_each_stratum():
    grid = {"dropout": Range(low=0, high=1), "d_ff": Range(low=0, high=6400)}
    combinations = sample(grid, 64, "latin-hypercube", whole={"d_ff"})
    assert sorted(int(64 * each["dropout"]) for each in combinations) == list(range(64))
    assert all(type(each["d_ff"]) is int for each in combinations)
    uniform = [each["learning_rate"] for each in sampled("latin-hypercube")]
    assert sum(rate < 1e-3 for rate in uniform) == 32  # half of a log scale


def test_equal_combinations_occur_once():
    assert len(sample({"n_layers": [1, 2]}, 50, "random", set())) == 2


def test_an_experiment_trains_the_sampled_combinations():
    spec = ExperimentSpec(**SPEC)
    assert len(spec.variants) == 6
    assert spec.n_runs == 12 == len(list(spec.planned_runs()))
    rates = {variant.settings["learning_rate"] for variant in spec.variants}
    assert len(rates) == 6


@pytest.mark.parametrize(
    ("more", "field", "message"),
    [
        ({"samples": None}, "learning_rate", "set samples"),
        ({"grid": {"task": {"low": 1, "high": 2}}}, "task", "it is no number"),
        ({"grid": {"dropout": {"low": 1, "high": 0}}}, "dropout", "low < high"),
        ({"grid": {"dropout": {"low": 0, "high": 1, "scale": "log"}}}, "dropout", "low > 0"),
        ({"grid": {"dropout": {"low": 0, "up": 1}}}, "dropout", "dropout: high is missing"),
        ({"grid": {"dropout": {"low": math.nan, "high": 1}}}, "dropout", "low is nan; give a"),
        ({"grid": {"dropout": {"low": 0, "high": math.inf}}}, "dropout", "high is inf; give a"),
        ({"shard": (0, 0)}, "shard", "0 of 0; with n shards, give a number from 0 to n - 1"),
        ({"shard": (3, 3)}, "shard", "shard is 3 of 3"),
        ({"shard": (-1, 3)}, "shard", "shard is -1 of 3"),
    ],
)
def test_an_invalid_range_names_its_setting(more, field, message):
    with pytest.raises(ConfigError, match=message) as error:
        parse_experiment(SPEC | more, "owner")
    assert error.value.field == field


@pytest.mark.parametrize("n_shards", [1, 3, 5, 20])
def test_shards_divide_the_plan_without_gaps(n_shards):
    whole = ExperimentSpec(**SPEC)
    shards = [ExperimentSpec(**SPEC | {"shard": (k, n_shards)}) for k in range(n_shards)]
    keys = [key for shard in shards for key, *_ in shard.planned_runs()]
    assert sorted(keys) == sorted(key for key, *_ in whole.planned_runs())
    assert [shard.n_runs for shard in shards] == [
        len(list(shard.planned_runs())) for shard in shards
    ]
