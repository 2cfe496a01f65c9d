"""The attention views, as a page receives them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from playground.checkpoints.checkpoint import build_model
from playground.inspection.attention_recording import record_free_running, record_teacher_forced
from playground.inspection.inspected_model import InspectedModel, load_inspected_model
from playground.inspection.views.attention_maps import unpack_uint16
from playground.tasks import EOS
from playground.training.run_config import RunConfig
from tests.support.app_server import ROOT
from tests.support.handcrafted_models import random_model
from tests.support.inspectors import render_view


@pytest.fixture(scope="module")
def subject():
    return load_inspected_model(ROOT / "checkpoints" / "reverse")


def weights_of(result):
    shape = result["layers"], result["heads"], len(result["rows"]), len(result["columns"])
    return unpack_uint16(result["weights"], *shape)


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
    rows = {"encoder": [*"31415", "EOS"], "decoder": ["SOS", *"51413"], "cross": [*"51413", "EOS"]}
    assert result["rows"] == rows[kind]
    assert kind == "cross" or result["columns"] == result["rows"]
    assert result["note"] == ""


def test_a_sequence_beyond_the_training_length_has_a_note(subject):
    short = replace(subject, config=subject.config.replace(max_length=10, min_length=8))
    note = render_view(short, "attention", {"text": "3 1"})["note"]
    assert "trained on length 8 to 10 only" in note


@pytest.mark.parametrize("family", ["transformer", "torch-transformer", "decoder-only", "bert"])
def test_teacher_forcing_is_not_presented_as_the_output_of_a_model(family):
    config = RunConfig.from_flat({"architecture": family})
    untrained = InspectedModel.from_model(config, build_model(config))
    own, inputs = (
        render_view(untrained, "attention", {"text": "3 1 4", "mode": mode})
        for mode in ("free-running", "teacher-forced")
    )
    assert inputs["prediction"] == own["prediction"] != inputs["target"] == ["4", "1", "3", "EOS"]
    assert inputs["architecture"] == family  # the page's caption goes by it
    assert (inputs["rows"] == inputs["target"]) == (family in ("transformer", "torch-transformer"))


def test_correctness_is_unknown_without_a_target_to_force(rowed):
    views = ("attention", "lens", "output", "trace", "parameters", "embeddings")
    for view in views:
        result = render_view(rowed, view, {"text": "b a"})
        assert result["target"] is None, view
        assert result["prediction"], view
        assert "the target is unknown" in result["note"], view
    forced = render_view(rowed, "attention", {"text": "b a", "mode": "teacher-forced"})
    assert "the target is unknown" in forced["error"]
    known = render_view(rowed, "attention", {"text": "a b"})
    assert (known["target"], known["note"]) == (["b", "a", "EOS"], "")


def test_output_beyond_the_training_length_is_not_truncated():
    subject = random_model(max_length=3)
    with torch.no_grad():
        subject.transformer.output_proj.bias[EOS] = -1e6  # it never ends
    for text, n in (("3 1 4", 4), ("3 1 4 1 5 9 2", 8), ("3 1 4 1 5 9 2 6", 9)):
        for view in ("attention", "lens", "output", "trace"):
            assert len(render_view(subject, view, {"text": text})["prediction"]) == n, view
