import copy

import pytest
import torch

from playground.inspection.ablation import Ablation
from playground.inspection.components import Component, components, groups, heads, means, outputs, replaced, watched
from playground.inspection.heads import score_heads_on
from playground.models.attention import padding_mask
from playground.models.config import SCORES_AT_A_TIME
from playground.tasks import PAD
from tests.support.handmade import PARTS, random_subject

ZERO = torch.zeros(())


def logits(family, batch):
    with torch.no_grad():
        return family(batch.source_BS, batch.decoder_input_BT)


@torch.no_grad()
def silenced(family, part):
    """A copy of the model without `part`, made by changing weights rather than by looking in."""
    model = copy.deepcopy(family)
    module = model.get_submodule(part.module)
    if part.head is not None:
        module.output.weight.unflatten(1, (model.config.n_heads, -1))[:, part.head] = 0
    elif part.layer is not None:
        module.narrow.weight.zero_()
        if module.narrow.bias is not None:
            module.narrow.bias.zero_()
    else:
        module.positions.zero_()
    return model


def check_zeroing(family, batch, plain_BTV, least_change):
    """Check that zeroing a component's output equals setting its weights to zero, for each component."""
    for part in components(family.config):
        with replaced(family, {part: ZERO}):
            changed_BTV = logits(family, batch)
            written_BT = family.solve(batch.source_BS, 7)
        expected = silenced(family, part)
        torch.testing.assert_close(changed_BTV, logits(expected, batch), atol=1e-5, rtol=1e-5)
        assert torch.equal(written_BT, expected.solve(batch.source_BS, 7)), part.name
        assert (changed_BTV - plain_BTV).abs().max() > least_change, part.name


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part["positions"])
def test_parts_of_models_of_other_parts_are_replaced_as_well(part):
    subject = random_subject(**part)
    config, batch = subject.family.config, subject.held_out(8).batch
    plain_BTV = logits(subject.family, batch)
    assert ("source positions" in [each.kind for each in components(config)]) == bool(config.places)
    check_zeroing(subject.family, batch, plain_BTV, least_change=1e-5)
    with watched(subject.family) as calls:
        logits(subject.family, batch)
    with replaced(subject.family, outputs(subject.family, calls)):
        assert torch.allclose(logits(subject.family, batch), plain_BTV, atol=1e-5)
    found = means(subject.family, batch)
    assert list(found) == components(config)
    with replaced(subject.family, found):
        assert logits(subject.family, batch).isfinite().all()


def test_positions_that_are_no_vectors_cannot_be_replaced():
    family = random_subject(positions="rope").family
    with (
        pytest.raises(ValueError, match="no source positions to replace: with positions 'rope' it adds no"),
        replaced(family, {Component("source positions"): ZERO}),
    ):
        pass


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_component_replaced_by_zero_is_as_if_its_weights_were_zero(norm):
    subject = random_subject(norm=norm)
    batch = subject.held_out(8).batch
    plain_BTV = logits(subject.family, batch)
    assert len(components(subject.family.config)) == 3 * 2 * 4 + 4 + 2
    check_zeroing(subject.family, batch, plain_BTV, least_change=1e-4)


def test_a_component_replaced_by_its_own_output_changes_nothing():
    subject = random_subject()
    batch = subject.held_out(8).batch
    with watched(subject.family) as calls:
        plain_BTV = logits(subject.family, batch)
    own = outputs(subject.family, calls)
    assert list(own) == components(subject.family.config)[:-2]
    with replaced(subject.family, own):
        assert torch.allclose(logits(subject.family, batch), plain_BTV, atol=1e-5)


@pytest.mark.parametrize("side", ["encoder", "decoder", "cross", "decoder feed-forward", "target positions"])
def test_position_replacements_match_step_by_step_decoding(side):
    subject = random_subject()
    family, batch = subject.family, subject.held_out(8).batch
    width = 4 if side in ("encoder", "decoder", "cross") else 16
    part = next(part for part in components(family.config) if part.kind == side)
    values = {part: 3 * torch.randn(9, width, generator=torch.Generator().manual_seed(5))}
    with replaced(family, values), torch.no_grad():
        given_BT = torch.randint(3, 13, (len(batch.source_BS), 7), generator=torch.Generator().manual_seed(6))
        together_BTD = family.decode(given_BT, family.encode(batch.source_BS), batch.source_BS)
        keys, past = family.memory_keys(family.encode(batch.source_BS)), family.empty_past(len(batch.source_BS), 7)
        steps = [family.decode_next(given_BT[:, t : t + 1], keys, padding_mask(batch.source_BS), past) for t in range(7)]
    torch.testing.assert_close(torch.cat(steps, dim=1), together_BTD, atol=1e-5, rtol=1e-5)


def test_mean_outputs_average_real_tokens_at_each_position():
    subject = random_subject()
    family, batch = subject.family, subject.held_out(40).batch
    found = means(family, batch)
    assert list(found) == components(family.config)
    own = {part: [[] for _ in range(9)] for part in found}
    for row in range(len(batch.source_BS)):  # one by one, without padding
        one = batch.rows(torch.tensor([row]))
        n = int((one.source_BS != PAD).sum())
        with watched(family) as calls:
            family(one.source_BS[:, :n], one.decoder_input_BT[:, :n])
        for part, output_BQX in outputs(family, calls).items():
            for q in range(n):
                own[part][q].append(output_BQX[0, q].detach())
    for part in list(found)[:-2]:
        for q in range(7):
            torch.testing.assert_close(found[part][q], torch.stack(own[part][q]).mean(0), atol=1e-5, rtol=1e-4)
        everywhere = torch.stack([x for rows in own[part] for x in rows]).mean(0)
        for q in (7, 8):  # held-out sequences have six symbols and EOS; the model has places for nine tokens
            torch.testing.assert_close(found[part][q], everywhere, atol=1e-5, rtol=1e-4)
    for side, embedding in (("source", family.source_embedding), ("target", family.target_embedding)):
        mean_PD = found[Component(f"{side} positions")]
        torch.testing.assert_close(mean_PD, embedding.positions[:7].detach().mean(0).expand(9, 16))


def test_means_of_many_sequences_at_a_time_or_few_are_the_same(monkeypatch):
    subject = random_subject()
    batch = subject.held_out(40).batch
    together = means(subject.family, batch)
    monkeypatch.setattr(type(subject.family.config), "rows_at_a_time", lambda config, width: 7)
    for part, apart_PX in means(subject.family, batch).items():
        torch.testing.assert_close(apart_PX, together[part], atol=1e-5, rtol=1e-5)


def test_nothing_is_left_on_the_model_even_when_the_block_fails():
    subject = random_subject()
    family, batch = subject.family, subject.held_out(4).batch
    plain_BTV = logits(family, batch)

    def hooks():
        return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in family.modules()]

    def look_in_and_fail():
        with replaced(family, dict.fromkeys(components(family.config), ZERO)), watched(family):
            assert sum(hooks()) > 50
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        look_in_and_fail()
    assert sum(hooks()) == 0
    assert torch.allclose(logits(family, batch), plain_BTV, atol=1e-5)


def test_a_component_that_is_not_there_is_refused():
    family = random_subject().family
    for part in (Component("cross", 2, 0), Component("cross", 0, 4), Component("nose", 0, 0), Component("cross", 0)):
        with pytest.raises(ValueError, match="it has layers 1 to 2 and heads 1 to 4"), replaced(family, {part: ZERO}):
            pass


def test_components_are_named_as_people_count():
    assert Component("cross", 0, 2).name == "cross-attention, layer 1, head 3"
    assert Component("decoder feed-forward", 1).name == "decoder feed-forward, layer 2"
    assert Component("target positions").name == "target positions"


def test_groups_hold_every_head_of_a_kind_in_a_layer_and_in_all(mixed, one_head):
    found = groups(mixed.family.config)
    assert found["cross-attention, layer 2"] == [Component("cross", 1, head) for head in range(4)]
    assert found["decoder self-attention, every layer"] == heads(mixed.family.config, "decoder")
    assert found["encoder feed-forward, every layer"] == [Component("encoder feed-forward", 0), Component("encoder feed-forward", 1)]
    assert list(groups(one_head.family.config)) == ["encoder self-attention", "decoder self-attention", "cross-attention"]


def attributes(family):
    return {name: set(vars(module)) for name, module in family.named_modules()}


def test_blocks_that_watch_a_model_nest_and_leave_no_attribute_behind():
    subject = random_subject()
    family, batch = subject.family, subject.held_out(4).batch
    before = attributes(family)
    with watched(family) as outer:
        with watched(family, "encoder_layers.0.self_attention") as inner:
            logits(family, batch)
        logits(family, batch)
    for name in (f"{side}_layers.{layer}.self_attention" for side in ("encoder", "decoder") for layer in (0, 1)):
        assert [call.result[1] is None for call in outer[name]] == [False, False], name
    assert len(inner["encoder_layers.0.self_attention"]) == 1
    assert attributes(family) == before


@pytest.mark.parametrize("measure", ["heads", "means", "ablation"])
def test_passes_respect_the_attention_score_limit_for_short_targets(measure):
    subject = random_subject(task="parity", min_length=120, max_length=128, max_positions=130, n_heads=8)
    sizes = []
    family = subject.family
    family.encoder_layers[0].register_forward_pre_hook(lambda module, given: sizes.append(given[0].shape[:2]))
    batch = subject.held_out(100).batch
    if measure == "heads":
        score_heads_on(subject, batch)
    elif measure == "means":
        means(family, batch)
    else:
        Ablation(subject, 100).score({})
    assert sum(rows for rows, _ in sizes) == 100
    assert max(8 * rows * width**2 for rows, width in sizes) <= SCORES_AT_A_TIME
