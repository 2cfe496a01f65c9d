"""Properties of the transformer for all of its settings, and its parts."""

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from playground.models.config import TransformerConfig
from playground.models.layers import ResidualNorm
from playground.models.transformer import AttentionWeights, Transformer
from tests.support.numpy_reference import POSITION_TYPES, reference_attention
from tests.support.small_models import build_small, model_settings

S, T = 7, 6
CLOSE = {"atol": 1e-4, "rtol": 1e-4}
build = functools.partial(build_small, Transformer)
few = settings(max_examples=20)


def tokens():
    """Sources (BS) and decoder inputs (BT) of three lengths, padded after EOS."""
    generator = torch.Generator().manual_seed(1)
    source_BS, target_BT = (torch.randint(3, 13, (3, n), generator=generator) for n in (S, T))
    for row, length in enumerate((6, 4, 1)):
        source_BS[row, length], source_BS[row, length + 1 :] = 2, 0
        target_BT[row, 0], target_BT[row, length + 1 :] = 1, 0
    return source_BS, target_BT


def changed(tokens_BX, row, x):
    """Return the tokens with another one in one place."""
    tokens_BX = tokens_BX.clone()
    tokens_BX[row, x] = 3 + (tokens_BX[row, x] - 2) % 10
    return tokens_BX


@few
@given(model_settings(position_types=POSITION_TYPES))
def test_logits_and_attention_equal_a_numpy_reference(overrides):
    model = build(**overrides)
    expected, expected_logits = reference_attention(model, *tokens())
    record = AttentionWeights()
    logits_BTV = model(*tokens(), record)
    torch.testing.assert_close(
        logits_BTV.double(), torch.tensor(np.array(expected_logits)), **CLOSE
    )
    for kind, layers in expected.items():
        for weights_BHQM, rows in zip(getattr(record, kind), layers, strict=True):
            torch.testing.assert_close(weights_BHQM.double(), torch.tensor(np.array(rows)), **CLOSE)


@few
@given(model_settings())
def test_recording_gives_the_logits_of_a_plain_pass(overrides):
    """A plain pass mixes the values in PyTorch's kernel, without storing the weights."""
    model = build(**overrides)
    torch.testing.assert_close(model(*tokens(), AttentionWeights()), model(*tokens()), **CLOSE)


@few
@given(model_settings(), st.sets(st.integers(1, T - 1)))
@example({"position_type": "rope"}, {2})
@example({"position_type": "t5"}, {2})
@example({"position_type": "alibi", "n_kv_heads": 1}, {2})
def test_decoding_in_parts_equals_decoding_together(overrides, cuts):
    model = build(**overrides)
    source_BS, target_BT = tokens()
    memory_BSD = model.encode(source_BS)
    cache = model.new_cache(3, T)
    parts = target_BT.tensor_split(sorted(cuts), dim=1)
    steps = [model.decode(part, memory_BSD, source_BS, cache) for part in parts]
    torch.testing.assert_close(
        torch.cat(steps, dim=1), model.decode(target_BT, memory_BSD, source_BS), **CLOSE
    )


@few
@given(model_settings(), st.integers(0, S - 1))
def test_source_tokens_reach_every_position_and_padding_none(overrides, s):
    model = build(**overrides)
    source_BS, target_BT = tokens()
    logits_BTV = model(source_BS, target_BT)
    other_TV = model(changed(source_BS, 0, s), target_BT)[0]
    assert ((other_TV - logits_BTV[0]).abs().amax(-1) > 1e-5).all()
    for row, n in ((1, 5), (2, 2)):
        alone_TV = model(source_BS[row : row + 1, :n], target_BT[row : row + 1])[0]
        torch.testing.assert_close(alone_TV, logits_BTV[row], **CLOSE)


@few
@given(model_settings(), st.integers(0, T - 1))
def test_target_tokens_reach_their_own_and_later_positions_only(overrides, t):
    model = build(**overrides)
    source_BS, target_BT = tokens()
    before_TV, after_TV = (
        model(source_BS, each_BT)[0] for each_BT in (target_BT, changed(target_BT, 0, t))
    )
    torch.testing.assert_close(after_TV[:t], before_TV[:t], **CLOSE)
    assert ((after_TV[t:] - before_TV[t:]).abs().amax(-1) > 1e-5).all()


@few
@given(model_settings())
def test_gradients_reach_every_parameter(overrides):
    model = build(**overrides).train()
    model(*tokens()).square().sum().backward()
    assert [
        name
        for name, weight in model.named_parameters()
        # it adds the same number to all scores of a query
        if not name.endswith("k_proj.bias") and not (weight.grad is not None and weight.grad.any())
    ] == []


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_is_active_at_every_site_in_training_mode_only(norm):
    model = build(norm_placement=norm, dropout=0.5, activation_dropout=0.5)
    quiet_BTV = model(*tokens())
    sites = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    assert len(sites) == 2 + 2 * 3 + 2 * 4
    model.train()
    for site in sites:
        for other in sites:
            other.p = 0.5 if other is site else 0.0
        assert not torch.allclose(model(*tokens()), quiet_BTV, atol=1e-3)
    model.eval()
    assert torch.equal(model(*tokens()), quiet_BTV)


def test_dropout_applies_to_sublayer_output_and_not_to_residual():
    torch.manual_seed(0)
    around = ResidualNorm(TransformerConfig(d_model=64, dropout=0.3, norm_placement="pre"))
    x_BSD, ones_BSD = torch.full((8, 20, 64), 5.0), torch.ones(8, 20, 64)
    added_BSD = around(x_BSD, lambda _: ones_BSD) - x_BSD
    assert float((added_BSD == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(
        added_BSD[added_BSD != 0].unique(), torch.tensor([1 / 0.7]), atol=1e-5, rtol=0
    )
    assert torch.equal(around.eval()(x_BSD, lambda _: ones_BSD), x_BSD + 1)


@pytest.mark.parametrize(("share", "tie"), [*itertools.product([True, False], repeat=2)])
def test_tables_and_output_share_storage_where_configured(share, tie):
    model = build(share_embeddings=share, tie_output_embeddings=tie)
    source, target, output = (
        model.source_embedding.token_embedding.weight,
        model.target_embedding.token_embedding.weight,
        model.output_proj.weight,
    )
    assert (source is target, output is target) == (share, tie)
    assert (
        model.source_embedding.position_embedding is not model.target_embedding.position_embedding
    )
