import copy

import pytest
import torch

from playground.architectures import ARCHITECTURES, load_architecture
from playground.architectures.base import Seq2SeqModel
from playground.architectures.encoder_decoder import EncoderDecoder
from playground.models.config import ModelConfig
from playground.models.transformer import Transformer
from playground.tasks import load_task
from playground.tasks.held_out import build_held_out_set
from playground.tasks.task import Batch, make_batch

REVERSE = load_task("reverse")


def family(**changes):
    torch.manual_seed(0)
    return EncoderDecoder(
        ModelConfig(
            **{"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32, "max_positions": 6} | changes
        )
    )


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
                terms.append(
                    -(1 - smoothing) * log_BTV[b, t, label] - smoothing * log_BTV[b, t].mean()
                )
    assert len(terms) == 6 + 2 + 5
    torch.testing.assert_close(model.loss(rows, smoothing), sum(terms) / len(terms))


def test_held_out_pairs_do_not_affect_training():
    model, rows = family(), batch()
    changed_BS, changed_BT = rows.source_BS.clone(), rows.target_BT.clone()
    changed_BS[1, :3], changed_BT[1, 1:4] = torch.tensor([3, 12, 3]), torch.tensor([7, 7, 12])
    other = Batch(changed_BS, changed_BT, rows.loss_weight_B)
    assert torch.equal(model.loss(other), model.loss(rows))
    assert torch.equal(gradients(model, other), gradients(model, rows))
    counted = [Batch(x.source_BS, x.target_BT, torch.ones(4)) for x in (other, rows)]
    assert not torch.equal(gradients(model, counted[0]), gradients(model, counted[1]))


def test_a_held_out_row_has_the_weight_of_a_missing_row():
    model, rows = family(), batch()
    stored = rows.select(torch.tensor([0, 2, 3]))
    torch.testing.assert_close(model.loss(rows), model.loss(stored))
    torch.testing.assert_close(
        gradients(model, rows), gradients(model, stored), atol=1e-6, rtol=1e-5
    )


def test_a_batch_of_held_out_rows_alone_has_a_loss_and_gradient_of_zero():
    model, rows = family(), batch((0.0, 0.0, 0.0, 0.0))
    assert model.loss(rows).item() == 0
    assert not gradients(model, rows).any()


def test_padding_teaches_nothing():
    model, rows = family(max_positions=12), batch((1.0, 1.0, 1.0, 1.0))
    wider = Batch(
        *(torch.nn.functional.pad(x, (0, 4)) for x in (rows.source_BS, rows.target_BT)),
        rows.loss_weight_B,
    )
    torch.testing.assert_close(model.loss(wider), model.loss(rows))
    torch.testing.assert_close(
        gradients(model, wider), gradients(model, rows), atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm_placement": "post", "position_type": "sinusoidal", "share_embeddings": False}],
)
def test_one_batch_is_learned_by_heart(changes):
    model, rows = family(**changes), batch((1.0, 1.0, 1.0, 1.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        loss = model.loss(rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.01
    assert model.is_exact_match(rows).all()


def test_solves_equals_free_running_solve_row_by_row_at_every_age(ages):
    requested = build_held_out_set(REVERSE, 600, 1, 5).batch
    shares = []
    for model in ages.values():
        right_B = (model.generate(requested.source_BS, 6) == requested.labels_BT).all(1)
        assert torch.equal(model.is_exact_match(requested), right_B)
        shares.append(right_B.float().mean().item())
    assert shares[0] == 0
    assert any(0.1 < share < 0.9 for share in shares)
    assert shares[-1] > 0.9


def test_the_record_is_that_of_the_transformer_without_dropout():
    model, rows = family(dropout=0.5).train(), batch()
    quiet = copy.deepcopy(model).eval()
    _, expected = Transformer.forward_with_attention(quiet, rows.source_BS, rows.decoder_input_BT)
    record = model.attention_weights(rows)
    for kind in ("encoder", "decoder", "cross"):
        assert all(map(torch.equal, getattr(record, kind), getattr(expected, kind)))
        assert len(getattr(record, kind)) == 1
        assert not getattr(record, kind)[0].requires_grad


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("look", ["attention_weights", "is_exact_match", "generate"])
def test_inspection_leaves_mode_weights_gradients_and_generator(look, training):
    model, rows = family(dropout=0.5).train(training), batch()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    getattr(model, look)(*(rows.source_BS, 6) if look == "generate" else (rows,))
    assert all(module.training == training for module in model.modules())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_architecture_loads_by_name_and_has_the_interface(name):
    kind = load_architecture(name)
    assert issubclass(kind, Seq2SeqModel)
    for ability in ("loss", "generate", "is_exact_match", "attention_weights"):
        assert getattr(kind, ability) is not getattr(Seq2SeqModel, ability)


def test_an_unknown_family_is_rejected_with_the_names_of_the_known():
    with pytest.raises(ValueError, match="architecture is 'os:system'; choose one of transformer"):
        load_architecture("os:system")
