import itertools

import pytest
import torch
from torch import nn

from playground.inspection.inspected_model import InspectionError
from playground.inspection.parameter_counts import (
    PARAMETER_GROUPS,
    PUBLISHED_BASE,
    attention_memory,
    attention_shapes,
    benchmark_attention,
    build_torch_transformer,
    compare_with_torch,
    count_parameters,
    tutorial_base_config,
)
from playground.inspection.parameter_formulas import GROUP_TEXTS, parameter_formulas
from playground.models.config import ModelConfig, paper_base_config
from tests.support.handcrafted_models import NON_STANDARD_SETTINGS as OTHER_PARTS


def test_the_base_model_has_the_tutorials_count_and_so_has_torchs():
    parts = compare_with_torch(tutorial_base_config())
    assert sum(part.ours for part in parts) == PUBLISHED_BASE == 100_970_632
    assert sum(part.torch for part in parts) == 101_009_544
    assert {part.group: part.torch - part.ours for part in parts if part.ours != part.torch} == {
        "attention, biases": 4 * 512 * 18,
        "final norms": 2 * 2 * 512,
    }
    assert [part.group for part in parts] == list(PARAMETER_GROUPS)
    assert all(bool(part.reason) == (part.ours != part.torch) for part in parts)


def test_torchs_stacks_are_those_of_nn_transformer():
    with torch.device("meta"):
        plain = nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)
        built = build_torch_transformer(tutorial_base_config())
    assert {n: w.shape for n, w in built.named_parameters()} == {
        n: w.shape for n, w in plain.named_parameters()
    }


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("share", "tie", "bias"), [*itertools.product([True, False], repeat=3)])
def test_component_counts_sum_to_the_model(norm, share, tie, bias):
    config = ModelConfig(
        norm_placement=norm,
        share_embeddings=share,
        tie_output_embeddings=tie,
        attention_bias=bias,
        n_layers=3,
    )
    parts = count_parameters(config)
    assert sum(parts.values()) == config.parameter_count()
    assert (parts["attention, biases"] > 0) == bias
    assert (parts["final norms"] > 0) == (norm == "pre")
    assert (parts["target token embedding"] == 0) == share  # a table that serves both counts once
    assert (parts["output layer"] == 13) == tie
    assert parts["norms in the layers"] == 3 * 5 * 2 * 64


def test_with_biases_and_final_norms_counts_equal_torchs():
    assert all(
        part.ours == part.torch and not part.reason
        for part in compare_with_torch(ModelConfig(norm_placement="pre"))
    )


@pytest.mark.parametrize("part", OTHER_PARTS, ids=lambda part: part["position_type"])
def test_variant_parameter_counts_match_and_differences_have_reasons(part):
    config = ModelConfig(**part)
    parts = compare_with_torch(config)
    assert (
        sum(count_parameters(config).values())
        == sum(each.ours for each in parts)
        == config.parameter_count()
    )
    assert [each.group for each in parts if bool(each.reason) != (each.ours != each.torch)] == []
    assert (count_parameters(config)["relative position bias"] > 0) == (
        part["position_type"] == "t5"
    )


@pytest.mark.parametrize(
    "config",
    [
        tutorial_base_config(),
        paper_base_config(),
        ModelConfig(share_embeddings=True, tie_output_embeddings=True),
        ModelConfig(norm_placement="post", output_bias=False),
        *(ModelConfig(**part) for part in OTHER_PARTS),
    ],
)
def test_each_formula_has_the_value_of_its_count(config):
    formulas = parameter_formulas(config)
    counts = count_parameters(config)
    for group in PARAMETER_GROUPS:
        formula = formulas.get(group, "0").replace(",", "").replace("×", "*")
        assert eval(formula) == counts[group], (group, formula)
    assert list(GROUP_TEXTS) == list(PARAMETER_GROUPS)
    assert formulas["attention, weights"] == "18 × 4 × 512 × 512" or config.d_model != 512


def test_the_shape_table_shows_shared_keys_and_heads_of_other_sizes():
    shapes = {
        row.name: row.shape
        for row in attention_shapes(ModelConfig(n_heads=4, n_kv_heads=2, d_k=6, d_v=5), 7)
    }
    assert shapes == {
        "X": (7, 64),
        "W_Q": (64, 24),
        "W_K": (64, 12),
        "W_V": (64, 10),
        "Q": (7, 24),
        "Q, one head": (7, 6),
        "K, all heads": (2, 7, 6),
        "V, all heads": (2, 7, 5),
        "weights, all heads": (4, 7, 7),
        "output of one head": (7, 5),
        "concatenation": (7, 20),
        "W_O": (20, 64),
        "output": (7, 64),
    }


def test_the_shape_table_matches_the_model():
    shapes = {
        row.name: row.shape for row in attention_shapes(ModelConfig(d_model=64, n_heads=4), 7)
    }
    assert shapes == {
        "X": (7, 64),
        "W_Q, W_K, W_V": (64, 64),
        "Q": (7, 64),
        "Q, one head": (7, 16),
        "K, V, all heads": (4, 7, 16),
        "weights, all heads": (4, 7, 7),
        "output of one head": (7, 16),
        "concatenation": (7, 64),
        "W_O": (64, 64),
        "output": (7, 64),
    }


def test_the_quadratic_table():
    actual = [
        (cost.length, cost.num_scores, cost.bytes, cost.published) for cost in attention_memory()
    ]
    assert actual == [
        (512, 262_144, 1 * 2**20, "1 MB"),
        (1_000, 1_000_000, 4_000_000, None),
        (2_048, 4_194_304, 16 * 2**20, "16 MB"),
        (8_192, 67_108_864, 256 * 2**20, "256 MB"),
        (10_000, 100_000_000, 400_000_000, None),
        (128_000, 16_384_000_000, 65_536_000_000, "64 GB"),
    ]
    assert attention_memory([10])[0].published is None


def test_the_measured_weights_have_the_computed_size():
    for length in (64, 512):
        measured, explicit_s, fused_s = benchmark_attention(length)
        assert measured == attention_memory([length])[0].bytes
        assert explicit_s > 0
        assert fused_s > 0


@pytest.mark.parametrize("length", [0, -1, 8193, 128_000])
def test_an_unmeasurable_length_is_rejected(length):
    with pytest.raises(InspectionError, match="lengths from 1 to 8,192"):
        benchmark_attention(length)
