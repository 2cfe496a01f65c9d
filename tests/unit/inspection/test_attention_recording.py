import pytest
import torch

from playground.inspection.attention_recording import (
    attention_masks,
    record_free_running,
    record_teacher_forced,
)
from playground.models.transformer import AttentionWeights
from playground.tasks import PAD, SOS
from tests.support.handcrafted_models import random_model

KINDS = ("encoder", "decoder", "cross")


@pytest.mark.parametrize(
    "overrides", [{"n_layers": 3}, {"norm_placement": "post", "position_type": "alibi"}], ids=str
)
def test_rows_sum_to_one_and_are_zero_exactly_where_one_cannot_look(overrides):
    subject = random_model(**overrides)
    batch = subject.held_out(8).batch
    free, _ = record_free_running(subject.transformer, batch.source_BS, 7)
    for recording in (record_teacher_forced(subject.transformer, batch), free):
        for kind in KINDS:
            weights_LBHQM, may_look_BQM = (
                recording.attention_weights[kind],
                recording.attn_mask[kind],
            )
            torch.testing.assert_close(weights_LBHQM.sum(-1), torch.ones(weights_LBHQM.shape[:-1]))
            assert torch.equal((weights_LBHQM > 0).all(2).all(0), may_look_BQM)
            assert torch.equal((weights_LBHQM == 0).all(2).all(0), ~may_look_BQM)


def test_masked_cells_are_the_future_and_source_padding():
    attn_mask = attention_masks(torch.tensor([[3, 2, PAD]]), torch.tensor([[SOS, 3]]))
    assert attn_mask["encoder"].tolist() == [[[True, True, False]] * 3]
    assert attn_mask["decoder"].tolist() == [[[True, False], [True, True]]]
    assert attn_mask["cross"].tolist() == [[[True, True, False]] * 2]


def test_free_running_attention_is_that_of_writing_symbol_by_symbol():
    subject = random_model()
    batch = subject.held_out(8).batch
    family, source_BS = subject.transformer, batch.source_BS
    recording, written_BT = record_free_running(family, source_BS, 7)
    assert torch.equal(written_BT, family.generate(source_BS, 7)[:, : written_BT.shape[1]])
    for t in range(written_BT.shape[1]):
        shorter = torch.cat([torch.full((len(source_BS), 1), SOS), written_BT[:, :t]], dim=1)
        record = AttentionWeights()
        with torch.no_grad():
            logits_BTV = family(source_BS, shorter, record)
        torch.testing.assert_close(
            recording.logits_BTV[:, t], logits_BTV[:, t], atol=1e-5, rtol=1e-5
        )
        for layer in range(2):
            torch.testing.assert_close(
                recording.attention_weights["cross"][layer][:, :, t], record.cross[layer][:, :, t]
            )
            torch.testing.assert_close(
                recording.attention_weights["decoder"][layer][:, :, t, : t + 1],
                record.decoder[layer][:, :, t],
            )
