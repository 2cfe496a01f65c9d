import pytest

from playground.architectures.parameter_groups import parameter_count
from playground.models.config_fields import ConfigError
from playground.training.presets import PRESETS, architecture_preset, preset_config
from playground.training.run_config import RunConfig, section_of_field
from playground.training.trainer import Trainer

SHORT = {
    "max_steps": 3,
    "eval_every": 3,
    "eval_size": 16,
    "max_length": 4,
    "batch_size": 8,
    "device": "cpu",
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_builds_trains_and_names_known_settings_only(name):
    assert set(PRESETS[name].settings) <= {*section_of_field(), "architecture"}
    trainer = Trainer(preset_config(name, SHORT))
    assert [metrics.step for metrics in trainer] == [1, 2, 3]
    assert (
        trainer.config.to_flat()
        == RunConfig.from_flat({**PRESETS[name].settings, **SHORT}).to_flat()
    )


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_leaves_task_lengths_and_seed_to_the_user(name):
    assert not {
        *("task", "n_symbols", "min_length", "max_length", "seed", "device", "num_threads"),
    } & set(PRESETS[name].settings)
    assert preset_config(name, {"task": "copy", "seed": 7}).training.seed == 7


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_describes_its_purpose(name):
    assert PRESETS[name].title
    assert PRESETS[name].description.endswith(".")


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_the_same_budget_is_about_the_same(name):
    run = preset_config(name)
    assert run.architecture == name
    assert parameter_count(run.model) == pytest.approx(parameter_count(RunConfig().model), rel=0.05)


def test_an_architecture_has_defaults_that_values_override():
    run = architecture_preset("bert", max_steps=7, max_length=4)
    assert (
        run.architecture,
        run.training.learning_rate,
        run.training.max_steps,
        run.task.max_length,
    ) == ("bert", 2e-3, 7, 4)
    with pytest.raises(ConfigError, match="architecture is 'mamba'; choose one of transformer"):
        architecture_preset("mamba")


def test_fast_preset_is_the_default_of_the_transformer():
    run = preset_config("fast")
    assert run == architecture_preset("transformer")
    training = run.training
    assert (training.optimizer, training.weight_averaging) == ("muon", True)


def test_adam_preset_has_the_settings_of_version_0_2():
    training = preset_config("adam").training
    assert (training.optimizer, training.learning_rate, training.weight_averaging) == (
        "adam",
        6e-3,
        False,
    )
    assert (training.lr_schedule, training.warmup_steps, training.lr_decay_steps) == (
        "cosine",
        20,
        160,
    )


def test_one_head_learns():
    run = preset_config(
        "one-head",
        {"max_length": 4, "max_steps": 80, "eval_every": 80, "eval_size": 200, "device": "cpu"},
    )
    assert (run.model.n_layers, run.model.n_heads) == (1, 1)
    metrics = list(Trainer(run))
    assert metrics[-1].loss < metrics[0].loss / 3
    assert metrics[-1].exact_match > 0.5


def test_the_paper_preset_has_the_papers_settings():
    run = preset_config("paper")
    assert (
        run.model.norm_placement,
        run.model.position_type,
        run.model.share_embeddings,
        run.model.dropout,
    ) == ("post", "sinusoidal", False, 0.1)
    training = run.training
    assert (
        training.lr_schedule,
        training.learning_rate,
        training.warmup_steps,
        training.label_smoothing,
    ) == ("noam", 1.0, 4000, 0.1)
    assert (training.adam_beta1, training.adam_beta2, training.adam_eps) == (0.9, 0.98, 1e-9)


def test_an_unknown_preset_is_rejected_with_the_names_of_the_known():
    with pytest.raises(ValueError, match="preset is 'slow'; choose one of fast, adam, one-head"):
        preset_config("slow")
