import pytest
import torch

from playground.inspection.ablation import WAYS, Ablation
from playground.inspection.components import Component, components, groups, heads, replaced
from playground.tasks import PAD
from tests.support.handmade import WORKER, reversing_subject

WORKING_HEAD = Component("cross", *WORKER)


@pytest.fixture(scope="module")
def handmade():
    return Ablation(reversing_subject())


@pytest.fixture(scope="module")
def shipped(mixed):
    return Ablation(mixed)


def free_running(ablation, values):
    """Exact match by writing every answer symbol by symbol."""
    with replaced(ablation.family, values):
        written_BT = ablation.family.solve(ablation.batch.source_BS, ablation.batch.labels_BT.shape[1])
    return (written_BT == ablation.batch.labels_BT).all(1).double().mean().item()


@pytest.mark.parametrize("how", WAYS)
def test_head_ablation_matters_only_for_the_working_head(handmade, how):
    assert len(handmade.batch.source_BS) == 512
    assert handmade.before.exact_match == 1
    assert handmade.before.log_probability > -0.01
    effects = {effect.parts[0]: effect for effect in handmade.ranking(how)}
    assert len(effects) == 3 * 2 * 2 + 4 + 2
    for head in heads(handmade.family.config):
        if head == WORKING_HEAD:
            assert effects[head].after.exact_match == 0
            assert effects[head].log_probability_lost > 5
        else:
            assert effects[head].after.exact_match == 1
            assert abs(effects[head].log_probability_lost) < 0.01
    for kind in ("encoder feed-forward", "decoder feed-forward"):  # they write zero
        assert effects[Component(kind, 0)].after == handmade.before
    assert effects[Component("source positions")].after.exact_match == effects[Component("target positions")].after.exact_match == 0
    everywhere = [effect.name for effect in handmade.ranking(how)[:3]]
    assert WORKING_HEAD.name in everywhere


def test_where_one_head_does_all_the_work_it_suffices_alone(handmade):
    alone = {effect.parts: effect for effect in handmade.keep_only_ranking("zero")}
    assert alone[WORKING_HEAD,].after.exact_match == 1
    assert all(effect.after.exact_match == (WORKING_HEAD in parts) for parts, effect in alone.items())
    best = handmade.keep_only_ranking("zero")[0]
    assert best.kept
    assert WORKING_HEAD in best.parts


def test_a_group_is_taken_away_together(handmade):
    effects = {effect.name: effect for effect in handmade.group_ranking("mean")}
    assert {effect.name: list(effect.parts) for effect in effects.values()} == groups(handmade.family.config)
    broken = {name for name, effect in effects.items() if effect.after.exact_match < 1}
    assert broken == {"cross-attention, layer 1", "cross-attention, every layer"}
    two = handmade.without([Component("encoder", 0, 0), WORKING_HEAD], name="two heads")
    assert (two.name, two.after.exact_match) == ("two heads", 0)


def test_the_shipped_one_head_model_falls_from_all_right_to_chance(one_head):
    ablation = Ablation(one_head)
    assert ablation.before.exact_match == 1
    lengths_B = (ablation.batch.labels_BT != PAD).sum(1) - 1
    chance = (10.0 ** -lengths_B.double()).mean().item()
    for how in WAYS:
        effect = ablation.without([Component("cross", 0, 0)], how)
        assert effect.after.exact_match <= max(4 * chance, 1 / 512)
        assert effect.after.log_probability < -(lengths_B.double().mean().item()) * 2.3  # worse than guessing every symbol


@pytest.mark.parametrize("how", WAYS)
def test_shipped_model_has_a_cross_head_with_large_ablation_drop(shipped, how):
    worst = max(
        (shipped.without([head], how) for head in heads(shipped.family.config, "cross")), key=lambda effect: effect.exact_match_lost
    )
    assert worst.before.exact_match > 0.995
    assert worst.exact_match_lost > {"zero": 0.5, "mean": 0.4}[how]


def test_a_ranking_begins_with_what_the_right_answer_misses_most(mixed):
    ablation = Ablation(mixed, 60)
    ranking = ablation.ranking("zero")
    assert {effect.parts[0] for effect in ranking} == set(components(mixed.family.config))
    lost = [effect.log_probability_lost for effect in ranking]
    assert lost == sorted(lost, reverse=True)
    assert all(effect.before == ablation.before and effect.how == "zero" and not effect.kept for effect in ranking)


def test_ablated_exact_match_equals_free_running_decoding(mixed):
    ablation = Ablation(mixed, 100)
    shares = []
    for how in WAYS:
        for part in [*heads(mixed.family.config, "cross"), *components(mixed.family.config)[-6:]]:
            values = ablation.values([part], how)
            shares.append(ablation.score(values).exact_match)
            assert shares[-1] == pytest.approx(free_running(ablation, values), abs=1e-9), (part.name, how)
    assert min(shares) < 0.1
    assert any(0.3 < share < 0.9 for share in shares)


def test_the_log_probability_is_that_of_the_whole_right_answer(mixed):
    ablation = Ablation(mixed, 40)
    logs = []
    for source, target in zip(ablation.batch.source_BS, ablation.batch.target_BT, strict=True):
        n = int((source != PAD).sum())
        with torch.no_grad():
            log_TV = mixed.family.project(mixed.family.decode(target[None, :n], mixed.family.encode(source[None, :n]), source[None, :n]))[0]
        logs.append(sum(float(log_TV[t, token]) for t, token in enumerate(target[1 : n + 1])))
    assert ablation.before.log_probability == pytest.approx(sum(logs) / 40, abs=1e-5)


def test_many_sequences_at_a_time_or_few_give_the_same_scores(mixed, monkeypatch):
    ablation = Ablation(mixed, 100)
    together = ablation.before
    monkeypatch.setattr(type(mixed.family.config), "rows_at_a_time", lambda config, width: 7)
    apart = Ablation(mixed, 100).before
    assert apart.exact_match == together.exact_match
    assert apart.log_probability == pytest.approx(together.log_probability, abs=1e-6)


def test_the_answer_without_a_head_is_what_the_model_then_writes(handmade):
    subject = reversing_subject()
    ablation, batch = Ablation(subject, 8), subject.read("31415")
    whole = ablation.answer(batch, 6, [])
    assert whole.tolist() == batch.labels_BT.tolist()
    assert ablation.answer(batch, 6, [Component("encoder", 1, 1)]).tolist() == whole.tolist()
    assert ablation.answer(batch, 6, [WORKING_HEAD]).tolist() != whole.tolist()
    assert ablation.answer(batch, 6, []).tolist() == whole.tolist()


def test_what_cannot_be_taken_away_is_refused(handmade):
    with pytest.raises(ValueError, match="how is 'half'; choose one of zero, mean"):
        handmade.without([WORKING_HEAD], "half")
    for how in WAYS:
        with pytest.raises(ValueError, match="this model has no cross-attention, layer 3, head 1"):
            handmade.without([Component("cross", 2, 0)], how)
