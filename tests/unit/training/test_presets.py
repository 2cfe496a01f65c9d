import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.models.config_fields import ConfigError
from playground.training.matched_size import COPIED_SETTINGS, match_parameter_count
from playground.training.presets import PRESETS, architecture_preset, preset_config
from playground.training.run_config import RunConfig, section_of_field
from playground.training.trainer import Trainer

SHORT = {"max_steps": 3, "eval_every": 3, "eval_size": 16, "max_length": 4, "batch_size": 8}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_builds_trains_and_names_known_settings_only(name):
    assert set(PRESETS[name].settings) <= {*section_of_field(), "architecture"}
    trainer = Trainer(preset_config(name, SHORT))
    assert [metrics.step for metrics in trainer] == [1, 2, 3]
    assert trainer.config == RunConfig.from_flat({**PRESETS[name].settings, **SHORT})
    assert PRESETS[name].title
    assert PRESETS[name].description.endswith(".")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_leaves_task_lengths_and_seed_to_the_user(name):
    own = ("task", "n_symbols", "min_length", "max_length", "seed", "device", "num_threads")
    assert not {*own} & set(PRESETS[name].settings)
    assert preset_config(name, {"task": "copy", "seed": 7}).training.seed == 7


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_the_same_budget_is_about_the_same(name):
    run = preset_config(name)
    assert run.architecture == name
    assert parameter_count(run.model) == pytest.approx(parameter_count(RunConfig().model), rel=0.05)


def test_an_architecture_has_defaults_that_values_override():
    expected = {"learning_rate": 2e-3, "max_steps": 7, "max_length": 4, "architecture": "bert"}
    run = architecture_preset("bert", max_steps=7, max_length=4)
    assert run.to_flat().items() >= expected.items()
    with pytest.raises(ConfigError, match="architecture is 'mamba'; choose one of transformer"):
        architecture_preset("mamba")


def test_fast_preset_is_the_default_of_the_transformer():
    assert preset_config("fast") == architecture_preset("transformer")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fast", {"optimizer": "muon", "weight_averaging": True}),
        (
            "adam",
            {"optimizer": "adam", "learning_rate": 6e-3, "weight_averaging": False}
            | {"lr_schedule": "cosine", "warmup_steps": 20, "lr_decay_steps": 160},
        ),
        (
            "paper",
            {"norm_placement": "post", "position_type": "sinusoidal", "share_embeddings": False}
            | {"dropout": 0.1, "label_smoothing": 0.1, "lr_schedule": "noam", "learning_rate": 1.0}
            | {"warmup_steps": 4000, "adam_beta1": 0.9, "adam_beta2": 0.98, "adam_eps": 1e-9},
        ),
    ],
)
def test_a_preset_has_the_settings_of_its_source(name, values):
    assert preset_config(name).to_flat().items() >= values.items()


def test_one_head_learns():
    settings = {"max_length": 4, "max_steps": 80, "eval_every": 80, "eval_size": 200}
    run = preset_config("one-head", settings)
    assert (run.model.n_layers, run.model.n_heads) == (1, 1)
    metrics = list(Trainer(run))
    assert metrics[-1].loss < metrics[0].loss / 3
    assert metrics[-1].exact_match > 0.5


def test_an_unknown_preset_is_rejected_with_the_names_of_the_known():
    with pytest.raises(ValueError, match="preset is 'slow'; choose one of fast, adam, one-head"):
        preset_config("slow")


# As many parameters in another architecture


@pytest.mark.parametrize("family", ARCHITECTURES)
@settings(max_examples=12)
@given(
    st.sampled_from([32, 64, 96, 128]),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 4),
    st.sampled_from([1, 2, 4]),
    st.integers(3, 30),
)
def test_another_family_gets_as_many_parameters_on_the_same_data(
    family, d_model, n_heads, n_layers, ratio, max_length
):
    sizes = {"d_model": d_model, "n_heads": n_heads, "n_layers": n_layers, "d_ff": ratio * d_model}
    run = RunConfig.from_flat(sizes | {"max_length": max_length, "seed": 3})
    other = match_parameter_count(run, family)
    assert other.architecture == family
    assert parameter_count(other.model) == pytest.approx(parameter_count(run.model), rel=0.05)
    assert all(other.to_flat()[name] == run.to_flat()[name] for name in COPIED_SETTINGS)
    if "d_ff" in ARCHITECTURES[family].setting_names():
        assert other.model.n_heads == n_heads
        assert d_model / 4 <= other.model.d_model <= 2 * d_model


def test_width_and_heads_stay_where_depth_can_make_up_for_the_rest():
    for family in ("torch-transformer", "encoder-only", "decoder-only", "bert", "gpt2", "bart"):
        model = match_parameter_count(RunConfig(), family).model
        assert (model.d_model, model.n_heads) == (64, 4)
        assert 64 <= model.d_ff <= 256


def test_the_learning_settings_are_the_familys_own():
    run = match_parameter_count(RunConfig.from_flat({"learning_rate": 0.1, "max_steps": 7}), "bert")
    assert run.to_flat().items() >= ARCHITECTURES["bert"].overrides.items()


def test_the_default_run_of_an_architecture_is_unchanged():
    run = RunConfig.from_flat({"max_steps": 7})
    assert match_parameter_count(run, "transformer") == run


def test_the_way_back_leads_to_about_the_same_size():
    recurrent = match_parameter_count(RunConfig(), "recurrent")
    back = match_parameter_count(recurrent, "transformer")
    assert parameter_count(back.model) == pytest.approx(parameter_count(RunConfig().model), rel=0.1)


def test_uploaded_rows_stay_the_task():
    rows = {"task": "dataset", "dataset_sha256": "a" * 64, "dataset_symbols": "a b c d e f g h"}
    lengths = {"max_target_length": 14, "min_length": 2, "max_length": 9}
    run = RunConfig.from_flat(rows | lengths)
    other = match_parameter_count(run, "decoder-only")
    assert other.task == run.task
    assert parameter_count(other.model) == pytest.approx(parameter_count(run.model), rel=0.05)
