import math

import pytest
import torch

from playground.inspection.embeddings import (
    embedding_pca,
    independence_of_positions,
    nearest_tokens,
    token_embeddings,
    wavelength,
    word_order_distance,
)
from playground.inspection.inspected_model import InspectionError
from playground.models.embeddings import sinusoidal_positions
from tests.support.handcrafted_models import random_model


@pytest.mark.parametrize(("dimension", "period"), [(0, 6.3), (1, 6.3), (14, 47), (15, 47)])
def test_wavelengths_match_the_tutorial_and_the_sinusoids(dimension, period):
    assert wavelength(dimension, 64) == pytest.approx(period, rel=0.004)
    wave_P = sinusoidal_positions(1000, 64)[:, dimension].double()
    angle_P = 2 * math.pi * torch.arange(1000).double() / wavelength(dimension, 64)
    torch.testing.assert_close(
        wave_P, angle_P.cos() if dimension % 2 else angle_P.sin(), atol=1e-3, rtol=0
    )


@pytest.mark.parametrize("dimension", [-1, 64])
def test_a_dimension_out_of_range_is_rejected(dimension):
    with pytest.raises(ValueError, match="has the dimensions 0 to 63"):
        wavelength(dimension, 64)


def test_positions_are_different_but_not_independent():
    rows = independence_of_positions()
    assert [(row.positions, row.directions) for row in rows] == [
        (50, 16),
        (200, 26),
        (1_000, 37),
        (62_831, 64),
    ]
    positions_PD = sinusoidal_positions(200, 64)
    distance_PP = torch.cdist(positions_PD, positions_PD).fill_diagonal_(math.inf)
    assert rows[1].nearest == pytest.approx(float(distance_PP.min()), abs=1e-3)
    assert {row.offset for row in rows} == {1}
    singular_D = torch.linalg.svdvals(positions_PD.double())
    assert int((singular_D > 1e-3 * singular_D[0]).sum()) == 26


def test_without_positions_word_order_is_invisible():
    state = torch.get_rng_state()
    order = word_order_distance("The dog bit the man", "The man bit the dog")
    assert order.without_positions == 0
    assert order.with_positions > 1
    assert order.first == ["the", "dog", "bit", "the", "man"]
    assert torch.equal(torch.get_rng_state(), state)
    assert word_order_distance("the dog bit", "the dog bit").with_positions == 0
    assert word_order_distance("the dog", "the cat").without_positions > 1


@pytest.mark.parametrize("sentence", ["", "  ", "word " * 201])
def test_an_empty_or_very_long_sentence_is_rejected(sentence):
    with pytest.raises(InspectionError, match="1 to 200 words"):
        word_order_distance("the dog", sentence)


def test_neighbors_are_ordered_by_the_cosine_of_the_learned_vectors():
    subject = random_model()
    with torch.no_grad():
        table = subject.transformer.source_embedding.token_embedding.weight
        table[6], table[7] = 3 * table[5] + 1e-3, -table[5]  # 2, 3, 4
    actual = nearest_tokens(subject, "source", "2")
    assert (actual[0][0], actual[-1][0]) == ("3", "4")
    assert actual[0][1] == pytest.approx(1, abs=1e-3)
    assert actual[-1][1] == pytest.approx(-1)
    assert [s for _, s in actual] == sorted((s for _, s in actual), reverse=True)
    assert len(actual) == 11
    assert {name for name, _ in actual} == {"SOS", "EOS", *"013456789"}


def test_the_projection_keeps_two_dimensions():
    subject = random_model()
    names, table_ND = token_embeddings(subject, "target")
    corners = [(3.0, 1.0), (-3.0, 1.0), (-3.0, -1.0), (3.0, -1.0)] * 3
    with torch.no_grad():
        subject.transformer.target_embedding.token_embedding.weight[1:] = (
            5 + torch.tensor(corners) @ torch.eye(16)[[4, 9]]
        )
    flat = embedding_pca(subject, "target")
    assert flat.names == names
    assert flat.explained_variance == pytest.approx((0.9, 0.1))
    for place, corner in zip(flat.coordinates, corners, strict=True):
        assert [abs(x) for x in place] == pytest.approx([abs(x) for x in corner], abs=1e-5)
    assert not torch.equal(table_ND, token_embeddings(random_model(), "source")[1])


def test_an_unknown_side_or_symbol_is_rejected(mixed):
    with pytest.raises(InspectionError, match="choose source or target"):
        embedding_pca(mixed, "left")
    with pytest.raises(
        InspectionError, match="'x' is not a token of this model; choose one of SOS, EOS, 0, 1"
    ):
        nearest_tokens(mixed, "source", "x")


def test_vectors_of_one_number_lie_on_a_line():
    flat = embedding_pca(random_model(d_model=1, n_heads=1), "source")
    assert {y for _, y in flat.coordinates} == {0}
    assert len({x for x, _ in flat.coordinates}) > 2
    assert flat.explained_variance == (pytest.approx(1), 0)
