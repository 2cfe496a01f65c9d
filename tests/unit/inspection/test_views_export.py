import json

import pytest
import torch

from playground.checkpoints.checkpoint import weights_by_name
from playground.checkpoints.tensors import serialize_tensors
from playground.figures.catalog import FIGURES
from playground.inspection import attention_recording
from playground.inspection.attention_recording import record_free_running
from playground.inspection.hooks import Component
from playground.inspection.inspected_model import InspectionError
from playground.inspection.views.attribution import contribution_table, lens_table
from playground.inspection.views.export import (
    attention,
    build_report,
    cross_attention_by_step,
    positions,
    single_head,
    sinusoidal_table,
)
from tests.support.handcrafted_models import random_model

OF_TRAINING = {"loss", "exact-match-by-length"}  # they need a run, not a sequence


@pytest.fixture(scope="module")
def reported(mixed, tmp_path_factory):
    """A report of the bundled model, with two files of earlier weights."""
    message, history = [], {}
    for step in (0, 200):
        history[step] = tmp_path_factory.mktemp("history") / f"{step}.safetensors"
        history[step].write_bytes(serialize_tensors(weights_by_name(mixed.transformer)))
    return build_report(mixed, "3 1 4 1 5", n=40, history=history, progress=message.append), message


def test_everything_has_a_figure_and_fits_into_json(reported):
    actual, message = reported
    assert set(actual) == set(FIGURES) - OF_TRAINING
    assert json.loads(json.dumps(actual, allow_nan=False)) == actual
    assert any("40 held-out sequences" in sentence for sentence in message)
    for table in (data for data in actual.values() if isinstance(data, list)):
        assert len({tuple(row) for row in table}) == 1  # the same columns in every row


def test_a_report_generates_the_answer_once(one_head, monkeypatch):
    calls, generate = [], attention_recording.generate
    monkeypatch.setattr(
        attention_recording,
        "generate",
        lambda *args, **more: calls.append(args) or generate(*args, **more),
    )
    actual = build_report(one_head, "3 1 4", n=8)
    assert len(calls) == 1
    assert [step["token"] for step in actual["cross-attention-by-step"]["steps"]] == actual[
        "cross-attention"
    ]["rows"]
    assert actual["head"]["rows"] == actual[f"{actual['head']['kind']}-attention"]["rows"]


def test_the_attention_is_that_of_the_models_record_generation(mixed):
    batch = mixed.encode_text("3 1 4")
    attention_recording, _ = record_free_running(
        mixed.transformer, batch.source_BS, mixed.max_new_tokens(batch)
    )
    actual = attention(mixed, batch)
    for kind, data in actual.items():
        rendered = torch.tensor(data["weights"])
        torch.testing.assert_close(
            rendered, attention_recording.attention_weights[kind][:, 0], atol=1e-6, rtol=0
        )
        assert data["possible"] == attention_recording.attn_mask[kind][0].tolist()
        assert rendered.shape[2:] == (len(data["rows"]), len(data["columns"]))
    assert (actual["encoder"]["rows"], actual["cross"]["columns"]) == (
        ["3", "1", "4", "EOS"],
        ["3", "1", "4", "EOS"],
    )
    assert actual["cross"]["rows"] == ["4", "1", "3", "EOS"]
    assert actual["decoder"]["rows"] == actual["decoder"]["columns"] == ["SOS", "4", "1", "3"]
    one = single_head(mixed, batch, Component("cross", 1, 2))
    assert one["weights"] == actual["cross"]["weights"][1][2]
    assert one["title"] == "cross-attention, layer 2, head 3"


def test_stepwise_attention_has_prefix_next_token_and_target(mixed):
    actual = cross_attention_by_step(mixed, mixed.encode_text("3 1"))
    assert [(step["prefix"], step["token"], step["target"]) for step in actual["steps"]] == [
        (["SOS"], "1", "1"),
        (["SOS", "1"], "3", "3"),
        (["SOS", "1", "3"], "EOS", "EOS"),
    ]
    assert actual["heads"][5] == "layer 2, head 2"
    expected = attention(mixed, mixed.encode_text("3 1"))["cross"]["weights"]
    for t, step in enumerate(actual["steps"]):
        assert step["candidates"][0][0] == step["token"]
        assert len(step["candidates"]) == 5
        assert step["weights"] == [
            expected[layer][number][t] for layer in range(2) for number in range(4)
        ]


def test_the_lens_names_the_likeliest_symbol_of_each_layer(mixed):
    actual = lens_table(mixed, mixed.encode_text("3 1 4"))
    assert (actual["layers"], actual["columns"]) == (
        ["embedding", "layer 1", "layer 2"],
        ["4", "1", "3", "EOS"],
    )
    assert actual["tokens"][-1] == actual["columns"]
    assert actual["probability"][-1] == actual["target_probability"][-1]
    assert all(
        p >= q
        for row, right in zip(actual["probability"], actual["target_probability"], strict=True)
        for p, q in zip(row, right, strict=True)
    )


def test_contributions_start_at_the_least_certain_token(mixed):
    batch = mixed.encode_text("3 1 4 1 5")
    with torch.no_grad():
        best_T2 = mixed.transformer(batch.source_BS, batch.decoder_input_BT)[0].topk(2)
    gaps = (best_T2.values[:, 0] - best_T2.values[:, 1]).tolist()
    rows = contribution_table(mixed, batch)
    assert sum(row["logit"] for row in rows) == pytest.approx(min(gaps), abs=1e-4)
    assert rows[0]["position"] == gaps.index(min(gaps))
    assert sum(
        row["logit"] for row in contribution_table(mixed, batch, position=2)
    ) == pytest.approx(gaps[2], abs=1e-4)


def test_a_model_without_position_vectors_has_no_figure_of_them():
    assert positions(random_model(position_type="rope")) is None
    assert positions(random_model(position_type="learned-from-end"))["kind"] == "learned-from-end"


def test_positions_are_the_models_as_far_as_its_sequences_reach():
    subject = random_model()  # six symbols; places for nine tokens
    actual = positions(subject)
    assert actual["kind"] == "learned"
    torch.testing.assert_close(
        torch.tensor(actual["source"]),
        subject.transformer.source_embedding.position_embedding[:7].detach(),
        atol=1e-6,
        rtol=0,
    )
    assert len(actual["target"]) == 7
    waves = sinusoidal_table(200, 64, (0, 14))
    assert (len(waves["matrix"]), len(waves["matrix"][0])) == (200, 64)
    assert [(wave["dimension"], round(wave["wavelength"], 1)) for wave in waves["waves"]] == [
        (0, 6.3),
        (14, 47.1),
    ]


def test_a_post_norm_model_has_a_report_without_contributions():
    subject = random_model(norm_placement="post", position_type="sinusoidal")
    actual = build_report(subject, "3 1 4", n=20)
    assert set(FIGURES) - set(actual) == {"contributions", "heads-over-training"} | OF_TRAINING


def test_an_invalid_sequence_is_rejected_before_any_work(mixed):
    message = []
    with pytest.raises(InspectionError, match="positions for 10"):
        build_report(mixed, "12345678901", progress=message.append)
    assert message == []


def test_without_a_target_nothing_is_called_correct(rowed):
    actual = build_report(rowed, "b a", n=4)
    assert {step["target"] for step in actual["cross-attention-by-step"]["steps"]} == {None}
    assert (
        actual["logit-lens"]["has_target"],
        lens_table(rowed, rowed.encode_text("a b"))["has_target"],
    ) == (
        False,
        True,
    )
