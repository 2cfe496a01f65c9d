"""The view of the decoding steps."""

import pytest
import torch

from playground.inspection.views import render_view
from playground.tasks import EOS, SOS
from tests.support.handcrafted_models import random_model


def steps_of(subject, text="3 1 4", **options):
    result = render_view(subject, "steps", {"text": text, **options})
    assert "error" not in result, result
    return result["steps"]


def column(steps, name):
    return [step[name] for step in steps]


def test_a_greedy_answer_is_written_symbol_by_symbol_until_eos(mixed):
    steps = steps_of(mixed)
    assert column(steps, "token") == column(steps, "target") == ["4", "1", "3", "EOS"]
    assert column(steps, "prefix") == [["SOS", "4", "1", "3"][:n] for n in (1, 2, 3, 4)]
    for t, step in enumerate(steps):
        assert step["candidates"][0] == [step["token"], step["probability"]]
        assert step["probability"] > 0.9
        decoder, cross = torch.tensor(step["decoder"]), torch.tensor(step["cross"])
        assert (decoder.shape, cross.shape) == ((8, t + 1), (8, 4))
        for sums in (decoder.sum(-1), cross.sum(-1)):
            assert ((sums - 1000).abs() <= 4).all()


def test_candidates_are_the_five_most_probable_tokens():
    subject = random_model()
    step = steps_of(subject)[0]
    source_BS = subject.encode_text("3 1 4").source_BS
    with torch.no_grad():
        probability_V = subject.transformer(source_BS, torch.tensor([[SOS]]))[0, 0].softmax(-1)
    best = probability_V.topk(5)
    assert [name for name, _ in step["candidates"]] == subject.token_names(best.indices.tolist())
    assert [p for _, p in step["candidates"]] == pytest.approx(best.values.tolist(), abs=2e-6)


def test_teacher_forced_steps_continue_the_target():
    subject = random_model()
    steps = steps_of(subject, mode="teacher-forced")
    target = ["4", "1", "3", "EOS"]
    assert column(steps, "prefix") == [["SOS", *target][:n] for n in (1, 2, 3, 4)]
    assert column(steps, "token") == column(steps, "target") == target
    batch = subject.encode_text("3 1 4")
    with torch.no_grad():
        probability_TV = subject.transformer(batch.source_BS, batch.decoder_input_BT)[0].softmax(-1)
    expected = [float(probability_TV[t, token]) for t, token in enumerate(batch.labels_BT[0])]
    assert column(steps, "probability") == pytest.approx(expected, abs=2e-6)
    assert column(steps_of(subject), "token") != target


def test_sampling_follows_its_seed_and_shows_the_probabilities():
    subject = random_model()
    first = [
        steps_of(subject, mode="sampled", temperature=2.0, seed=seed)[0] for seed in (*range(20), 3)
    ]
    assert first[-1] == first[3]
    assert len(set(column(first, "token"))) > 2
    source_BS = subject.encode_text("3 1 4").source_BS
    logits_V = subject.transformer(source_BS, torch.tensor([[SOS]]))[0, 0].detach()
    expected = (logits_V / 2).softmax(-1).topk(5).values.tolist()
    assert [p for _, p in first[0]["candidates"]] == pytest.approx(expected, abs=2e-6)


def test_positions_beyond_the_target_have_no_target_token():
    subject = random_model()
    with torch.no_grad():
        subject.transformer.output_proj.bias[EOS] = -1e9
    steps = steps_of(subject, "3")
    assert column(steps, "target") == ["3", "EOS", *[None] * 5]


@pytest.mark.parametrize("temperature", [0, -1, 5.1, "1", None, True])
def test_a_temperature_that_is_not_accepted_is_named(temperature):
    request = {"text": "3 1 4", "mode": "sampled", "temperature": temperature}
    error = render_view(random_model(), "steps", request)["error"]
    assert f"temperature is {temperature!r}; give a number above 0 and at most 5" in error
