import itertools

import pytest
import torch

from playground.inspection.recording import possible, record_forced, record_free
from playground.tasks import EOS, PAD, SOS
from tests.support.handmade import random_subject
from tests.support.numpy_model import attention_by_hand

KINDS = ("encoder", "decoder", "cross")
RECIPES = [
    {"norm": "pre", "positions": "learned"},
    {"norm": "post", "positions": "sinusoidal", "attention_bias": False},
    {"norm": "pre", "positions": "sinusoidal", "share_embeddings": True, "tie_output": True, "n_layers": 3, "n_heads": 1},
    {"norm": "post", "positions": "learned", "dropout": 0.5, "n_heads": 8},
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_recorded_attention_is_what_follows_from_the_weights_by_hand(recipe):
    subject = random_subject(**recipe)
    batch = subject.held_out(8).batch  # of every length from 1 to 6, so padded
    assert (batch.source_BS == PAD).any()
    recording = record_forced(subject.family, batch)
    by_hand, logits = attention_by_hand(subject.family, batch.source_BS, batch.decoder_input_BT)
    for kind in KINDS:
        layers = recording.attention[kind]
        assert layers.shape[:3] == (subject.family.config.n_layers, len(batch.source_BS), subject.family.config.n_heads)
        for layer, row, head in itertools.product(*map(range, layers.shape[:3])):
            expected_QM = torch.from_numpy(by_hand[kind][layer][row][head]).float()
            torch.testing.assert_close(layers[layer, row, head], expected_QM, atol=1e-6, rtol=0)
    torch.testing.assert_close(recording.logits_BTV, torch.stack([torch.from_numpy(row).float() for row in logits]), atol=1e-5, rtol=1e-5)


def test_shipped_model_attention_matches_reference_computation(mixed):
    batch = mixed.held_out(12).batch
    recording = record_forced(mixed.family, batch)
    by_hand, _ = attention_by_hand(mixed.family, batch.source_BS, batch.decoder_input_BT)
    for kind in KINDS:
        expected_LBHQM = torch.tensor([[[matrix.tolist() for matrix in row] for row in layer] for layer in by_hand[kind]])
        torch.testing.assert_close(recording.attention[kind], expected_LBHQM, atol=1e-5, rtol=0)  # scores of 20 in float32


@pytest.mark.parametrize("recipe", RECIPES)
def test_rows_sum_to_one_and_are_zero_exactly_where_one_cannot_look(recipe):
    subject = random_subject(**recipe)
    batch = subject.held_out(8).batch
    free, _ = record_free(subject.family, batch.source_BS, 7)
    for recording in (record_forced(subject.family, batch), free):
        for kind in KINDS:
            weights_LBHQM, may_look_BQM = recording.attention[kind], recording.possible[kind]
            torch.testing.assert_close(weights_LBHQM.sum(-1), torch.ones(weights_LBHQM.shape[:-1]))
            assert torch.equal((weights_LBHQM > 0).all(2).all(0), may_look_BQM)
            assert torch.equal((weights_LBHQM == 0).all(2).all(0), ~may_look_BQM)


def test_what_is_impossible_is_the_future_and_the_padding_of_the_source():
    may_look = possible(torch.tensor([[3, 2, PAD]]), torch.tensor([[SOS, 3]]))
    assert may_look["encoder"].tolist() == [[[True, True, False]] * 3]
    assert may_look["decoder"].tolist() == [[[True, False], [True, True]]]
    assert may_look["cross"].tolist() == [[[True, True, False]] * 2]


def test_free_running_attention_is_that_of_writing_symbol_by_symbol():
    subject = random_subject()
    batch = subject.held_out(8).batch
    family, source_BS = subject.family, batch.source_BS
    recording, written_BT = record_free(family, source_BS, 7)
    assert torch.equal(written_BT, family.solve(source_BS, 7)[:, : written_BT.shape[1]])
    for t in range(written_BT.shape[1]):
        shorter = torch.cat([torch.full((len(source_BS), 1), SOS), written_BT[:, :t]], dim=1)
        with torch.no_grad():
            logits_BTV, record = family.forward_with_attention(source_BS, shorter)
        torch.testing.assert_close(recording.logits_BTV[:, t], logits_BTV[:, t], atol=1e-5, rtol=1e-5)
        for layer in range(2):
            torch.testing.assert_close(recording.attention["cross"][layer][:, :, t], record.cross_attention[layer][:, :, t])
            torch.testing.assert_close(recording.attention["decoder"][layer][:, :, t, : t + 1], record.decoder_attention[layer][:, :, t])


def test_the_first_token_is_given_as_sos_and_the_rest_as_it_was_written(mixed):
    batch = mixed.read("3 1 4")
    recording, written_BT = record_free(mixed.family, batch.source_BS, mixed.max_tokens(batch))
    assert written_BT.tolist() == [[7, 4, 6, EOS]]
    assert recording.given_BT.tolist() == [[SOS, 7, 4, 6]]
    forced = record_forced(mixed.family, batch)
    for kind in KINDS:
        torch.testing.assert_close(recording.attention[kind], forced.attention[kind], atol=1e-5, rtol=0)


def test_the_same_seed_draws_the_same_answer_and_another_seed_another():
    subject = random_subject()
    source_BS = subject.held_out(30).batch.source_BS
    answers = [record_free(subject.family, source_BS, 7, temperature=1.5, seed=seed)[1] for seed in (1, 1, 2)]
    assert torch.equal(answers[0], answers[1])
    assert answers[0].shape != answers[2].shape or not torch.equal(answers[0], answers[2])


def test_looking_leaves_the_model_as_it_was(mixed):
    batch = mixed.read("3 1 4 1 5")
    state = torch.get_rng_state()
    before = mixed.family(batch.source_BS, batch.decoder_input_BT)
    record_forced(mixed.family, batch)
    record_free(mixed.family, batch.source_BS, 11, temperature=1.0)
    assert torch.equal(mixed.family(batch.source_BS, batch.decoder_input_BT), before)
    assert torch.equal(torch.get_rng_state(), state)
