import pytest
import torch

from playground.inspection.attention_recording import record_teacher_forced
from playground.inspection.inspected_model import InspectionError
from playground.inspection.masks import (
    TUTORIAL_EXAMPLE,
    causal_mask_rows,
    compare_attention_types,
    masked_softmax,
    padding_mask_row,
)
from tests.support.handcrafted_models import NON_STANDARD_SETTINGS, random_model


def test_the_padding_mask_is_one_at_real_tokens():
    assert padding_mask_row([87, 600, 0, 0, 0]) == [1, 1, 0, 0, 0]


def test_the_look_ahead_mask_is_one_below_and_on_the_diagonal():
    assert causal_mask_rows(3) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_the_softmax_without_and_with_the_mask_is_the_published_one():
    actual = masked_softmax(TUTORIAL_EXAMPLE["scores"])
    assert actual.is_token == [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]
    for rows, published in (
        (actual.unmasked, TUTORIAL_EXAMPLE["unmasked"]),
        (actual.masked, TUTORIAL_EXAMPLE["masked"]),
    ):
        for row, expected in zip(rows, published, strict=True):
            assert row == pytest.approx(expected, abs=6e-5)  # published to four digits
            assert sum(row) == pytest.approx(1)


def test_scores_may_be_negative():
    assert masked_softmax([[-1, -1, 0]]).masked == [[0.5, 0.5, 0]]


@pytest.mark.parametrize(
    ("scores", "expected_message"),
    [
        ([], "type 1 to 64 rows"),
        ([[]], "type 1 to 64 rows"),
        ([[1, 2], [1]], "equal length"),
        ([[1.0] * 65], "at most 64"),
        ([[1, float("nan")]], "not finite"),
        ([[1, float("inf")]], "not finite"),
        ([[1, 2], [0, 0]], "only zeros"),
    ],
)
def test_invalid_scores_are_rejected(scores, expected_message):
    with pytest.raises(InspectionError, match=expected_message):
        masked_softmax(scores)


def test_four_kinds_of_attention_on_one_sequence():
    subject = random_model()
    batch = subject.encode_text("3 1 4 1")
    kinds = compare_attention_types(subject, batch, layer=1)
    assert {name: tuple(weights.shape) for name, weights in kinds.items()} == {
        "bidirectional": (1, 5, 5),
        "causal": (1, 5, 5),
        "cross": (1, 5, 5),
        "multi-head": (4, 5, 5),
    }
    for weights in kinds.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    torch.testing.assert_close(
        kinds["multi-head"],
        record_teacher_forced(subject.transformer, batch).attention_weights["encoder"][1, 0],
    )
    ahead = torch.ones(5, 5).triu(1).bool()
    assert (kinds["bidirectional"][0][ahead] > 0).all()
    assert (kinds["causal"][0][ahead] == 0).all()
    past = kinds["bidirectional"][0] * ~ahead  # the same scores with the future left out
    torch.testing.assert_close(kinds["causal"][0], past / past.sum(-1, keepdim=True))
    assert not torch.allclose(kinds["cross"], kinds["bidirectional"])


@pytest.mark.parametrize("part", NON_STANDARD_SETTINGS, ids=lambda part: part["position_type"])
def test_attention_of_other_architectures_is_recorded(part):
    subject = random_model(**part)
    batch = subject.encode_text("3 1 4 1")
    kinds = compare_attention_types(subject, batch)
    torch.testing.assert_close(
        kinds["multi-head"],
        record_teacher_forced(subject.transformer, batch).attention_weights["encoder"][0, 0],
    )
    assert all(weights.shape[-2:] == (5, 5) for weights in kinds.values())


def test_where_a_model_has_one_head_that_head_is_the_bidirectional_one(one_head):
    kinds = compare_attention_types(one_head, one_head.encode_text("3 1 4"))
    torch.testing.assert_close(kinds["multi-head"], kinds["bidirectional"])


def test_several_sequences_or_an_unknown_layer_are_rejected(mixed):
    with pytest.raises(InspectionError, match="the batch has 2 sequences"):
        compare_attention_types(mixed, mixed.held_out(2).batch)
    with pytest.raises(InspectionError, match="the layers 0 to 1"):
        compare_attention_types(mixed, mixed.encode_text("3"), layer=2)
