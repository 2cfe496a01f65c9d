import pytest
import torch

from playground.inspection.generation_steps import free_running_steps, teacher_forced_steps
from playground.tasks import EOS, PAD, SOS
from tests.support.handcrafted_models import random_model


def test_a_greedy_answer_is_written_symbol_by_symbol_until_eos(mixed):
    batch = mixed.encode_text("3 1 4")
    steps = free_running_steps(mixed.transformer, batch, mixed.max_new_tokens(batch))
    assert [step.token for step in steps] == [7, 4, 6, EOS]
    assert [step.target for step in steps] == [7, 4, 6, EOS]
    assert [step.prefix for step in steps] == [[SOS], [SOS, 7], [SOS, 7, 4], [SOS, 7, 4, 6]]
    assert [step.position for step in steps] == [0, 1, 2, 3]
    for t, step in enumerate(steps):
        assert step.top_tokens[0] == (step.token, step.probability)
        assert step.probability > 0.9
        assert step.decoder_LHM.shape == (2, 4, t + 1)
        assert step.cross_LHS.shape == (2, 4, 4)
        torch.testing.assert_close(step.decoder_LHM.sum(-1), torch.ones(2, 4))
        torch.testing.assert_close(step.cross_LHS.sum(-1), torch.ones(2, 4))


def test_candidates_are_the_five_most_probable_tokens():
    subject = random_model()
    batch = subject.encode_text("3 1 4")
    step = free_running_steps(subject.transformer, batch, 7)[0]
    with torch.no_grad():
        probabilities = (
            subject.transformer(batch.source_BS, torch.tensor([[SOS]]))[0, 0].softmax(-1).tolist()
        )
    assert len(step.top_tokens) == 5
    assert [token for token, _ in step.top_tokens] == sorted(
        range(13), key=lambda token: -probabilities[token]
    )[:5]
    assert [p for _, p in step.top_tokens] == pytest.approx(
        [probabilities[token] for token, _ in step.top_tokens], abs=1e-6
    )


def test_teacher_forced_steps_continue_the_target():
    subject = random_model()
    batch = subject.encode_text("3 1 4")
    steps = teacher_forced_steps(subject.transformer, batch)
    assert [step.prefix for step in steps] == [[SOS], [SOS, 7], [SOS, 7, 4], [SOS, 7, 4, 6]]
    assert [step.token for step in steps] == [step.target for step in steps] == [7, 4, 6, EOS]
    with torch.no_grad():
        log_TV = subject.transformer(batch.source_BS, batch.decoder_input_BT)[0].softmax(-1)
    for t, step in enumerate(steps):
        assert step.probability == pytest.approx(float(log_TV[t, step.token]), abs=1e-6)
    assert [step.token for step in free_running_steps(subject.transformer, batch, 7)] != [
        7,
        4,
        6,
        EOS,
    ]


def test_a_padded_row_ends_where_its_answer_ends():
    subject = random_model()
    batch = subject.held_out(8).batch.select(torch.tensor([0]))
    assert (batch.labels_BT[0] == PAD).any()
    assert [step.token for step in teacher_forced_steps(subject.transformer, batch)][-1] == EOS


def test_sampling_follows_its_seed_and_shows_the_probabilities():
    subject = random_model()
    batch = subject.encode_text("3 1 4")
    first = [
        free_running_steps(subject.transformer, batch, 1, temperature=2.0, seed=seed)[0]
        for seed in (*range(20), 3)
    ]
    assert (first[-1].token, first[-1].probability) == (first[3].token, first[3].probability)
    assert len({step.token for step in first}) > 2
    logits_V = subject.transformer(batch.source_BS, torch.tensor([[SOS]]))[0, 0].detach()
    expected_V = (logits_V / 2).softmax(-1)
    for token, probability in first[0].top_tokens:
        assert probability == pytest.approx(float(expected_V[token]), abs=1e-6)


def test_positions_beyond_the_target_have_no_target_token():
    subject = random_model()
    with torch.no_grad():
        subject.transformer.output_proj.bias[EOS] = -1e9
    steps = free_running_steps(subject.transformer, subject.encode_text("3"), 7)
    assert [step.target for step in steps] == [6, EOS, *[None] * 5]


def test_more_than_one_sequence_at_a_time_is_rejected(mixed):
    batch = mixed.held_out(2).batch
    for call in (
        lambda: teacher_forced_steps(mixed.transformer, batch),
        lambda: free_running_steps(mixed.transformer, batch, 11),
    ):
        with pytest.raises(ValueError, match="the batch has 2 sequences"):
            call()
    with pytest.raises(ValueError, match="temperature is -1"):
        free_running_steps(mixed.transformer, mixed.encode_text("3"), 11, temperature=-1)
