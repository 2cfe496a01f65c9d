import pytest
import torch

from playground.inspection.ablation import METHODS, Ablation
from playground.inspection.hooks import Component, all_components, all_heads, replace_outputs
from playground.tasks import PAD
from tests.support.handcrafted_models import REVERSING_HEAD, reversing_model

WORKING_HEAD = Component("cross", *REVERSING_HEAD)


@pytest.fixture(scope="module")
def handmade():
    return Ablation(reversing_model())


def free_running(ablation, values):
    """Return the exact match of greedy decoding, token by token."""
    source_BS, labels_BT = ablation.batch.source_BS, ablation.batch.labels_BT
    with replace_outputs(ablation.model, values):
        written_BT = ablation.model.generate(source_BS, labels_BT.shape[1])
    return (written_BT == labels_BT).all(1).double().mean().item()


@pytest.mark.parametrize("method", METHODS)
def test_head_ablation_matters_only_for_the_working_head(handmade, method):
    assert len(handmade.batch.source_BS) == 512
    assert handmade.baseline.exact_match == 1
    assert handmade.baseline.log_prob > -0.01
    effects = {effect.components[0]: effect for effect in handmade.rank("single", method)}
    n_positions = 0 if method == "resample" else 2
    assert len(effects) == 3 * 2 * 2 + 4 + n_positions
    for head in all_heads(handmade.model.config):
        if head == WORKING_HEAD:
            assert effects[head].ablated.exact_match == 0
            assert effects[head].log_prob_drop > 5
        else:
            assert effects[head].ablated.exact_match == 1
            assert abs(effects[head].log_prob_drop) < 0.01
    for kind in ("encoder feed-forward", "decoder feed-forward"):  # they write zero
        assert effects[Component(kind, 0)].ablated == handmade.baseline
    of_positions = [part for part in effects if part.kind.endswith("positions")]
    assert all(effects[part].ablated.exact_match == 0 for part in of_positions)
    assert len(of_positions) == n_positions
    everywhere = [effect.name for effect in handmade.rank("single", method)[:3]]
    assert WORKING_HEAD.name in everywhere


def test_the_shipped_one_head_model_falls_from_all_right_to_chance(one_head):
    ablation = Ablation(one_head)
    assert ablation.baseline.exact_match == 1
    lengths_B = (ablation.batch.labels_BT != PAD).sum(1) - 1
    chance = (10.0 ** -lengths_B.double()).mean().item()
    for method in METHODS:
        effect = ablation.ablate([Component("cross", 0, 0)], method)
        assert effect.ablated.exact_match <= max(4 * chance, 1 / 512)
        # worse than guessing every symbol
        assert effect.ablated.log_prob < -(lengths_B.double().mean().item()) * 2.3


def test_ablated_exact_match_equals_free_running_decoding(mixed):
    ablation = Ablation(mixed, 40)
    shares = []
    for method in METHODS:
        for part in [
            *all_heads(mixed.transformer.config, "cross")[::3],
            *all_components(mixed.transformer.config)[-6 : -2 if method == "resample" else None],
        ]:
            values = ablation.replacements([part], method)
            shares.append(ablation.score([part], method).exact_match)
            expected = free_running(ablation, values)
            assert shares[-1] == pytest.approx(expected, abs=1e-9), (part.name, method)
    assert min(shares) < 0.1
    assert any(0.3 < share < 0.9 for share in shares)


def test_many_sequences_at_a_time_or_few_give_the_same_scores(mixed, monkeypatch):
    ablation = Ablation(mixed, 100)
    together = ablation.baseline
    monkeypatch.setattr(type(mixed.transformer.config), "max_batch_size", lambda config, width: 7)
    separate = Ablation(mixed, 100).baseline
    assert separate.exact_match == together.exact_match
    assert separate.log_prob == pytest.approx(together.log_prob, abs=1e-6)


def test_an_impossible_ablation_is_rejected(handmade):
    for method in METHODS:
        with pytest.raises(ValueError, match="this model has no cross-attention, layer 3, head 1"):
            handmade.ablate([Component("cross", 2, 0)], method)


def test_a_donor_has_the_same_lengths_and_is_another_sequence(mixed):
    ablation = Ablation(mixed, 100)
    source_BS, labels_BT = ablation.batch.source_BS, ablation.batch.labels_BT
    for tokens in (source_BS, labels_BT):
        assert torch.equal((tokens != PAD).sum(1), (tokens[ablation.donor_B] != PAD).sum(1))
    assert sorted(ablation.donor_B.tolist()) == list(range(100))
    lengths, counts = (source_BS != PAD).sum(1).unique(return_counts=True)
    n_alone = int((counts == 1).sum())
    assert int((ablation.donor_B == torch.arange(100)).sum()) == n_alone < len(lengths)


def test_a_constant_output_has_an_effect_under_zero_ablation_only():
    subject = reversing_model()
    layer = subject.transformer.decoder_layers[0].cross_attn
    with torch.no_grad():  # the other head of the layer writes its values' bias
        layer.v_proj.weight[16:] = 0
        layer.v_proj.bias[16:] = 1
        layer.out_proj.weight[19:, 16:] = torch.linspace(-0.2, 0.2, 13)[:, None]
        layer.out_proj.bias[19:] = -16 * torch.linspace(-0.2, 0.2, 13)
    ablation, part = Ablation(subject), Component("cross", 0, 1)
    zero, mean, resample = (
        ablation.ablate([part], method) for method in ("zero", "mean", "resample")
    )
    assert zero.log_prob_drop_interval[0] > 0.01
    assert abs(mean.log_prob_drop) < 1e-4 > abs(resample.log_prob_drop)
