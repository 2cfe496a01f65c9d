import functools

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playground.architectures.parallel import EncoderOnlyModel
from playground.models.automodel_single_stack import (
    PlaygroundDecoderOnlyConfig,
    PlaygroundDecoderOnlyForCausalLM,
)
from playground.models.config import (
    SINGLE_STACK_POSITION_TYPES,
    DecoderOnlyConfig,
    EncoderOnlyConfig,
)
from playground.models.config_fields import ConfigError
from playground.models.embeddings import InputEmbedding
from playground.models.single_stack import DecoderOnly
from tests.support.small_models import build_small, model_settings

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
model = functools.partial(build_small, DecoderOnly, DecoderOnlyConfig)
few = settings(max_examples=20)
any_settings = model_settings(DecoderOnlyConfig, SINGLE_STACK_POSITION_TYPES)


@few
@given(any_settings)
def test_padding_in_front_changes_nothing(overrides):
    decoder = model(**overrides)
    row_BW = torch.tensor([[3, 4, 2, 4, 3]])
    weights, wide_weights = [], []
    single = decoder(row_BW, weights)
    wide = decoder(torch.nn.functional.pad(row_BW, (3, 0)), wide_weights)
    torch.testing.assert_close(wide[:, 3:], single, **CLOSE)
    for one, other in zip(weights, wide_weights, strict=True):
        torch.testing.assert_close(other[:, :, 3:, 3:], one, **CLOSE)
        assert not other[:, :, 3:, :3].any()


@few
@given(any_settings, st.sets(st.integers(1, 5)))
@example({"position_type": "rope"}, {2})
@torch.no_grad()
def test_logits_with_a_cache_equal_those_without(overrides, cuts):
    decoder = model(**overrides)
    tokens_BW = torch.tensor([[3, 4, 5, 2, 4, 3], [0, 0, 6, 2, 5, 5]])
    cache = decoder.new_cache(batch_size=2, n_positions=6)
    ends = [*sorted(cuts), 6]
    parts = [
        decoder(tokens_BW[:, start:end], cache=cache, is_token_BW=tokens_BW[:, :end] != 0)
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    torch.testing.assert_close(torch.cat(parts, dim=1), decoder(tokens_BW), **CLOSE)


def test_decoder_only_has_positions_for_longest_source_and_target():
    assert torch.isfinite(model(max_positions=6)(torch.full((1, 12), 3))).all()


def test_a_tied_output_reuses_the_symbols():
    decoder = model(tie_output_embeddings=True)
    assert decoder.output_proj.weight is decoder.embedding.token_embedding.weight


def test_relative_positions_look_back_only():
    assert model(position_type="t5").layers[0].self_attn.position_encoding.causal


@pytest.mark.parametrize("positions", ["learned-from-end", "randomized"])
def test_positions_of_an_encoder_decoder_are_rejected_elsewhere(positions):
    with pytest.raises(ConfigError, match="choose one of learned, sinusoidal, none"):
        model(position_type=positions)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}])
@torch.no_grad()
def test_published_model_generates_with_a_cache_one_position_at_a_time(monkeypatch, options):
    torch.manual_seed(0)
    published = PlaygroundDecoderOnlyForCausalLM(
        PlaygroundDecoderOnlyConfig(d_model=16, n_heads=2, d_ff=16)
    ).eval()
    n_positions = []
    embed = InputEmbedding.forward

    def count_positions(self, tokens_BT, *others):
        n_positions.append(tokens_BT.shape[1])
        return embed(self, tokens_BT, *others)

    monkeypatch.setattr(InputEmbedding, "forward", count_positions)
    prompt = {
        "input_ids": torch.tensor([[3, 4, 5, 2], [0, 0, 6, 2]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]]),
    }
    options = options | {"max_new_tokens": 6, "suppress_tokens": [2]}
    cached = published.generate(**prompt, **options)
    assert n_positions == [4, 1, 1, 1, 1, 1]
    n_positions.clear()
    assert torch.equal(published.generate(**prompt, **options, use_cache=False), cached)
    assert n_positions == [4, 5, 6, 7, 8, 9]


def encoder_only(**sizes):
    torch.manual_seed(0)
    return EncoderOnlyModel(
        EncoderOnlyConfig(**{"d_model": 16, "n_heads": 2, "d_ff": 16, "max_positions": 9} | sizes)
    ).eval()


def test_blanks_stand_where_the_source_holds_nothing():
    source_BS = torch.tensor([[3, 4, 2], [5, 2, 0]])
    assert encoder_only().input_tokens(source_BS, 5).tolist() == [[3, 4, 2, 1, 1], [5, 2, 1, 1, 1]]
    assert encoder_only().input_tokens(source_BS, 2).tolist() == [[3, 4, 2], [5, 2, 1]]


def test_the_number_of_blanks_has_no_effect():
    model, source_BS = encoder_only(), torch.tensor([[3, 4, 2]])
    short, long = model.target_logits(source_BS, 3), model.target_logits(source_BS, 9)
    torch.testing.assert_close(long[:, :3], short, atol=1e-6, rtol=1e-5)


def test_every_token_counts_at_every_position():
    model = encoder_only()
    one, other = (
        model.target_logits(torch.tensor([source]), 5) for source in ([3, 4, 5, 2], [3, 4, 6, 2])
    )
    assert ((one - other).abs().amax(-1) > 1e-6).all()


def test_no_query_attends_to_padding():
    model, weights = encoder_only(), []
    model.target_logits(torch.tensor([[3, 4, 2, 0], [3, 4, 5, 2]]), 6, weights)
    for weights_BHWW in weights:
        assert not weights_BHWW[0, :, :, 3:].any()
        assert (weights_BHWW[0, :, :, :3] > 0).all()
        assert (weights_BHWW[1, :, :, :4] > 0).all()
