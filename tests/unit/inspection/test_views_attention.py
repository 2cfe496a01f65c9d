"""The attention views, as a page receives them."""

import base64

import numpy as np
import pytest
import torch

from playground.checkpoints.checkpoint import build_model
from playground.inspection.attention_recording import record_free_running, record_teacher_forced
from playground.inspection.inspected_model import InspectedModel, load_inspected_model
from playground.inspection.views import render_view
from playground.tasks import EOS
from playground.training.run_config import RunConfig
from tests.support.app_server import ROOT
from tests.support.handcrafted_models import random_model


@pytest.fixture(scope="module")
def subject():
    return load_inspected_model(ROOT / "checkpoints" / "reverse")


def weights_of(result):
    flat = np.frombuffer(base64.b64decode(result["weights"]), "<i2") / 1000
    return flat.reshape(
        result["layers"], result["heads"], len(result["rows"]), len(result["columns"])
    )


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("mode", ["free-running", "teacher-forced"])
def test_attention_equals_the_recording(subject, kind, mode):
    result = render_view(subject, "attention", {"text": "3 1 4 1 5", "kind": kind, "mode": mode})
    batch = subject.encode_text("3 1 4 1 5")
    max_tokens = subject.max_new_tokens(batch)
    recording = (
        record_teacher_forced(subject.transformer, batch)
        if mode == "teacher-forced"
        else record_free_running(subject.transformer, batch.source_BS, max_tokens)[0]
    )
    np.testing.assert_allclose(
        weights_of(result), recording.attention_weights[kind][:, 0].numpy(), atol=5.1e-4
    )
    assert result["possible"] == recording.attn_mask[kind][0].int().tolist()
    assert (
        result["rows"]
        == {
            "encoder": ["3", "1", "4", "1", "5", "EOS"],
            "decoder": ["SOS", "5", "1", "4", "1", "3"],
            "cross": ["5", "1", "4", "1", "3", "EOS"],
        }[kind]
    )
    assert kind == "cross" or result["columns"] == result["rows"]
    assert result["note"] == ""


def test_a_sequence_beyond_the_training_length_has_a_note(subject):
    from dataclasses import replace

    short = replace(subject, config=subject.config.replace(max_length=10, min_length=8))
    assert (
        "trained on length 8 to 10 only" in render_view(short, "attention", {"text": "3 1"})["note"]
    )


def test_steps_are_the_answer_with_its_probabilities(subject):
    result = render_view(subject, "steps", {"text": "3 1 4"})
    assert (
        [step["token"] for step in result["steps"]]
        == ["4", "1", "3", "EOS"]
        == result["prediction"]
    )
    assert [step["prefix"] for step in result["steps"]] == [
        ["SOS"],
        ["SOS", "4"],
        ["SOS", "4", "1"],
        ["SOS", "4", "1", "3"],
    ]
    for step in result["steps"]:
        assert step["candidates"][0][0] == step["token"]
        assert len(step["candidates"]) == 5
        assert np.shape(step["cross"]) == (8, 4)
        np.testing.assert_allclose(np.sum(step["decoder"], axis=1), 1000, atol=4)


def test_drawn_steps_follow_their_seed(subject):
    def drawn(seed):
        requested = {"text": "3 1 4 1 5", "mode": "sampled", "temperature": 5.0, "seed": seed}
        return [step["token"] for step in render_view(subject, "steps", requested)["steps"]]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(4)}) > 1


@pytest.mark.parametrize("temperature", [1e-5, 1e-45, 1e-300, 5e-324])
@pytest.mark.parametrize("view", ["attention", "steps"])
def test_a_temperature_near_zero_samples_the_greedy_output(view, temperature, subject):
    request = {"text": "3 1 4 1 5", "mode": "sampled", "temperature": temperature}
    drawn = render_view(subject, view, request)
    greedy = render_view(subject, view, {"text": request["text"]})
    assert drawn["prediction"] == greedy["prediction"]
    if view == "steps":
        assert [step["probability"] for step in drawn["steps"]] == [1] * len(drawn["steps"])


@pytest.mark.parametrize("view", ["attention", "steps"])
def test_teacher_forcing_is_not_presented_as_the_models_output(view):
    untrained = random_model()
    own, inputs = (
        render_view(untrained, view, {"text": "3 1 4", "mode": mode})
        for mode in ("free-running", "teacher-forced")
    )
    assert inputs["prediction"] == own["prediction"] != inputs["target"] == ["4", "1", "3", "EOS"]
    at = inputs["rows"] if view == "attention" else [step["token"] for step in inputs["steps"]]
    assert at == inputs["target"]


@pytest.mark.parametrize("family", ["torch-transformer", "decoder-only", "bert"])
def test_a_checkpoint_of_another_architecture_is_rejected(family):
    config = RunConfig.from_flat({"architecture": family})
    untrained = InspectedModel.from_model(config, build_model(config))
    own, inputs = (
        render_view(untrained, "attention", {"text": "3 1 4", "mode": mode})
        for mode in ("free-running", "teacher-forced")
    )
    assert inputs["prediction"] == own["prediction"] != inputs["target"] == ["4", "1", "3", "EOS"]
    assert inputs["architecture"] == family  # the page's caption goes by it


def test_correctness_is_unknown_without_a_target(rowed):
    views = ("attention", "steps", "lens", "output", "trace", "parameters", "embeddings")
    for view in views:
        result = render_view(rowed, view, {"text": "b a"})
        assert result["target"] is None, view
        assert result["prediction"], view
        assert "the target is unknown" in result["note"], view
    assert {step["target"] for step in render_view(rowed, "steps", {"text": "b a"})["steps"]} == {
        None
    }
    assert (
        "generated tokens "
        in render_view(rowed, "trace", {"text": "b a"})["steps"][3]["description"]
    )
    known = render_view(rowed, "steps", {"text": "a b"})
    assert (known["target"], known["note"], known["steps"][0]["target"]) == (
        ["b", "a", "EOS"],
        "",
        "b",
    )


@pytest.mark.parametrize("view", ["attention", "steps"])
def test_an_unknown_target_cannot_be_forced(rowed, view):
    assert (
        "the target is unknown"
        in render_view(rowed, view, {"text": "b a", "mode": "teacher-forced"})["error"]
    )


def test_output_beyond_the_training_length_is_not_truncated():
    subject = random_model(max_length=3)
    with torch.no_grad():
        subject.transformer.output_proj.bias[EOS] = -1e6  # it never ends
    for text, n in (("3 1 4", 4), ("3 1 4 1 5 9 2", 8), ("3 1 4 1 5 9 2 6", 9)):
        for view in ("attention", "steps", "lens", "output", "trace"):
            assert len(render_view(subject, view, {"text": text})["prediction"]) == n, view
