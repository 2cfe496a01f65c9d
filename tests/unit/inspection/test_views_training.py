import math

import pytest
import torch
import torch.nn.functional as F

from playground.inspection.attention_recording import record_teacher_forced
from playground.inspection.views import render_view
from playground.inspection.views.training import PAPER_SCHEDULES
from tests.support.handcrafted_models import random_model


def render(subject, **options):
    response = render_view(subject, "training", {"text": "5 3 9", **options})
    assert "error" not in response, response
    return response


def test_the_smoothed_target_is_that_of_the_loss():
    subject = random_model()
    response = render(subject, position=1)
    batch = subject.encode_text("5 3 9")
    logits_V = record_teacher_forced(subject.transformer, batch).logits_BTV[0, 1]
    smoothed_V = torch.tensor(response["smoothed"])
    assert response["labels"] == ["9", "3", "5", "EOS"]
    assert response["names"][int(smoothed_V.argmax())] == "3"
    assert sum(response["smoothed"]) == pytest.approx(1, abs=1e-4)
    assert response["predicted"] == pytest.approx(logits_V.softmax(-1).tolist(), rel=1e-4)
    expected = -(smoothed_V * logits_V.log_softmax(-1)).sum()
    assert response["losses"]["smoothed"] == pytest.approx(float(expected), rel=1e-3)
    plain = F.cross_entropy(logits_V[None], batch.labels_BT[0, 1:2])
    assert response["losses"]["plain"] == pytest.approx(float(plain), rel=1e-4)
    entropy = -sum(p * math.log(p) for p in response["smoothed"])
    assert response["losses"]["lowest"] == pytest.approx(entropy, rel=1e-3)
    assert response["losses"]["lowest"] < response["losses"]["smoothed"]


def test_the_papers_schedule_turns_at_the_end_of_the_warm_up():
    rates = render(random_model())["rates"]
    assert [each["steps"][-1] for each in rates] == [20_000] * 3
    assert [each["peak"][0] for each in rates] == [warmup for _, warmup in PAPER_SCHEDULES]
    assert rates[0]["peak"][1] == pytest.approx(512**-0.5 * 4000**-0.5, rel=1e-2)
    for each in rates:
        turn = each["steps"].index(each["peak"][0])
        assert each["rates"][: turn + 1] == sorted(each["rates"][: turn + 1])
        assert each["rates"][turn:] == sorted(each["rates"][turn:], reverse=True)


def test_the_schedule_of_the_model_has_its_steps():
    subject = random_model(max_steps=300, lr_decay_steps=300, learning_rate=1e-3)
    own, paper = render(subject, schedule="model")["rates"]
    assert own["label"] == "this model (cosine)"
    assert own["steps"][-1] == paper["steps"][-1] == 300
    assert max(own["rates"]) <= 1e-3
    assert paper["peak"][0] == 300  # the warm-up is longer than the run


def test_an_invalid_schedule_is_rejected_and_a_large_position_is_the_last():
    error = render_view(random_model(), "training", {"text": "5 3 9", "schedule": "none"})["error"]
    assert "choose one of paper, model" in error
    assert render(random_model(), position=99)["position"] == 3
