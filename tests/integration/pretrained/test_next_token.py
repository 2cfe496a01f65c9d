"""The next token of a prompt equals that of plain transformers, and the lesson describes it."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.lessons.measurements import MEASURES
from playground.pretrained import next_token
from playground.pretrained.jobs import run
from tests.support.handcrafted_models import reversing_model

PROMPT = "The capital of France is"


def predict(model, text=PROMPT):
    return run("next-token", {"model": model, "text": text}, ProgressReporter())


@pytest.fixture
def chat_model(tiny_gpt2, tmp_path):
    """The fixture with a chat template: a user's message, and the beginning of an answer."""
    folder = shutil.copytree(tiny_gpt2, tmp_path / "chat")
    template = "Input: {{ messages[0].content }}\nOutput:"
    (folder / "chat_template.jinja").write_text(template)
    return str(folder)


@torch.no_grad()
def plain_output(folder, text):
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    ids = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    output = model(torch.tensor([ids]), output_attentions=True)
    return ids, output.logits[0, -1], torch.cat(output.attentions)


def assert_prediction_of(folder, text, prediction):
    """Compare a prediction with a plain forward pass of transformers."""
    ids, logits_V, weights_LHQM = plain_output(folder, text)
    assert [token["id"] for token in prediction["tokens"]] == ids
    best = logits_V.topk(8)
    candidates = prediction["candidates"]
    assert [each["id"] for each in candidates] == best.indices.tolist()
    assert [each["logit"] for each in candidates] == pytest.approx(best.values.tolist(), abs=1e-5)
    for row in prediction["temperatures"]:
        ordered_V = (logits_V / row["temperature"]).softmax(-1).sort(descending=True).values
        assert row["probabilities"] == pytest.approx(ordered_V[:8].tolist(), abs=1e-5)
        size = row["nucleus"]
        assert ordered_V[:size].sum() >= 0.9 > ordered_V[: size - 1].sum()
    shares_LH = weights_LHQM[:, :, 1:, 0].mean(-1)
    torch.testing.assert_close(torch.tensor(prediction["sinks"]), shares_LH, atol=1e-5, rtol=0)
    mean = sum(1 / n for n in range(2, len(ids) + 1)) / (len(ids) - 1)
    assert prediction["uniform"] == pytest.approx(mean)


@pytest.mark.smoke
def test_the_next_token_is_that_of_transformers(tiny_gpt2):
    result = predict(tiny_gpt2)
    assert_prediction_of(tiny_gpt2, PROMPT, result["plain"])
    assert result["plain"]["candidates"][0]["word"] == " Paris"
    assert result["chat"] is None


def test_a_chat_is_predicted_after_its_template(chat_model):
    result = predict(chat_model, "3 1 4")
    assert_prediction_of(chat_model, "3 1 4", result["plain"])
    assert_prediction_of(chat_model, "Input: 3 1 4\nOutput:", result["chat"])


def test_one_token_has_no_sink_and_too_many_are_rejected(tiny_gpt2, monkeypatch):
    assert predict(tiny_gpt2, "T")["plain"]["sinks"] is None
    monkeypatch.setattr(next_token, "MAX_TOKENS", 4)
    with pytest.raises(UserError, match="the maximum is 4; shorten it"):
        predict(tiny_gpt2)


def test_the_lesson_describes_the_prediction(chat_model):
    subject = reversing_model()
    measured = MEASURES["next_token_probability"](
        [SimpleNamespace(subject=subject)], {"pretrained_result": predict(chat_model)}
    )
    assert measured["outcome"] in measured["explanation"]
    assert "“ Paris”" in measured["explanation"]
    assert "Its chat template writes the prompt" in measured["explanation"]
    kinds = [figure["kind"] for figure in measured["figures"]]
    assert kinds == ["bars", "bars", "curves", "map"]
    bars, chat, curves, sinks = measured["figures"]
    assert measured["value"] == pytest.approx(100 * bars["bars"][0]["value"], abs=0.05)
    assert chat["bars"] != bars["bars"]
    assert curves["series"][0]["ys"][0] > curves["series"][0]["ys"][-1]  # a high one is flatter
    assert len(sinks["weights"]) == len(sinks["rows"])
