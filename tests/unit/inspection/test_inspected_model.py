import pytest
import torch

from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.checkpoint import build_model
from playground.checkpoints.manifest import CheckpointError
from playground.inspection import inspected_model as subject_module
from playground.inspection.inspected_model import (
    InspectedModel,
    InspectionError,
    load_inspected_model,
)
from playground.inspection.views import VIEWS
from playground.inspection.views.fields import SAME_WEIGHTS
from playground.tasks import EOS, SOS, UnknownSymbolError
from playground.tasks.held_out import build_held_out_set
from playground.training.run_config import RunConfig
from tests.support.handcrafted_models import reversing_model_without_eos
from tests.support.inspectors import render_view


def test_a_sequence_is_read_with_its_right_answer(mixed):
    batch = mixed.encode_text("3 1,4")
    assert batch.source_BS.tolist() == [[6, 4, 7, EOS]]
    assert batch.target_BT.tolist() == [[SOS, 7, 4, 6, EOS]]
    assert mixed.token_names(batch.target_BT[0].tolist()) == ["SOS", "4", "1", "3", "EOS"]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        *(
            (text, InspectionError, "type a sequence of 0–9, as in 3 1 4")
            for text in ("", " ", ",")
        ),
        ("3 x 4", UnknownSymbolError, "'x' is not a token of this task; use 0–9"),
        ("12345678901", InspectionError, "11 tokens; this model has positions for 10"),
    ],
)
def test_an_unusable_sequence_is_rejected_at_the_field_text(mixed, text, kind, message):
    assert mixed.encode_text("1234567890").source_BS.shape == (1, 11)
    with pytest.raises(kind, match=message) as caught:
        mixed.encode_text(text)
    assert caught.value.field == "text"


def test_held_out_sequences_have_the_lengths_of_training(mixed):
    held_out = mixed.held_out(300)
    assert len(held_out.lengths_B) == 300
    assert (int(held_out.lengths_B.min()), int(held_out.lengths_B.max())) == (1, 10)
    assert torch.equal(held_out.batch.source_BS, mixed.held_out(300).batch.source_BS)


def test_a_folder_without_a_checkpoint_is_rejected(tmp_path):
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        load_inspected_model(tmp_path)


def test_other_architectures_have_attention_and_explain_other_views():
    config = RunConfig.from_flat({"architecture": "encoder-only"})
    subject = InspectedModel.from_model(config, build_model(config))
    result = render_view(subject, "attention", {"text": "3 1 4", "kind": "cross"})
    shape = result["kind"], result["kinds"], result["layers"], result["heads"]
    assert shape == ("encoder", ["encoder"], 2, 4)
    assert result["rows"][:4] == ["3", "1", "4", "EOS"]
    message = "needs the encoder-decoder transformer from scratch; .* architecture 'Encoder only'"
    with pytest.raises(InspectionError, match=message):
        _ = subject.transformer
    for view in VIEWS:
        result = render_view(subject, view, {"text": "3 1 4"})
        assert ("error" in result) is (view not in ("attention", "parameters")), view
    total = render_view(subject, "parameters", {"text": "3 1 4"})["total"]
    assert total == parameter_count(config.model)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_pytorch_layers_are_traced_by_the_model_from_scratch(norm):
    torch.manual_seed(0)  # some random models have nothing to patch
    config = RunConfig.from_flat({"architecture": "torch-transformer", "norm_placement": norm})
    subject = InspectedModel.from_model(config, build_model(config))
    batch = subject.held_out(20).batch
    traced_BTV, logits_BTV = (
        model(batch.source_BS, batch.decoder_input_BT)
        for model in (subject.transformer, subject.model)
    )
    torch.testing.assert_close(traced_BTV, logits_BTV, atol=1e-5, rtol=1e-5)
    assert subject.transformer is subject.transformer
    errors = {"gates": "recurrent"}
    errors |= {} if norm == "pre" else {"contributions": "pre-norm"}
    for view in VIEWS:
        result = render_view(subject, view, {"text": "3 1 4", "stage": "output/logits"})
        expected = errors.get(view)
        assert expected in result["error"] if expected else "error" not in result, view
        if "note" in result:
            uses_own_layers = view in ("attention", "gates", "parameters") or "error" in result
            assert (SAME_WEIGHTS in result["note"]) is not uses_own_layers, view


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("mode", ["free-running", "teacher-forced"])
def test_a_perfect_model_without_eos_is_right_in_every_view(view, mode):
    subject = reversing_model_without_eos()
    request = {"text": "3 1 4 1 5", "mode": mode, "kind": "cross", "stage": "output/logits"}
    result = render_view(subject, view, request)
    if view != "gates":
        assert "error" not in result
    if "prediction" in result:
        assert result["prediction"] == result["target"] == ["5", "1", "4", "1", "3"]
    for labels in ("rows", "labels", "decoder_input"):
        if view in ("attention", "lens", "attribution") and labels in result:
            assert len(result[labels]) == 5
            assert "EOS" not in result[labels]


def test_a_target_too_long_for_the_model_names_the_longest_input():
    config = RunConfig.from_flat({"task": "duplicate", "max_length": 10})
    subject = InspectedModel.from_model(config, build_model(config))
    assert subject.encode_text("1234567890").labels_BT.shape == (1, 21)
    message = "11 tokens, its target up to 22; this model has positions for 20, so type at most 10"
    with pytest.raises(InspectionError, match=message):
        subject.encode_text("12345678901")


def test_unknown_target_is_replaced_by_the_generated_tokens(rowed):
    batch = rowed.encode_text("b a")
    written = rowed.token_names(batch.output)
    assert rowed.token_names(batch.labels_BT[0].tolist())[:-1] == written[:-1]
    assert (batch.has_target, rowed.encode_text("a b").has_target) == (False, True)


def test_the_held_out_set_of_the_same_settings_is_made_once(mixed, monkeypatch):
    created = []
    monkeypatch.setattr(
        subject_module,
        "build_held_out_set",
        lambda *args: created.append(args) or build_held_out_set(*args),
    )
    rebuilt = InspectedModel.from_model(mixed.config, mixed.transformer)
    first, second = mixed.held_out(37), rebuilt.held_out(37)
    assert len(created) == 1
    assert torch.equal(first.batch.source_BS, second.batch.source_BS)
    assert len(mixed.held_out(38).lengths_B) == 38
    shorter = mixed.config.replace(max_length=5, max_positions=mixed.config.model.max_positions)
    assert InspectedModel.from_model(shorter, mixed.transformer).held_out(37).lengths_B.max() == 5
    for n in range(40, 60):
        mixed.held_out(n)
    assert torch.equal(mixed.held_out(37).batch.source_BS, first.batch.source_BS)
