import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.inspection.hooks import Component, all_heads, run_with_cache
from playground.inspection.logit_lens import direct_logit_attribution, logit_lens
from tests.support.handcrafted_models import REVERSING_HEAD, random_model, reversing_model
from tests.support.small_models import model_settings


def logits(subject, batch):
    with torch.no_grad():
        return subject.transformer(batch.source_BS, batch.decoder_input_BT)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_lens_after_a_layer_is_the_output_of_a_model_that_ends_there(norm):
    subject = random_model(norm_placement=norm, n_layers=3)
    batch = subject.held_out(8).batch
    _, calls = run_with_cache(subject.transformer, batch)
    lens_LBTV = logit_lens(subject.transformer, calls)
    memory_BSD = subject.transformer.encode(batch.source_BS)
    layers = subject.transformer.decoder_layers
    for n in range(4):
        subject.transformer.decoder_layers = layers[:n]
        x_BTD = subject.transformer.decode(batch.decoder_input_BT, memory_BSD, batch.source_BS)
        torch.testing.assert_close(lens_LBTV[n], subject.transformer.output_proj(x_BTD))


@settings(max_examples=30)
@given(
    model_settings(),
    st.fixed_dictionaries({}, optional={"output_bias": st.booleans(), "n_layers": st.just(3)}),
    st.integers(0, 5),
    st.integers(0, 12),
    st.none() | st.integers(0, 12),
)
def test_logit_attributions_sum_to_the_logit_or_difference(
    overrides, more, position, token, baseline
):
    subject = random_model(**overrides | more | {"norm_placement": "pre"})
    batch = subject.encode_text("31415")
    logits_V = logits(subject, batch)[0, position]
    contributions = direct_logit_attribution(
        subject.transformer, batch.activations, position, token, baseline_token=baseline
    )
    expected = logits_V[token] - (0 if baseline is None else logits_V[baseline])
    assert sum(each.logit for each in contributions) == pytest.approx(float(expected), abs=1e-4)


def test_every_component_is_listed_once():
    example = random_model().encode_text("314")
    parts = direct_logit_attribution(example.subject.transformer, example.activations, 0, 5)
    expected = all_heads(example.subject.transformer.config, "decoder", "cross")
    expected += [Component("decoder feed-forward", i) for i in range(2)]
    named = [part.component for part in parts if part.component]
    assert sorted(map(str, named)) == sorted(map(str, [*expected, Component("target positions")]))
    others = [part.name for part in parts if part.component is None]
    assert others == [
        "token embedding",
        "decoder self-attention, layer 1, bias",
        "cross-attention, layer 1, bias",
        "decoder self-attention, layer 2, bias",
        "cross-attention, layer 2, bias",
        "final norm, bias",
        "output layer, bias",
    ]


def test_the_lens_of_a_handcrafted_model_knows_the_target_after_its_layer():
    example = reversing_model().encode_text("31415")
    probability_LTV = logit_lens(example.subject.transformer, example.activations)[:, 0].softmax(-1)
    torch.testing.assert_close(probability_LTV[0], torch.full((6, 13), 1 / 13))
    n_layers_before = REVERSING_HEAD[0] + 1
    at_target_LT = probability_LTV.gather(2, example.labels_BT.expand(3, -1)[..., None])[..., 0]
    assert at_target_LT[n_layers_before:].min() > 0.99


def test_the_single_working_head_has_the_whole_attribution():
    subject = reversing_model()
    batch = subject.encode_text("31415")
    for position, (right, wrong) in enumerate([(8, 3), (4, 8), (7, 5), (4, 9), (6, 3), (2, 3)]):
        actual = {
            part.component or part.name: part.logit
            for part in direct_logit_attribution(
                subject.transformer, batch.activations, position, right, baseline_token=wrong
            )
        }
        assert actual.pop(Component("cross", *REVERSING_HEAD)) > 10
        assert all(abs(logit) < 0.01 for logit in actual.values())
