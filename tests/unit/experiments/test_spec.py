import json
import math
from dataclasses import fields

import pytest

from playground.architectures import ARCHITECTURES
from playground.experiments.spec import (
    MAX_RUNS,
    SPEC_FIELDS,
    Experiment,
    ExperimentSpec,
    StoredExperiment,
    parse_experiment,
    positions_for,
)
from playground.experiments.variant import Range, parse_value, sample
from playground.models.config_fields import ConfigError
from playground.training.presets import preset_config
from playground.training.run_config import setting_role
from playground.training.train_config import TrainConfig


def make(base=None, grid=None, **more) -> Experiment:
    grid = grid or {"norm_placement": ["pre", "post"]}
    return parse_experiment({"name": "a", "base": base or {}, "grid": grid, **more}, owner="0" * 64)


def test_short_label_is_used_unless_it_is_ambiguous():
    def shorts(*variants, field="variant"):
        grid = {field: list(variants)}
        return [each.short_label for each in ExperimentSpec(name="a", grid=grid).variants]

    assert shorts("pre", "post", field="norm_placement") == ["pre", "post"]
    gru = {"architecture": "recurrent", "cell": "gru"}
    transformer = {"architecture": "transformer"}
    assert shorts(
        gru | {"attention": "none"}, gru | {"attention": "dot"}, transformer | {"max_steps": 9}
    ) == ["recurrent gru", "recurrent gru dot", "transformer"]
    assert shorts(transformer | {"max_steps": 8}, transformer | {"max_steps": 9})[0] == (
        "architecture transformer, max_steps 8"
    )
    assert shorts(transformer | {"norm_placement": "pre"}) == [
        "architecture transformer, norm_placement pre"
    ]


def test_grid_plans_all_variants_of_one_seed_before_the_next_seed():
    requested = make(
        {"max_steps": 30}, {"n_heads": [1, 2, 4], "norm_placement": ["pre", "post"]}, seeds=(5, 7)
    )
    planned = [(variant.full_label, seed) for _, variant, seed in requested.planned_runs()]
    labels = [
        f"n_heads {heads}, norm_placement {norm}" for heads in (1, 2, 4) for norm in ("pre", "post")
    ]
    assert planned == [(label, 5) for label in labels] + [(label, 7) for label in labels]
    assert requested.n_runs == 12 == len({key for key, _, _ in requested.planned_runs()})
    config = requested.variants[3].config(7)
    assert config == preset_config(
        "fast", {"max_steps": 30, "n_heads": 2, "norm_placement": "post", "seed": 7}
    )


def test_varied_architectures_receive_only_the_settings_they_use():
    requested = make(
        {"tie_output_embeddings": True, "d_model": 32},
        {"architecture": ["transformer", "encoder-only"], "task": ["reverse", "copy"]},
    )
    configs = {variant.full_label: variant.config(0) for variant in requested.variants}
    assert configs["architecture transformer, task copy"].model.tie_output_embeddings
    assert (
        type(configs["architecture encoder-only, task copy"].model)
        is ARCHITECTURES["encoder-only"].config_class
    )
    assert {config.model.d_model for config in configs.values()} == {32}
    # where the family does not vary, it is a mistake
    with pytest.raises(ConfigError, match="does not have this setting"):
        make({"tie_output_embeddings": True, "architecture": "encoder-only"})


def test_a_variant_differs_by_several_settings_at_once():
    several = [{"n_heads": 1, "norm_placement": "pre"}, {"n_heads": 4, "norm_placement": "post"}]
    requested = make({"d_model": 32}, {"variant": several})
    assert [variant.full_label for variant in requested.variants] == [
        "n_heads 1, norm_placement pre",
        "n_heads 4, norm_placement post",
    ]
    assert requested.variants[1].config(0).model.n_heads == 4
    with pytest.raises(ConfigError, match="is both in base and in grid"):
        make({"norm_placement": "pre"}, {"variant": [{"norm_placement": "post"}]})


def test_length_experiments_have_positions_for_all_lengths():
    requested = make(
        {"max_length": 10}, {"position_type": ["learned", "sinusoidal"]}, kind="lengths", times=5
    )
    assert {variant.config(0).model.max_positions for variant in requested.variants} == {51}
    assert positions_for({"task": "copy", "d_model": 8}, 30) == 31
    assert positions_for({"task": "duplicate"}, 30) == 61
    added = make(
        {"task": "addition", "min_length": 3, "max_length": 7},
        {"position_type": ["rope"]},
        kind="lengths",
        times=2,
    )
    assert added.evaluated_lengths(added.variants[0].settings) == range(3, 15)


@pytest.mark.parametrize(
    ("more", "field", "expected_message"),
    [
        ({"name": ""}, "name", "1 to 80 characters"),
        ({"grid": {"heads": [1]}}, "grid", "'heads' is not a setting of a run"),
        ({"grid": {f"setting {i}": [1] for i in range(9)}}, "grid", "1 to 8 settings"),
        ({"grid": {"norm_placement": ["pre", "pre"]}}, "norm_placement", "one value occurs twice"),
        ({"grid": {"seed": [1, 2]}}, "seed", "give seeds instead"),
        ({"grid": {"n_heads": [4, 5]}}, "n_heads", "n_heads 5: n_heads is 5"),
        ({"grid": {"variant": [1]}}, "variant", "settings by name"),
        ({"base": {"norm_placement": "pre"}}, "norm_placement", "is both in base and in grid"),
        ({"seeds": (1, 1)}, "seeds", "the same seed twice"),
        (
            {"seeds": tuple(range(5001))},
            "seeds",
            f"make 10002 runs; the maximum of one experiment is {MAX_RUNS}",
        ),
        (
            {"kind": "lengths", "base": {"max_length": 200}},
            "times",
            "1000 tokens; the maximum is 512",
        ),
        ({"kind": "lengths", "grid": {"max_length": [5, 6]}}, "max_length", "put it in base"),
    ],
)
def test_invalid_specification_names_its_field(more, field, expected_message):
    inputs = {"name": "a", "base": {}, "grid": {"norm_placement": ["pre", "post"]}} | more
    with pytest.raises(ConfigError, match=expected_message) as refused:
        parse_experiment(inputs, owner="0" * 64)
    assert refused.value.field == field


def test_texts_are_parsed_by_the_type_of_the_setting():
    inputs = {"n_heads": "4", "dropout": "0.1", "norm_placement": "pre", "architecture": "x"}
    inputs |= {"tie_output_embeddings": "off"}
    assert [parse_value(name, text) for name, text in inputs.items()] == [4, 0.1, "pre", "x", False]
    for name, text in (("n_heads", "four"), ("tie_output_embeddings", "perhaps"), ("wings", "2")):
        with pytest.raises(ConfigError):
            parse_value(name, text)


def test_experiments_with_the_same_runs_are_equivalent():
    assert make().is_equivalent(make())
    assert not make().is_equivalent(make(seeds=(0, 1)))
    assert not make().is_equivalent(make({"max_steps": 5}))


def test_stored_experiment_keeps_every_field_and_ignores_unknown_ones():
    experiment = make({"max_steps": 5}, kind="lengths", times=2, n=30, question="Why?", seeds=(3,))
    stored = StoredExperiment.model_construct(
        **dict(experiment), runs={"0/3": "abc"}, cancelled=True
    )
    content = json.loads(stored.model_dump_json())
    assert (content["version"], content["runs"]) == (1, {"0/3": "abc"})
    read = StoredExperiment.model_validate(content | {"field_of_a_later_version": 1})
    assert read == stored
    assert (
        Experiment.model_construct(**read.model_dump(exclude={"runs", "version", "cancelled"}))
        == experiment
    )
    with pytest.raises(ConfigError) as error:
        parse_experiment(content, owner="0" * 64)  # a request must not choose id, owner or time
    assert error.value.field not in SPEC_FIELDS


VALUES = {
    "max_steps": [100, 200],
    "eval_every": [10, 100],
    "eval_size": [100, 200],
    "stop_at_exact_match": [0.99, 0.9],
    "held_out_one_in": [8, 16],
    "predict_eos": [True, False],
    "device": ["auto", "cpu"],
    "num_threads": [1, 2],
}


def test_every_setting_of_training_has_a_role_in_experiments():
    roles = {each.name: setting_role(each.name) for each in fields(TrainConfig)}
    assert set(roles.values()) == {"treatment", "budget", "measurement", "repetition", "machine"}
    not_treatments = {name for name, role in roles.items() if role != "treatment"}
    assert not_treatments == {*VALUES, "seed"} - {"held_out_one_in", "predict_eos"}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("kind", ["grid", "two", "variant", "lengths"])
def test_settings_of_measurement_are_refused_as_treatments(name, kind):
    first, second = VALUES[name]
    grid = {
        "grid": {name: [first, second]},
        "two": {name: [first, second], "n_heads": [1, 2]},
        "variant": {"variant": [{name: first}, {name: second}]},
        "lengths": {name: [first, second]},
    }[kind]
    kind = "lengths" if kind == "lengths" else "grid"
    with pytest.raises(ConfigError, match=r"set it once for all runs|only EOS ends") as error:
        make({"min_length": 8, "max_length": 8}, grid, kind=kind)
    assert error.value.field == name
    assert make({name: first}).n_runs == 10
    assert make(grid={name: [first], "norm_placement": ["pre", "post"]}).n_runs == 10


def test_variants_may_have_budgets_of_their_own_but_not_measurements():
    longer = {"architecture": "recurrent", "max_steps": 900}
    assert make(grid={"variant": [{"n_heads": 2}, longer]}).smallest_budget == 200
    assert make(grid={"architecture": ["transformer", "recurrent"]}).smallest_budget == 200
    with pytest.raises(ConfigError, match="eval_every changes how a run is measured"):
        make(grid={"variant": [{"n_heads": 2}, {"n_heads": 4, "eval_every": 5}]})
    with pytest.raises(ConfigError, match=r"stop_at_exact_match changes .* when it ends"):
        make(grid={"stop_at_exact_match": [0.0, 0.9]})
    with pytest.raises(ConfigError, match="differ in max_steps only"):
        make(grid={"variant": [{"n_heads": 4, "max_steps": 9}, {"n_heads": 2}, {"n_heads": 4}]})


@pytest.mark.parametrize("kind", ["grid", "lengths"])
def test_runs_that_end_below_the_compared_score_are_refused(kind):
    message = r"0\.9, so runs end before .* to at least 0\.99"
    with pytest.raises(ConfigError, match=message) as error:
        make({"stop_at_exact_match": 0.9}, kind=kind)
    assert error.value.field == "stop_at_exact_match"
    varied = {"variant": [{"n_heads": 2, "stop_at_exact_match": 0.5}, {"n_heads": 4}]}
    with pytest.raises(ConfigError, match="cannot be compared"):
        make(grid=varied, kind=kind)
    for stop in (0, 0.99, 1.0):
        assert make({"stop_at_exact_match": stop}, kind=kind).n_runs == 10
    assert make({"stop_at_exact_match": 0.9}, {"n_heads": [2]}, kind=kind).n_runs == 5


def test_variants_on_different_tasks_are_named():
    for grid, varied in (
        ({"max_length": [5, 10]}, "max_length"),
        ({"variant": [{"task": "copy"}, {"task": "sort", "n_symbols": 5}]}, "task and n_symbols"),
    ):
        note = f" Variants differ in {varied}, so each is scored on sequences of its own task."
        assert make(grid=grid).task_note == note
    assert not make(grid={"n_training_sources": [100, 200]}).task_note
    assert not make(grid={"architecture": ["transformer", "recurrent"]}).task_note


@pytest.mark.parametrize(("kind", "reason"), [("grid", ""), ("lengths", "numbers of steps")])
def test_lengths_after_unequal_numbers_of_steps_are_not_tested(kind, reason):
    unequal = [{"n_heads": 2}, {"n_heads": 4, "max_steps": 900}]
    planned = make(grid={"variant": unequal}, kind=kind).describe_planned_test()
    no_test = "There is no test: the runs have different numbers of steps."
    assert planned.startswith(no_test if reason else "The smallest possible p")
    assert reason in planned
    equal = make(grid={"n_heads": [2, 4]}, kind=kind)
    assert equal.describe_planned_test().startswith("The smallest possible p of these seeds is")
    assert make(kind=kind).why_lengths_untestable == ""
    stopping = make({"stop_at_exact_match": 0.99}, {"n_heads": [2, 4]}, kind=kind)
    assert reason in stopping.describe_planned_test()


GRID = {"learning_rate": Range(low=1e-4, high=1e-2, scale="log"), "n_layers": [1, 2, 3, 4]}
SAMPLED = {
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
    spec = ExperimentSpec(**SAMPLED)
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
        parse_experiment(SAMPLED | more, "owner")
    assert error.value.field == field


@pytest.mark.parametrize("n_shards", [1, 3, 5, 20])
def test_shards_divide_the_plan_without_gaps(n_shards):
    whole = ExperimentSpec(**SAMPLED)
    shards = [ExperimentSpec(**SAMPLED | {"shard": (k, n_shards)}) for k in range(n_shards)]
    keys = [key for shard in shards for key, *_ in shard.planned_runs()]
    assert sorted(keys) == sorted(key for key, *_ in whole.planned_runs())
    assert [shard.n_runs for shard in shards] == [
        len(list(shard.planned_runs())) for shard in shards
    ]
