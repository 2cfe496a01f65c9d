import dataclasses
import math
import re

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playground.architectures.parameter_groups import parameter_count, parameter_groups
from playground.models.config import TransformerConfig
from playground.models.config_fields import ConfigError, format_number
from playground.models.transformer import Transformer
from playground.training.presets import paper_base_config
from tests.support.small_models import model_settings

FIELDS = {each.name: each for each in dataclasses.fields(TransformerConfig)}
NEVER = [math.nan, math.inf, -math.inf, -1, -0.5, None, "text", "", (), 10**30]


def unfit(name):
    """Return values that no field of this type accepts."""
    kind = type(FIELDS[name].default)
    return (
        NEVER
        + ([0, 1, "true"] if kind is bool else [True, False])
        + ([1.5, 8.0, "8"] if kind is int else [])
    )


def built_shapes(config):
    with torch.device("meta"):
        return sorted(tuple(weight.shape) for weight in Transformer(config).parameters())


def count(config):
    return sum(map(math.prod, built_shapes(config)))


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_the_wrong_type_is_rejected_by_name(name):
    for value in unfit(name):
        with pytest.raises(ConfigError) as caught:
            TransformerConfig(**{name: value})
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
        assert getattr(TransformerConfig(**others | {name: value}), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(
            ConfigError, match=re.escape(f"from {format_number(low)} to {format_number(high)}")
        ) as caught:
            TransformerConfig(**others | {name: value})
        assert caught.value.field == name


@pytest.mark.parametrize(
    ("values", "field", "expected_message"),
    [
        ({"n_kv_heads": 3}, "n_kv_heads", "which does not divide n_heads 4; use one of 1, 2, 4$"),
        ({"position_type": "rope", "d_k": 5}, "d_k", r"queries and keys have 5 .* change d_k$"),
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
        (
            {"d_model": 12, "n_heads": 5, "d_k": 4},
            "n_heads",
            "n_heads is 5, which does not divide d_model 12; use one of 1, 2, 3, 4, 6, 12, or "
            "set .* d_k and d_v$",
        ),
        (
            {"target_vocab_size": 14, "share_embeddings": True},
            "share_embeddings",
            "source_vocab_size is 13 and target_vocab_size 14; make them equal or turn",
        ),
        ({"d_model": 7, "n_heads": 1, "position_type": "sinusoidal"}, "d_model", "d_model is 7"),
    ],
)
def test_contradictory_settings_are_rejected_at_one_field(values, field, expected_message):
    with pytest.raises(ConfigError, match=expected_message) as caught:
        TransformerConfig(**values)
    assert caught.value.field == field


def test_an_absurdly_long_number_is_rejected_like_any_other():
    with pytest.raises(ConfigError):
        TransformerConfig(d_model=10**5000)


def test_a_whole_number_for_a_fraction_is_the_same_setting():
    assert TransformerConfig(dropout=0) == TransformerConfig(dropout=0.0)
    assert type(TransformerConfig(dropout=0).dropout) is float


@settings(max_examples=30)
@given(
    model_settings(),
    st.fixed_dictionaries(
        {},
        optional={
            "d_model": st.sampled_from([4, 12, 16]),
            "d_ff": st.integers(1, 20),
            "source_vocab_size": st.integers(4, 20),
            "max_positions": st.integers(2, 20),
            "randomized_range": st.sampled_from([0, 33]),
            "output_bias": st.booleans(),
        },
    ),
)
@example({"position_type": "rope"}, {"d_model": 10, "n_heads": 3, "d_k": 4, "d_v": 5})
def test_the_parameter_count_equals_what_is_built(overrides, sizes):
    sizes = {"d_model": 16, "n_heads": 4} | sizes | overrides
    if sizes.get("share_embeddings"):
        sizes["target_vocab_size"] = sizes.get("source_vocab_size", 13)
    if sizes.get("position_type") == "rope":  # heads of an even size
        sizes["d_model"] = 16
    config = TransformerConfig(**sizes)
    assert parameter_count(config) == count(config)
    groups = parameter_groups(config)
    assert sorted(shape for shapes in groups.values() for shape in shapes) == built_shapes(config)


def test_the_papers_base_model_has_its_sizes():
    config = paper_base_config()
    names = ("d_model", "n_heads", "n_layers", "d_ff", "norm_placement", "position_type")
    assert [getattr(config, name) for name in names] == [512, 8, 6, 2048, "post", "sinusoidal"]
    assert (config.dropout, config.target_vocab_size, config.max_positions) == (0.1, 30_000, 5_000)


@pytest.mark.parametrize(
    ("sizes", "n_parameters"),
    [
        ({"d_model": 64, "n_heads": 4, "n_layers": 2, "d_ff": 128}, 169_933),
        (
            {"d_model": 512, "n_heads": 8, "n_layers": 6, "d_ff": 2048, "attention_bias": False}
            | {"source_vocab_size": 37_000, "target_vocab_size": 37_000},
            100_970_632,
        ),
    ],
    ids=["small", "base"],
)
def test_the_models_of_the_documents_have_their_parameters(sizes, n_parameters):
    config = TransformerConfig(**sizes, norm_placement="post", position_type="sinusoidal")
    assert parameter_count(config) == count(config) == n_parameters
