"""Alignment scores of cross-attention heads on weights with known shares."""

import pytest
import torch

from playground.inspection.cross_attention_alignment import diagonal, score_alignment


def test_alignment_is_one_on_the_diagonal_and_the_baseline_if_uniform():
    heads = torch.cat([torch.full((1, 1, 6, 6), 1 / 6), torch.eye(6).expand(1, 1, 6, 6)], 1)
    result = score_alignment(heads, diagonal(6, 6))
    baseline = result["baseline"]
    assert result["scores"][0] == pytest.approx([baseline["score"], 1.0])
    assert result["best"] == {"layer": 0, "head": 1}
    # two of six columns are within one position of the diagonal in the first and the last row
    assert baseline["score"] == pytest.approx((2 * 2 + 4 * 3) / 36)
    # the last column is near the diagonal of the last two rows
    assert baseline["last"] == pytest.approx(4 / 36)
    assert result["last"][0] == pytest.approx([4 / 36, 0])


def test_shares_are_disjoint_and_exclude_the_prefix():
    weights = torch.zeros(1, 1, 3, 6)
    weights[..., 0] = 0.5  # on the prefix
    weights[..., -1] = 0.5
    result = score_alignment(weights, diagonal(3, 6, start=1), start=1)
    # the diagonal is 1, 3, 5: the last column is near it in the last row only
    assert diagonal(3, 6, start=1).tolist() == [1, 3, 5]
    assert result["scores"] == [[pytest.approx(0.5 / 3)]]
    assert result["last"] == [[pytest.approx(1 / 3)]]


def test_any_alignment_can_be_the_expected_one():
    reversed_weights = torch.eye(8).flip(1)[None, None]
    aligned = torch.arange(7, -1, -1)
    assert score_alignment(reversed_weights, aligned)["scores"] == [[1.0]]
    assert score_alignment(reversed_weights, diagonal(8, 8))["scores"][0][0] < 0.5


def test_one_query_is_aligned_with_the_first_position():
    assert diagonal(1, 5).tolist() == [0]
