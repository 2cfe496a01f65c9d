import pytest
import torch

from playground.inspection.activation_patching import (
    corrupt,
    patch_heads,
    patch_layers,
    similar_pairs,
)
from playground.inspection.hooks import Component
from playground.inspection.inspected_model import InspectionError
from playground.tasks import UnknownSymbolError
from tests.support.handcrafted_models import REVERSING_HEAD, random_model, reversing_model


def test_the_single_working_head_restores_the_whole_difference():
    for position in range(5):
        pair = corrupt(reversing_model().encode_text("31415"), position, "7")
        assert pair.position == 4 - position
        _, _, recovered = patch_heads(pair)
        assert recovered.pop(Component("cross", *REVERSING_HEAD)) == pytest.approx(1, abs=0.01)
        assert list(recovered.values()) == [pytest.approx(0, abs=0.01)] * len(recovered)


def test_a_token_is_carried_at_its_position_and_then_at_its_output():
    pair = corrupt(reversing_model().encode_text("31415"), 1, "7")
    tables = patch_layers(similar_pairs(pair, n=3))
    for side, position in (("source", 1), ("target", pair.position)):
        for table in (tables[side].restored_LP, tables[side].lost_LP):
            expected_LP = torch.zeros_like(table)
            if side == "source":
                expected_LP[:, position] = 1
            else:  # from the layer of the head on
                expected_LP[REVERSING_HEAD[0] :, position] = 1
            torch.testing.assert_close(table, expected_LP, atol=0.02, rtol=0)


@pytest.mark.parametrize(
    ("position", "replacement", "expected_message"),
    [
        (3, "7", "position is 3; this sequence has the positions 0 to 2"),
        (-1, "7", "position is -1"),
        (1, "1", "other than 1"),
        (1, "", "enter one of 0–9"),
        (1, "23", "enter one of 0–9"),
        (1, "x", "'x' is not a token"),
    ],
)
def test_a_replacement_without_effect_is_rejected(mixed, position, replacement, expected_message):
    with pytest.raises((InspectionError, UnknownSymbolError), match=expected_message):
        corrupt(mixed.encode_text("3 1 4"), position, replacement)


def test_patching_rejects_insensitive_models_and_tasks():
    deaf = random_model()
    deaf.transformer.output_proj.weight.data.zero_()
    with pytest.raises(InspectionError, match="hardly changes"):
        patch_heads(corrupt(deaf.encode_text("3 1 4"), 1, "7"))

    class Tail(type(deaf.task)):
        name = "tail"

        def target(self, sequence_BL, lengths_B):
            return sequence_BL.roll(-1, dims=1), lengths_B - 1

    careless = type(deaf)(deaf.config, deaf.transformer, Tail())
    with pytest.raises(InspectionError, match="does not depend on position 0"):
        corrupt(careless.encode_text("3 1 4"), 0, "7")


def test_without_a_known_target_nothing_is_patched(rowed):
    for text, position, replacement in (("b a", 0, "c"), ("c a", 0, "b")):
        with pytest.raises(InspectionError, match="the target of b a is unknown"):
            corrupt(rowed.encode_text(text), position, replacement)
