import math

import pytest
import torch

from playground.inspection.embeddings import (
    embedding_pca,
    nearest_tokens,
    token_embeddings,
    wavelength,
)
from playground.models.embeddings import sinusoidal_positions
from tests.support.handcrafted_models import random_model


@pytest.mark.parametrize(("dimension", "period"), [(0, 6.3), (15, 47)])
def test_wavelengths_are_those_of_the_sinusoids(dimension, period):
    assert wavelength(dimension, 64) == pytest.approx(period, rel=0.004)
    wave_P = sinusoidal_positions(1000, 64)[:, dimension].double()
    angle_P = 2 * math.pi * torch.arange(1000).double() / wavelength(dimension, 64)
    torch.testing.assert_close(
        wave_P, angle_P.cos() if dimension % 2 else angle_P.sin(), atol=1e-3, rtol=0
    )


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


def test_vectors_of_one_number_lie_on_a_line():
    flat = embedding_pca(random_model(d_model=1, n_heads=1), "source")
    assert {y for _, y in flat.coordinates} == {0}
    assert len({x for x, _ in flat.coordinates}) > 2
    assert flat.explained_variance == (pytest.approx(1), 0)
