import json

import pytest
import torch

from playground.figures.figures import FIGURES
from playground.inspection import attention_recording
from playground.inspection.attention_recording import record_free_running
from playground.inspection.hooks import Component
from playground.inspection.inspected_model import InspectionError
from playground.inspection.views.figure_data import attention_tables, build_report, head_table
from tests.support.handcrafted_models import random_model

OF_TRAINING = {"loss", "exact-match-by-length"}  # they need a run, not a sequence


def test_everything_has_a_figure_and_fits_into_json(mixed):
    message = []
    actual = build_report(mixed, "3 1 4 1 5", n=40, progress=message.append)
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
    assert actual["head"]["rows"] == actual[f"{actual['head']['kind']}-attention"]["rows"]


def test_the_attention_is_that_of_the_models_record_generation(mixed):
    batch = mixed.encode_text("3 1 4")
    attention_recording, _ = record_free_running(
        mixed.transformer, batch.source_BS, mixed.max_new_tokens(batch)
    )
    actual = attention_tables(batch)
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
    one = head_table(actual, Component("cross", 1, 2))
    assert one["weights"] == actual["cross"]["weights"][1][2]
    assert one["title"] == "cross-attention, layer 2, head 3"


def test_a_post_norm_model_has_a_report():
    subject = random_model(norm_placement="post", position_type="sinusoidal")
    assert set(FIGURES) - set(build_report(subject, "3 1 4", n=20)) == OF_TRAINING


def test_an_invalid_sequence_is_rejected_before_any_work(mixed):
    message = []
    with pytest.raises(InspectionError, match="positions for 10"):
        build_report(mixed, "12345678901", progress=message.append)
    assert message == []
