import dataclasses
import math
import re

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playground.models.config import ModelConfig, paper_base_config
from playground.models.config_fields import ConfigError, format_number
from playground.models.transformer import Transformer

FIELDS = {each.name: each for each in dataclasses.fields(ModelConfig)}
NEVER = [math.nan, math.inf, -math.inf, -1, -0.5, None, "text", "", (), 10**30]


def unfit(name):
    """Return values that no field of this type accepts."""
    kind = type(FIELDS[name].default)
    return (
        NEVER
        + ([0, 1, "true"] if kind is bool else [True, False])
        + ([1.5, 8.0, "8"] if kind is int else [])
    )


def accepted(name):
    """Return values that the field accepts; two fields may contradict each other."""
    default, range_ = FIELDS[name].default, FIELDS[name].metadata
    if range_["choices"]:
        return st.sampled_from(range_["choices"])
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, int):
        return st.integers(range_["low"], min(range_["high"], 40))
    return st.floats(range_["low"], range_["high"])


def count(config):
    with torch.device("meta"):
        return sum(weight.numel() for weight in Transformer(config).parameters())


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in FIELDS for value in unfit(name)]
)
def test_a_field_of_the_wrong_type_is_rejected_by_name(name, value):
    with pytest.raises(ConfigError) as caught:
        ModelConfig(**{name: value})
    assert caught.value.field == name
    assert str(caught.value).startswith(f"{name} is {value!r}; ")


@pytest.mark.parametrize(
    "name", [name for name, each in FIELDS.items() if each.metadata["high"] is not None]
)
def test_numeric_field_accepts_its_range_and_rejects_values_outside(name):
    low, high = FIELDS[name].metadata["low"], FIELDS[name].metadata["high"]
    # so that no two fields contradict each other
    others = {"n_heads": 64 if name == "n_kv_heads" else 1, "share_embeddings": False}
    for value in (low, high):
        assert getattr(ModelConfig(**others | {name: value}), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(
            ConfigError, match=re.escape(f"from {format_number(low)} to {format_number(high)}")
        ) as caught:
            ModelConfig(**others | {name: value})
        assert caught.value.field == name


def test_heads_that_do_not_divide_the_width_get_the_valid_numbers():
    with pytest.raises(
        ConfigError,
        match=r"n_heads is 5, which does not divide d_model 12; use one of 1, 2, 3, 4, 6, 12, or "
        r"set .* d_k and d_v$",
    ) as caught:
        ModelConfig(d_model=12, n_heads=5)
    assert caught.value.field == "n_heads"


def test_shared_embeddings_with_unequal_vocabularies_are_rejected():
    with pytest.raises(
        ConfigError,
        match="source_vocab_size is 13 and target_vocab_size 14; make them equal or turn",
    ) as caught:
        ModelConfig(target_vocab_size=14, share_embeddings=True)
    assert caught.value.field == "share_embeddings"
    assert ModelConfig(target_vocab_size=14, share_embeddings=False).target_vocab_size == 14


def test_sine_waves_need_an_even_width():
    with pytest.raises(ConfigError, match="d_model is 7") as caught:
        ModelConfig(d_model=7, n_heads=1, position_type="sinusoidal")
    assert caught.value.field == "d_model"
    assert ModelConfig(d_model=7, n_heads=1, position_type="learned").d_model == 7


@pytest.mark.parametrize(
    ("values", "field", "expected_message"),
    [
        (
            {"n_kv_heads": 3},
            "n_kv_heads",
            "n_kv_heads is 3, which does not divide n_heads 4; use one of 1, 2, 4$",
        ),
        ({"n_kv_heads": 8}, "n_kv_heads", "does not divide n_heads 4"),
        (
            {"position_type": "rope", "d_k": 5},
            "d_k",
            "d_k is 5, so queries and keys have 5 numbers; .* change d_k$",
        ),
        (
            {"position_type": "rope", "d_model": 12},
            "n_heads",
            "n_heads is 4, so queries and keys have 3 numbers; .* or set d_k$",
        ),
        (
            {"position_type": "randomized", "randomized_range": 10},
            "randomized_range",
            "10, which is less than max_positions 11; .* or 0$",
        ),
        ({"d_model": 10, "d_k": 4}, "n_heads", "does not divide d_model 10"),
    ],
)
def test_contradictory_settings_are_rejected_at_one_field(values, field, expected_message):
    with pytest.raises(ConfigError, match=expected_message) as caught:
        ModelConfig(**values)
    assert caught.value.field == field


def test_sizes_of_heads_need_not_divide_the_width():
    config = ModelConfig(d_model=10, n_heads=3, d_k=4, d_v=5, position_type="rope")
    assert (config.key_size, config.value_size, config.n_kv_heads_resolved) == (4, 5, 3)
    assert count(config) == config.parameter_count()


def test_a_whole_number_for_a_fraction_is_the_same_setting():
    assert ModelConfig(dropout=0) == ModelConfig(dropout=0.0)
    assert type(ModelConfig(dropout=0).dropout) is float


def test_an_absurdly_long_number_is_rejected_like_any_other():
    with pytest.raises(ConfigError):
        ModelConfig(d_model=10**5000)


@settings(max_examples=300)
@given(
    st.fixed_dictionaries(
        {}, optional={name: accepted(name) | st.sampled_from(unfit(name)) for name in FIELDS}
    )
)
def test_any_values_make_a_valid_config_or_an_error_that_names_a_field(values):
    config, complaint = None, None
    try:
        config = ModelConfig(**values)
    except ConfigError as error:
        complaint = error
    if config is None:
        assert complaint.field in FIELDS
        assert complaint.field in str(complaint)
        return
    assert config.d_model % config.n_heads == 0 or (config.d_k and config.d_v)
    assert config.n_heads % config.n_kv_heads_resolved == 0
    assert config.key_size > 0
    assert config.value_size > 0
    assert not any(value is bad for name, value in values.items() for bad in unfit(name))
    assert config.parameter_count() > 0
    assert dataclasses.replace(config) == config


@given(
    st.fixed_dictionaries(
        {
            "d_model": st.sampled_from([2, 4, 12, 16]),
            "n_heads": st.sampled_from([1, 2]),
            "n_layers": st.integers(1, 3),
            "d_ff": st.integers(1, 20),
            "source_vocab_size": st.integers(4, 20),
            "target_vocab_size": st.integers(4, 20),
            "max_positions": st.integers(2, 20),
            "n_kv_heads": st.sampled_from([0, 1]),
            "d_k": st.sampled_from([0, 2, 6]),
            "d_v": st.integers(0, 5),
            "randomized_range": st.sampled_from([0, 33]),
            **{
                name: accepted(name)
                for name in (
                    "norm_placement",
                    "norm_type",
                    "activation",
                    "tie_output_embeddings",
                    "attention_bias",
                    "bias",
                )
            },
            "position_type": accepted("position_type").filter(
                lambda kind: kind != "rope"
            ),  # it needs heads of an even size
        }
    ),
    st.booleans(),
)
@example(
    {
        "norm_placement": "post",
        "position_type": "sinusoidal",
        "tie_output_embeddings": True,
        "attention_bias": False,
    },
    True,
)
@example(
    {
        "position_type": "t5",
        "n_heads": 4,
        "n_kv_heads": 2,
        "d_k": 3,
        "activation": "swiglu",
        "norm_type": "rms",
        "bias": False,
    },
    False,
)
@example(
    {"position_type": "randomized", "bias": True, "norm_type": "rms", "activation": "gelu"}, False
)
@example(
    {
        "norm_placement": "pre",
        "position_type": "learned",
        "tie_output_embeddings": True,
        "attention_bias": True,
    },
    True,
)
def test_the_parameter_count_equals_what_is_built(values, share):
    if share:
        values = values | {"target_vocab_size": values.get("source_vocab_size", 13)}
    config = ModelConfig(**values, share_embeddings=share)
    assert config.parameter_count() == count(config)


def test_the_papers_base_model_builds_and_counts_its_parameters():
    config = paper_base_config()
    assert (config.d_model, config.n_heads, config.n_layers, config.d_ff, config.dropout) == (
        512,
        8,
        6,
        2048,
        0.1,
    )
    assert (config.source_vocab_size, config.target_vocab_size, config.max_positions) == (
        30_000,
        30_000,
        5_000,
    )
    assert (config.norm_placement, config.position_type, config.sinusoidal_scale) == (
        "post",
        "sinusoidal",
        1.0,
    )
    assert count(config) == config.parameter_count()


def test_the_base_model_of_the_story_counts_100_970_632_parameters():
    config = ModelConfig(
        d_model=512,
        n_heads=8,
        n_layers=6,
        d_ff=2048,
        norm_placement="post",
        position_type="sinusoidal",
        share_embeddings=False,
        attention_bias=False,
        source_vocab_size=37_000,
        target_vocab_size=37_000,
    )
    assert config.parameter_count() == 100_970_632
    assert count(config) == 100_970_632


def test_the_model_of_the_write_up_counts_169_933_parameters():
    config = ModelConfig(
        d_model=64,
        n_heads=4,
        n_layers=2,
        d_ff=128,
        norm_placement="post",
        position_type="sinusoidal",
        share_embeddings=False,
        source_vocab_size=13,
        target_vocab_size=13,
    )
    assert config.parameter_count() == 169_933
    assert count(config) == 169_933
