import pytest
import torch

from playground.inspection.views.weights import nearest_tokens, project, token_embeddings
from tests.support.handcrafted_models import random_model


def test_neighbors_are_ordered_by_the_cosine_of_the_learned_vectors():
    subject = random_model()
    with torch.no_grad():
        table = subject.transformer.source_embedding.token_embedding.weight
        table[6], table[7] = 3 * table[5] + 1e-3, -table[5]  # 2, 3, 4
    actual = nearest_tokens(*token_embeddings(subject, "source"), "2")
    assert (actual[0][0], actual[-1][0]) == ("3", "4")
    assert actual[0][1] == pytest.approx(1, abs=1e-3)
    assert actual[-1][1] == pytest.approx(-1)
    assert [s for _, s in actual] == sorted((s for _, s in actual), reverse=True)
    assert len(actual) == 11
    assert {name for name, _ in actual} == {"SOS", "EOS", *"013456789"}


def test_the_projection_keeps_two_dimensions():
    corners_N2 = torch.tensor([(3.0, 1.0), (-3.0, 1.0), (-3.0, -1.0), (3.0, -1.0)] * 3)
    coordinates_N2, variance_fraction_2 = project(5 + corners_N2 @ torch.eye(16)[[4, 9]])
    assert variance_fraction_2.tolist() == pytest.approx((0.9, 0.1))
    torch.testing.assert_close(coordinates_N2.abs().float(), corners_N2.abs())


def test_vectors_of_one_number_lie_on_a_line():
    _, table_ND = token_embeddings(random_model(d_model=1, n_heads=1), "source")
    coordinates_N2, variance_fraction_2 = project(table_ND)
    assert set(coordinates_N2[:, 1].tolist()) == {0}
    assert len(set(coordinates_N2[:, 0].tolist())) > 2
    assert variance_fraction_2.tolist() == [pytest.approx(1), 0]
