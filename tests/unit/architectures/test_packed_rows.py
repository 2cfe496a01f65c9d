import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.architectures import ARCHITECTURES
from playground.architectures.encoder_decoder import TransformerModel
from playground.architectures.packed_rows import (
    GROUP_SIZE,
    MIN_WIDTH,
    can_pack,
    first_fit,
    pack,
    packed_exact_match_and_loss,
    packed_loss,
)
from playground.checkpoints.checkpoint import build_model
from playground.evaluation import evaluate
from playground.models.position_encoding import RelativePositionEncoding
from playground.tasks import PAD
from playground.tasks.held_out import build_held_out_set, sample_training_batch
from playground.training.presets import architecture_preset
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.small_models import model_settings

SMALL = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 16, "device": "cpu"}


def model_and_batch(batch_size=40, **changes):
    """A model in double precision, and a batch with several held-out sequences."""
    config = RunConfig.from_flat(SMALL | changes)
    torch.manual_seed(0)
    model, task = build_model(config).double(), config.task
    batch = sample_training_batch(
        task.load(), batch_size, task.min_length, task.max_length, torch.Generator().manual_seed(0)
    )
    assert 0 < int((batch.loss_weight_B == 0).sum()) < batch_size
    return model, batch


def loss_and_gradient(model, loss):
    torch.manual_seed(1)  # of randomized positions
    value = loss()
    gradients = torch.autograd.grad(value, list(model.parameters()), materialize_grads=True)
    return value.detach(), torch.cat([each.flatten() for each in gradients])


def assert_same_loss_and_gradient(model, batch, label_smoothing=0.0):
    loss, gradient = loss_and_gradient(model, lambda: model.loss(batch, label_smoothing))
    packed, packed_gradient = loss_and_gradient(
        model, lambda: packed_loss(model, batch, label_smoothing)
    )
    assert pack(batch, batch.loss_weight_B > 0) is not None
    torch.testing.assert_close(packed, loss, rtol=1e-6, atol=0)
    assert (packed_gradient - gradient).norm() < 1e-6 * gradient.norm()


@settings(max_examples=20)
@given(model_settings(), st.sampled_from([0.0, 0.1]))
def test_packed_loss_and_gradient_are_those_of_the_batch(overrides, label_smoothing):
    model, batch = model_and_batch(**overrides)
    assert can_pack(model)
    assert_same_loss_and_gradient(model, batch, label_smoothing)


OTHERS = [
    *({"task": "parity"}, {"task": "duplicate"}, {"max_length": 31, "min_length": 31}),
    {"max_length": 40, "batch_size": 300},
]


@pytest.mark.parametrize("changes", OTHERS, ids=str)
def test_packed_loss_holds_for_other_tasks_and_lengths(changes):
    assert_same_loss_and_gradient(*model_and_batch(**changes))


def test_held_out_sequences_do_not_change_the_loss():
    model, batch = model_and_batch()
    changed = copy.deepcopy(batch)
    held_out_B = batch.loss_weight_B == 0
    changed.target_BT[held_out_B] = changed.target_BT[held_out_B].flip(1)
    assert packed_loss(model, changed) == packed_loss(model, batch)


def test_batch_without_training_sequences_has_loss_zero():
    model, batch = model_and_batch()
    batch.loss_weight_B.zero_()
    assert packed_loss(model, batch) == 0


def test_rows_hold_every_token_once_and_pairs_in_the_same_row():
    _, batch = model_and_batch(batch_size=2 * GROUP_SIZE + 9, task="duplicate")
    rows = pack(batch, torch.ones(len(batch.source_BS), dtype=torch.bool))
    for side, tokens_BM in zip(rows, (batch.source_BS, batch.labels_BT), strict=True):
        is_used_RM = side.sequence_RM >= 0
        assert int(is_used_RM.sum()) == len(side.position_N) == int((tokens_BM != PAD).sum())
        assert is_used_RM.float().mean() > 0.8
        tokens_N = tokens_BM.flatten()[side.token_RM.flatten()[side.position_N]]
        assert torch.equal(tokens_N, tokens_BM[tokens_BM != PAD])
    for i in range(len(batch.source_BS)):
        rows_of_source, rows_of_target = ((x.sequence_RM == i).any(1).nonzero() for x in rows)
        assert len(rows_of_source) == 1
        assert torch.equal(rows_of_source, rows_of_target)


def test_first_fit_fills_rows_with_short_sequences():
    places = first_fit([11, 20, 11, 4], [2, 2, 2, 2], 32, 16)
    assert places == [(0, 20, 2), (0, 0, 0), (1, 0, 0), (1, 11, 2)]
    assert [row for row, _, _ in first_fit([4] * 6, [8] * 6, 32, 16)] == [0, 0, 1, 1, 2, 2]


def test_rows_that_are_no_shorter_than_the_batch_are_not_used():
    model, batch = model_and_batch(min_length=10, max_length=10)
    assert pack(batch, batch.loss_weight_B > 0) is None
    assert packed_loss(model, batch) == model.loss(batch)
    packed = packed_exact_match_and_loss(model, batch)
    assert all(map(torch.equal, packed, model.exact_match_and_loss(batch)))


def test_scores_from_packed_rows_are_those_of_the_batch(monkeypatch):
    training = {"task": "copy", "learning_rate": 0.02, "max_steps": 60, "eval_every": 500}
    trainer = Trainer(RunConfig.from_flat(SMALL | training))
    list(trainer)
    held_out = build_held_out_set(trainer.task, 100, 1, 10)
    packed_B, loss_B = packed_exact_match_and_loss(trainer.model, held_out.batch, 0.1)
    right_B, padded_loss_B = trainer.model.exact_match_and_loss(held_out.batch, 0.1)
    assert torch.equal(packed_B, right_B)
    torch.testing.assert_close(loss_B, padded_loss_B)
    assert 5 < int(packed_B.sum()) < len(packed_B) - 5
    scores = evaluate(trainer.model, held_out)
    monkeypatch.setattr("playground.evaluation.can_pack", lambda model: False)
    assert evaluate(trainer.model, held_out) == scores


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - {"transformer"}))
def test_other_architectures_are_not_packed(name):
    assert not can_pack(build_model(architecture_preset(name, max_length=4, d_model=16)))


def test_changed_models_and_unknown_position_encodings_are_not_packed():
    config = RunConfig.from_flat(SMALL).model

    class Changed(TransformerModel):
        pass

    class AbsolutePositions(RelativePositionEncoding):
        pass

    assert can_pack(TransformerModel(config))
    assert not can_pack(Changed(config))
    model = TransformerModel(config)
    model.encoder_layers[0].self_attn.position_encoding = AbsolutePositions()
    assert not can_pack(model)


def test_trainer_packs_by_default():
    config = RunConfig.from_flat(SMALL | {"max_steps": 3, "eval_every": 10})
    packed, plain = (list(Trainer(config, pack=is_packed)) for is_packed in (True, False))
    assert [each.loss for each in packed] != [each.loss for each in plain]
    for one, other in zip(packed, plain, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-4)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-3)


def test_rows_are_at_least_as_wide_as_a_vector_register_needs():
    _, batch = model_and_batch(max_length=5)
    rows = pack(batch, batch.loss_weight_B > 0)
    assert [side.token_RM.shape[1] for side in rows] == [MIN_WIDTH, MIN_WIDTH]
