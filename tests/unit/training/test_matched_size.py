import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.models.config_fields import ConfigError
from playground.training.matched_size import COPIED_SETTINGS, match_parameter_count
from playground.training.run_config import RunConfig


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


def test_an_unknown_family_is_rejected_by_name():
    with pytest.raises(ConfigError, match="architecture is 'mamba'; choose one of transformer"):
        match_parameter_count(RunConfig(), "mamba")


def test_uploaded_rows_stay_the_task():
    rows = {"task": "dataset", "dataset_sha256": "a" * 64, "dataset_symbols": "a b c d e f g h"}
    lengths = {"max_target_length": 14, "min_length": 2, "max_length": 9}
    run = RunConfig.from_flat(rows | lengths)
    other = match_parameter_count(run, "decoder-only")
    assert other.task == run.task
    assert parameter_count(other.model) == pytest.approx(parameter_count(run.model), rel=0.05)
