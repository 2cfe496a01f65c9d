"""The reference models learn with our Trainer, and ignore later tokens and padding."""

import copy

import pytest
import torch

from benchmarks.reference_models import CANDIDATES, REFERENCES, TUTORIAL
from playground.models.config import TransformerConfig
from playground.tasks import EOS, PAD, load_task
from playground.tasks.task import Batch, make_batch
from playground.training.presets import preset_config
from playground.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("frozen_heap")

COPY = load_task("copy", 10)
SIZES = TransformerConfig(d_model=32, n_heads=2, n_layers=1, d_ff=64, max_positions=8)


def rows():
    """A batch for copying 4, 2 and 1 digits."""
    sequence_BL = torch.tensor([[3, 4, 5, 6], [6, 5, 0, 0], [4, 0, 0, 0]])
    return make_batch(COPY, sequence_BL, torch.tensor([4, 2, 1]))


@pytest.fixture(scope="module")
def built():
    return {name: contestant.build_model(SIZES).eval() for name, contestant in CANDIDATES.items()}


@pytest.mark.smoke
@pytest.mark.parametrize("name", CANDIDATES)
def test_a_reference_model_scores_every_token_at_every_position(name, built):
    logits_BTV = built[name].logits(rows())
    assert logits_BTV.shape == (3, 5, 13)
    assert logits_BTV.isfinite().all()


@pytest.mark.parametrize("name", REFERENCES)
def test_a_later_target_token_does_not_affect_earlier_ones(name, built):
    batch = rows()
    changed_BT = batch.target_BT.clone()
    changed_BT[0, 3:] = torch.tensor([9, 9, 9])
    before, after = (
        built[name].logits(Batch(batch.source_BS, target_BT, batch.loss_weight_B))
        for target_BT in (batch.target_BT, changed_BT)
    )
    torch.testing.assert_close(after[:, :3], before[:, :3], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(after[0, 3:], before[0, 3:], atol=1e-3)


WITHOUT_DROPOUT = [
    (name, mode)
    for name in REFERENCES
    for mode in ("eval", "train")
    if name != TUTORIAL or mode == "eval"
]


@pytest.mark.parametrize(("name", "mode"), WITHOUT_DROPOUT)
def test_padding_changes_nothing(name, mode, built):
    """A row without padding has the same score, in training, too."""
    model = copy.deepcopy(built[name]).train(mode == "train")
    batch = rows()
    with torch.no_grad():
        batched = model.logits(batch)
        for b in range(3):
            source_BS, target_BT = (
                x[b : b + 1, : int((x[b] != PAD).sum())] for x in (batch.source_BS, batch.target_BT)
            )
            single = model.logits(Batch(source_BS, target_BT, batch.loss_weight_B[b : b + 1]))
            torch.testing.assert_close(
                batched[b : b + 1, : single.shape[1]], single, atol=1e-5, rtol=1e-4
            )


@pytest.mark.parametrize("name", REFERENCES)
def test_a_peer_reads_its_source_and_a_batch_of_short_rows_only(name, built):
    batch = rows()
    other_BS = batch.source_BS.clone()
    other_BS[0, 0] = 9
    changed = built[name].logits(Batch(other_BS, batch.target_BT, batch.loss_weight_B))
    assert not torch.allclose(changed[0], built[name].logits(batch)[0], atol=1e-4)
    # padding in every row, which torch's encoder would cut off
    short = batch.select(torch.tensor([1, 2]))
    assert built[name].logits(short).shape == (2, 5, 13)


@pytest.mark.parametrize("name", REFERENCES)
def test_peer_learns_copy_with_trainer_and_its_own_decoding(name):
    fields = {
        "task": "copy",
        "n_symbols": 4,
        "min_length": 2,
        "max_length": 4,
        "n_layers": 1,
        "d_model": 32,
        "n_heads": 2,
        "d_ff": 64,
        "max_steps": 40,
        "lr_decay_steps": 40,
        "batch_size": 64,
        "learning_rate": 4e-3,
        "eval_every": 1000,
        "device": "cpu",
    }
    config = preset_config("fast", fields)
    trainer = Trainer(config, model=CANDIDATES[name].build_model(config.model))
    losses = [metrics.loss for metrics in trainer]
    assert sum(losses[-10:]) < 0.85 * sum(losses[:10])
    batch = make_batch(
        trainer.task, torch.tensor([[3, 4, 5, 6], [6, 5, 0, 0]]), torch.tensor([4, 2])
    )
    answer_BT = trainer.model.generate(batch.source_BS, 5)
    assert answer_BT.shape == (2, 5)
    assert (answer_BT == EOS).any()
    right_B = (answer_BT == batch.labels_BT).all(1)
    assert torch.equal(right_B, trainer.model.is_exact_match(batch))


def test_all_have_about_as_many_parameters():
    sizes = TransformerConfig()
    counts = {
        name: sum(weight.numel() for weight in contestant.build_model(sizes).parameters())
        for name, contestant in CANDIDATES.items()
    }
    assert max(counts.values()) < 1.05 * min(counts.values()), counts


def test_the_same_seed_draws_the_same_weights():
    one, other, third = (
        CANDIDATES[TUTORIAL].build_model(SIZES, seed).output.weight for seed in (1, 1, 2)
    )
    assert torch.equal(one, other)
    assert not torch.equal(one, third)
