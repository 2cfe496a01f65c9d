import copy

import pytest
import torch

from playground.inspection.ablation import Ablation
from playground.inspection.head_patterns import score_heads
from playground.inspection.hooks import (
    Component,
    all_components,
    all_heads,
    component_groups,
    component_outputs,
    mean_outputs,
    record_activations,
    replace_outputs,
)
from playground.models.config import MAX_ATTENTION_SCORES
from playground.tasks import PAD
from tests.support.handcrafted_models import NON_STANDARD_SETTINGS, random_model

ZERO = torch.zeros(())


def logits(family, batch):
    with torch.no_grad():
        return family(batch.source_BS, batch.decoder_input_BT)


@torch.no_grad()
def with_zeroed_weights(family, part):
    """Return a copy of the model without a component, by changed weights."""
    model = copy.deepcopy(family)
    module = model.get_submodule(part.module_name)
    if part.head is not None:
        module.out_proj.weight.unflatten(1, (model.config.n_heads, -1))[:, part.head] = 0
    elif part.layer is not None:
        module.down_proj.weight.zero_()
        if module.down_proj.bias is not None:
            module.down_proj.bias.zero_()
    else:
        module.position_embedding.zero_()
    return model


@pytest.mark.parametrize(
    "overrides",
    [{}, *(each for each in NON_STANDARD_SETTINGS if each["position_type"] not in ("none", "t5"))],
    ids=str,
)
def test_a_component_replaced_by_zero_is_as_if_its_weights_were_zero(overrides):
    subject = random_model(**overrides)
    config, batch = subject.transformer.config, subject.held_out(8).batch
    plain_BTV = logits(subject.transformer, batch)
    assert ("source positions" in [each.kind for each in all_components(config)]) == bool(
        config.n_position_vectors
    )
    for part in all_components(config):
        with replace_outputs(subject.transformer, {part: ZERO}):
            changed_BTV = logits(subject.transformer, batch)
        expected = with_zeroed_weights(subject.transformer, part)
        torch.testing.assert_close(changed_BTV, logits(expected, batch), atol=1e-5, rtol=1e-5)
        assert (changed_BTV - plain_BTV).abs().max() > 1e-5, part.name


@pytest.mark.parametrize("overrides", [{}, NON_STANDARD_SETTINGS[2]], ids=str)
def test_a_component_replaced_by_its_own_output_changes_nothing(overrides):
    subject = random_model(**overrides)
    batch = subject.held_out(8).batch
    with record_activations(subject.transformer) as calls:
        plain_BTV = logits(subject.transformer, batch)
    own = component_outputs(subject.transformer, calls)
    parts = all_components(subject.transformer.config)
    assert list(own) == [part for part in parts if not part.kind.endswith("positions")]
    with replace_outputs(subject.transformer, own):
        assert torch.allclose(logits(subject.transformer, batch), plain_BTV, atol=1e-5)


def test_positions_that_are_no_vectors_cannot_be_replaced():
    family = random_model(position_type="rope").transformer
    message = "no source positions to replace: with positions 'rope' it adds no"
    with (
        pytest.raises(ValueError, match=message),
        replace_outputs(family, {Component("source positions"): ZERO}),
    ):
        pass


@pytest.mark.parametrize(
    "side", ["encoder", "decoder", "cross", "decoder feed-forward", "target positions"]
)
def test_position_replacements_match_step_by_step_decoding(side):
    subject = random_model()
    family, batch = subject.transformer, subject.held_out(8).batch
    width = 4 if side in ("encoder", "decoder", "cross") else 16
    part = next(part for part in all_components(family.config) if part.kind == side)
    values = {part: 3 * torch.randn(9, width, generator=torch.Generator().manual_seed(5))}
    with replace_outputs(family, values), torch.no_grad():
        generator = torch.Generator().manual_seed(6)
        input_BT = torch.randint(3, 13, (len(batch.source_BS), 7), generator=generator)
        together_BTD = family.decode(input_BT, family.encode(batch.source_BS), batch.source_BS)
        memory_BSD = family.encode(batch.source_BS)
        cache = family.new_cache(len(batch.source_BS), 7)
        steps = [
            family.decode(input_BT[:, t : t + 1], memory_BSD, batch.source_BS, cache)
            for t in range(7)
        ]
    torch.testing.assert_close(torch.cat(steps, dim=1), together_BTD, atol=1e-5, rtol=1e-5)


def test_mean_outputs_average_real_tokens_at_each_position():
    subject = random_model()
    family, batch = subject.transformer, subject.held_out(40).batch
    actual = mean_outputs(family, batch)
    assert list(actual) == all_components(family.config)
    own = {part: [[] for _ in range(9)] for part in actual}
    for row in range(len(batch.source_BS)):  # one by one, without padding
        one = batch.select(torch.tensor([row]))
        n = int((one.source_BS != PAD).sum())
        with record_activations(family) as calls:
            family(one.source_BS[:, :n], one.decoder_input_BT[:, :n])
        for part, output_BQX in component_outputs(family, calls).items():
            for q in range(n):
                own[part][q].append(output_BQX[0, q].detach())
    for part in list(actual)[:-2]:
        for q in range(7):
            torch.testing.assert_close(
                actual[part][q], torch.stack(own[part][q]).mean(0), atol=1e-5, rtol=1e-4
            )
        everywhere = torch.stack([x for rows in own[part] for x in rows]).mean(0)
        # held-out sequences have six symbols and EOS; the model has places for nine tokens
        for q in (7, 8):
            torch.testing.assert_close(actual[part][q], everywhere, atol=1e-5, rtol=1e-4)
    for side in ("source", "target"):
        vectors_PD = getattr(family, f"{side}_embedding").position_embedding.detach()
        mean_PD = actual[Component(f"{side} positions")]
        torch.testing.assert_close(mean_PD, vectors_PD[:7].mean(0).expand(9, 16))


def test_means_of_many_sequences_at_a_time_or_few_are_the_same(monkeypatch):
    subject = random_model()
    batch = subject.held_out(40).batch
    together = mean_outputs(subject.transformer, batch)
    monkeypatch.setattr(type(subject.transformer.config), "max_batch_size", lambda config, width: 7)
    for part, separate_PX in mean_outputs(subject.transformer, batch).items():
        torch.testing.assert_close(separate_PX, together[part], atol=1e-5, rtol=1e-5)


def test_nothing_is_left_on_the_model_even_when_the_block_fails():
    subject = random_model()
    family, batch = subject.transformer, subject.held_out(4).batch
    plain_BTV = logits(family, batch)

    def hooks():
        return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in family.modules()]

    def look_in_and_fail():
        with (
            replace_outputs(family, dict.fromkeys(all_components(family.config), ZERO)),
            record_activations(family),
        ):
            assert sum(hooks()) > 50
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        look_in_and_fail()
    assert sum(hooks()) == 0
    assert torch.allclose(logits(family, batch), plain_BTV, atol=1e-5)


def test_an_unknown_component_is_rejected():
    family = random_model().transformer
    for place in (("cross", 2, 0), ("cross", 0, 4), ("nose", 0, 0), ("cross", 0)):
        with (
            pytest.raises(ValueError, match="it has layers 1 to 2 and heads 1 to 4"),
            replace_outputs(family, {Component(*place): ZERO}),
        ):
            pass


def test_components_are_named_as_people_count():
    assert Component("cross", 0, 2).name == "cross-attention, layer 1, head 3"
    assert Component("decoder feed-forward", 1).name == "decoder feed-forward, layer 2"
    assert Component("target positions").name == "target positions"


def test_groups_hold_every_head_of_a_kind_in_a_layer_and_in_all(mixed, one_head):
    actual = component_groups(mixed.transformer.config)
    assert actual["cross-attention, layer 2"] == [Component("cross", 1, head) for head in range(4)]
    heads = all_heads(mixed.transformer.config, "decoder")
    assert actual["decoder self-attention, every layer"] == heads
    layers = [Component("encoder feed-forward", layer) for layer in (0, 1)]
    assert actual["encoder feed-forward, every layer"] == layers
    names = ["encoder self-attention", "decoder self-attention", "cross-attention"]
    assert list(component_groups(one_head.transformer.config)) == names


def attributes(family):
    return {name: set(vars(module)) for name, module in family.named_modules()}


def test_blocks_that_watch_a_model_nest_and_leave_no_attribute_behind():
    subject = random_model()
    family, batch = subject.transformer, subject.held_out(4).batch
    before = attributes(family)
    with record_activations(family) as outer:
        with record_activations(family, ["encoder_layers.0.self_attn"]) as inner:
            logits(family, batch)
        logits(family, batch)
    for name in ("encoder_layers.1.self_attn", "decoder_layers.0.self_attn"):
        assert [call.weights is None for call in outer[name]] == [False, False], name
    assert len(inner["encoder_layers.0.self_attn"]) == 1
    assert attributes(family) == before


@pytest.mark.parametrize("measure", ["heads", "means", "ablation"])
def test_passes_respect_the_attention_score_limit_for_short_targets(measure):
    lengths = {"min_length": 120, "max_length": 128, "max_positions": 130}
    subject, sizes = random_model(task="parity", n_heads=8, **lengths), []
    family = subject.transformer
    family.encoder_layers[0].register_forward_pre_hook(
        lambda module, inputs: sizes.append(inputs[0].shape[:2])
    )
    batch = subject.held_out(100).batch
    if measure == "heads":
        score_heads(subject, batch)
    elif measure == "means":
        mean_outputs(family, batch)
    else:
        Ablation(subject, 100).score({})
    assert sum(rows for rows, _ in sizes) == 100
    assert max(8 * rows * width**2 for rows, width in sizes) <= MAX_ATTENTION_SCORES
