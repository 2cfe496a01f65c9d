import itertools

import pytest
import torch

from playground.inspection.hooks import Component, all_heads
from playground.inspection.inspected_model import InspectionError
from playground.inspection.logit_lens import direct_logit_attribution, logit_lens
from tests.support.handcrafted_models import (
    NON_STANDARD_SETTINGS,
    REVERSING_HEAD,
    random_model,
    reversing_model,
)

VARIANTS = [
    {},
    {"position_type": "sinusoidal", "attention_bias": False, "n_layers": 3},
    {"share_embeddings": True, "tie_output_embeddings": True, "n_heads": 1},
    *(part for part in NON_STANDARD_SETTINGS if part.get("norm_placement") != "post"),
    {"position_type": "learned-from-end", "norm_type": "rms"},
    {"output_bias": False},
]


def logits(subject, batch):
    with torch.no_grad():
        return subject.transformer(batch.source_BS, batch.decoder_input_BT)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_logit_lens_equals_output_only_at_the_last_layer(norm):
    subject = random_model(norm_placement=norm, n_layers=3)
    batch = subject.held_out(8).batch
    lens_LBTV = logit_lens(subject.transformer, batch)
    assert lens_LBTV.shape == (4, *logits(subject, batch).shape)
    assert torch.allclose(lens_LBTV[-1], logits(subject, batch), atol=1e-5)
    assert all((lens_LBTV[i] - lens_LBTV[-1]).abs().max() > 0.1 for i in range(3))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_lens_after_a_layer_is_the_output_of_a_model_that_ends_there(norm):
    subject = random_model(norm_placement=norm, n_layers=3)
    batch = subject.held_out(8).batch
    lens_LBTV = logit_lens(subject.transformer, batch)
    memory_BSD = subject.transformer.encode(batch.source_BS)
    layers = subject.transformer.decoder_layers
    for n in range(4):
        subject.transformer.decoder_layers = layers[:n]
        ends_BTV = subject.transformer.output_proj(
            subject.transformer.decode(batch.decoder_input_BT, memory_BSD, batch.source_BS)
        )
        torch.testing.assert_close(lens_LBTV[n], ends_BTV)


def test_the_logit_lens_shows_the_target_after_the_working_head():
    subject = reversing_model()
    batch = subject.encode_text("31415")
    right_L = (logit_lens(subject.transformer, batch).argmax(-1) == batch.labels_BT).all(-1)[:, 0]
    assert right_L.tolist() == [False, True, True]  # it works in the first layer


@pytest.mark.parametrize("changes", VARIANTS)
def test_logit_attributions_sum_to_the_logit_of_every_token(changes):
    subject = random_model(**changes)
    batch = subject.encode_text("31415")
    expected_TV = logits(subject, batch)[0]
    for position, token in itertools.product(range(6), range(13)):
        total = sum(
            part.logit
            for part in direct_logit_attribution(subject.transformer, batch, position, token)
        )
        assert total == pytest.approx(float(expected_TV[position, token]), abs=1e-4)


@pytest.mark.parametrize("text", ["3", "3 1 4 1 5", "0 0 0 0 0 0 0 0 0 0"])
def test_contributions_of_the_shipped_models_sum_to_their_logits(mixed, one_head, text):
    for subject in (mixed, one_head):
        batch = subject.encode_text(text)
        expected_TV = logits(subject, batch)[0]
        for position in range(len(expected_TV)):
            best, second = expected_TV[position].topk(2).indices.tolist()
            alone = sum(
                part.logit
                for part in direct_logit_attribution(subject.transformer, batch, position, best)
            )
            assert alone == pytest.approx(float(expected_TV[position, best]), abs=1e-4)
            less = sum(
                part.logit
                for part in direct_logit_attribution(
                    subject.transformer, batch, position, best, baseline_token=second
                )
            )
            assert less == pytest.approx(
                float(expected_TV[position, best] - expected_TV[position, second]), abs=1e-4
            )


def test_every_component_is_listed_once():
    parts = direct_logit_attribution(
        random_model().transformer, random_model().encode_text("314"), 0, 5
    )
    named = [part.component for part in parts if part.component]
    assert sorted(map(str, named)) == sorted(
        map(
            str,
            [
                *all_heads(random_model().transformer.config, "decoder", "cross"),
                *(Component("decoder feed-forward", i) for i in range(2)),
                Component("target positions"),
            ],
        )
    )
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


def test_the_single_working_head_has_the_whole_attribution():
    subject = reversing_model()
    batch = subject.encode_text("31415")
    for position, (right, wrong) in enumerate([(8, 3), (4, 8), (7, 5), (4, 9), (6, 3), (2, 3)]):
        actual = {
            part.component or part.name: part.logit
            for part in direct_logit_attribution(
                subject.transformer, batch, position, right, baseline_token=wrong
            )
        }
        assert actual.pop(Component("cross", *REVERSING_HEAD)) > 10
        assert all(abs(logit) < 0.01 for logit in actual.values())


def test_a_zero_component_contributes_nothing():
    subject = random_model()
    layer = subject.transformer.decoder_layers[1]
    with torch.no_grad():
        layer.cross_attn.out_proj.weight[:, 8:12] = 0
    actual = {
        part.component: part.logit
        for part in direct_logit_attribution(subject.transformer, subject.encode_text("314"), 2, 6)
        if part.component
    }
    assert actual.pop(Component("cross", 1, 2)) == 0
    assert all(logit != 0 for logit in actual.values())


def test_post_norm_attribution_is_rejected_with_alternatives():
    subject = random_model(norm_placement="post")
    with pytest.raises(
        InspectionError,
        match=r"pre-norm model;.*use the logit lens, ablation or activation patching",
    ):
        direct_logit_attribution(subject.transformer, subject.encode_text("314"), 0, 5)


@pytest.mark.parametrize(
    ("position", "token", "expected_message"),
    [(4, 5, "the positions 0 to 3"), (-1, 5, "position is -1"), (0, 13, "the tokens are 0 to 12")],
)
def test_an_unknown_position_or_token_is_rejected(mixed, position, token, expected_message):
    with pytest.raises(InspectionError, match=expected_message):
        direct_logit_attribution(mixed.transformer, mixed.encode_text("314"), position, token)
    with pytest.raises(InspectionError, match="the batch has 2 sequences"):
        direct_logit_attribution(mixed.transformer, mixed.held_out(2).batch, 0, 5)
