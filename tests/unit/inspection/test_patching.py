import pytest

from playground.inspection.components import Component, heads, replaced
from playground.inspection.patching import patch_heads
from playground.inspection.subject import NotInspectable
from playground.tasks import UnknownSymbol
from tests.support.handmade import WORKER, random_subject, reversing_subject


def test_only_the_reversing_head_recovers_the_patched_symbol():
    subject = reversing_subject()
    patching = patch_heads(subject, "3 1 4 1 5", 3, "7")
    assert (patching.source, patching.changed) == ([6, 4, 7, 4, 8], [6, 4, 7, 10, 8])
    assert (patching.position, patching.token, patching.other) == (1, 4, 10)
    assert patching.before > 5
    assert patching.after < -5
    assert list(patching.recovered) == heads(subject.family.config)
    for head, share in patching.recovered.items():
        assert share == pytest.approx(1.0 if head == Component("cross", *WORKER) else 0.0, abs=0.01)


def test_the_share_is_of_the_way_back_to_the_logit_difference_before(one_head):
    family, task = one_head.family, one_head.task
    patching = patch_heads(one_head, "2 7 1 8", 0, "5")
    assert (task.vocabulary.name(patching.token), task.vocabulary.name(patching.other), patching.position) == ("2", "5", 3)
    given_BT = one_head.read("2718").decoder_input_BT

    def difference(text):
        logits_V = family(one_head.read(text).source_BS, given_BT)[0, 3].detach()
        return float(logits_V[patching.token] - logits_V[patching.other])

    assert patching.before == pytest.approx(difference("2718"))
    assert patching.after == pytest.approx(difference("5718"))
    assert patching.before > 0 > patching.after
    cross = Component("cross", 0, 0)
    mixes = []
    handle = family.decoder_layers[0].cross_attention.output.register_forward_pre_hook(lambda module, given: mixes.append(given[0]))
    difference("2718")
    handle.remove()
    with replaced(family, {cross: mixes[0].detach()}):
        back = difference("5718")
    assert patching.recovered[cross] == pytest.approx((back - patching.after) / (patching.before - patching.after), abs=1e-5)
    assert patching.recovered[cross] > 0.8


@pytest.mark.parametrize(
    ("place", "symbol", "says"),
    [
        (3, "7", "position is 3; this sequence has the positions 0 to 2"),
        (-1, "7", "position is -1"),
        (1, "1", "other than 1"),
        (1, "", "give one symbol of 0–9"),
        (1, "23", "give one symbol of 0–9"),
    ],
)
def test_a_replacement_that_says_nothing_is_refused(mixed, place, symbol, says):
    with pytest.raises(NotInspectable, match=says):
        patch_heads(mixed, "3 1 4", place, symbol)


def test_unknown_symbols_and_sequences_that_cannot_be_read_are_refused(mixed):
    with pytest.raises(UnknownSymbol):
        patch_heads(mixed, "3 1 4", 1, "x")
    with pytest.raises(NotInspectable, match="no symbol"):
        patch_heads(mixed, "", 0, "1")


def test_patching_rejects_insensitive_models_and_tasks():
    deaf = random_subject()
    deaf.family.output.weight.data.zero_()
    with pytest.raises(NotInspectable, match="hardly changes"):
        patch_heads(deaf, "3 1 4", 1, "7")

    class Tail(type(deaf.task)):
        name = "tail"

        def answer(self, sequence_BL, lengths_B):
            return sequence_BL.roll(-1, dims=1), lengths_B - 1

    careless = type(deaf)(deaf.config, deaf.family, Tail())
    with pytest.raises(NotInspectable, match="does not depend on position 0"):
        patch_heads(careless, "3 1 4", 0, "7")


def test_where_nobody_knows_the_right_answer_nothing_is_patched(rowed):
    for text, place, symbol in (("b a", 0, "c"), ("c a", 0, "b")):
        with pytest.raises(NotInspectable, match="the target of b a is unknown"):
            patch_heads(rowed, text, place, symbol)
