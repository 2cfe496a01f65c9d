import copy

import pytest
import torch

from playground.architectures import load_architecture
from playground.architectures.encoder_decoder import TransformerModel
from playground.models.config import TransformerConfig
from playground.models.transformer import AttentionWeights
from playground.tasks import load_task
from playground.tasks.task import make_batch

REVERSE = load_task("reverse")


def family(**changes):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32, "max_positions": 6}
    return TransformerModel(TransformerConfig(**sizes | changes))


def batch(weights=(1.0, 0.0, 1.0, 1.0)):
    sequence_BL = torch.tensor(
        [[3, 4, 5, 6, 7], [8, 9, 10, 0, 0], [11, 0, 0, 0, 0], [3, 3, 4, 4, 0]]
    )
    return make_batch(REVERSE, sequence_BL, torch.tensor([5, 3, 1, 4]), torch.tensor(weights))


def gradients(family, batch):
    family.zero_grad()
    family.loss(batch).backward()
    return torch.cat([weight.grad.flatten() for weight in family.parameters()])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_loss_is_mean_smoothed_cross_entropy_of_weighted_examples(smoothing):
    model, rows = family(), batch()
    log_BTV = model(rows.source_BS, rows.decoder_input_BT).log_softmax(-1)
    terms = []
    for b, labels in enumerate(rows.labels_BT.tolist()):
        for t, label in enumerate(labels):
            if label != 0 and rows.loss_weight_B[b] == 1:
                log_V = log_BTV[b, t]
                terms.append(-(1 - smoothing) * log_V[label] - smoothing * log_V.mean())
    assert len(terms) == 6 + 2 + 5
    torch.testing.assert_close(model.loss(rows, smoothing), sum(terms) / len(terms))


def test_a_held_out_row_has_the_weight_of_a_missing_row():
    model, rows = family(), batch()
    stored = rows.select(torch.tensor([0, 2, 3]))
    torch.testing.assert_close(model.loss(rows), model.loss(stored))
    one, other = gradients(model, rows), gradients(model, stored)
    torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_a_batch_of_held_out_rows_alone_has_a_loss_and_gradient_of_zero():
    model, rows = family(), batch((0.0, 0.0, 0.0, 0.0))
    assert model.loss(rows).item() == 0
    assert not gradients(model, rows).any()


def test_the_record_is_that_of_the_transformer_without_dropout():
    model, rows = family(dropout=0.5).train(), batch()
    quiet = copy.deepcopy(model).eval()
    expected = AttentionWeights()
    quiet(rows.source_BS, rows.decoder_input_BT, expected)
    record = model.attention_weights(rows)
    for kind in ("encoder", "decoder", "cross"):
        assert all(map(torch.equal, getattr(record, kind), getattr(expected, kind)))
        assert len(getattr(record, kind)) == 1
        assert not getattr(record, kind)[0].requires_grad


def test_an_unknown_family_is_rejected_with_the_names_of_the_known():
    with pytest.raises(ValueError, match="architecture is 'os:system'; choose one of transformer"):
        load_architecture("os:system")
