import math

import pytest
import torch
import torch.nn.functional as F

from playground.models.attention import (
    MultiHeadAttention,
    causal_mask,
    merge_mask_and_bias,
    padding_mask,
    scaled_dot_product_attention,
)
from playground.models.config import ModelConfig

B, H, Q, M, K = 2, 3, 4, 5, 8


def queries_keys_values():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(B, H, n, K, generator=generator) for n in (Q, M, M)]


def test_attention_is_equation_1_of_the_paper():
    query_BHQK, key_BHMK, value_BHMK = queries_keys_values()
    mix_BHQK, weights_BHQM = scaled_dot_product_attention(
        query_BHQK, key_BHMK, value_BHMK, torch.ones(1, 1, dtype=torch.bool)
    )
    b, h, q = 1, 2, 3
    scores = [float(query_BHQK[b, h, q] @ key_BHMK[b, h, m]) / math.sqrt(K) for m in range(M)]
    weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
    torch.testing.assert_close(weights_BHQM[b, h, q], torch.tensor(weights))
    torch.testing.assert_close(
        mix_BHQK[b, h, q], sum(w * value_BHMK[b, h, m] for m, w in enumerate(weights))
    )


def test_weights_sum_to_one_and_masked_weights_are_exactly_zero():
    attn_mask = torch.rand(B, 1, Q, M, generator=torch.Generator().manual_seed(1)) < 0.5
    attn_mask[..., 0] = True
    _, weights_BHQM = scaled_dot_product_attention(*queries_keys_values(), attn_mask)
    torch.testing.assert_close(weights_BHQM.sum(-1), torch.ones(B, H, Q))
    assert (weights_BHQM[~attn_mask.expand_as(weights_BHQM)] == 0).all()
    assert (weights_BHQM[attn_mask.expand_as(weights_BHQM)] > 0).all()


def test_masked_positions_have_no_influence():
    query_BHQK, key_BHMK, value_BHMK = queries_keys_values()
    attn_mask = torch.tensor([True, True, False, True, False])
    before = scaled_dot_product_attention(query_BHQK, key_BHMK, value_BHMK, attn_mask)[0]
    key_BHMK[:, :, ~attn_mask], value_BHMK[:, :, ~attn_mask] = 1e4, -1e4
    assert torch.equal(
        scaled_dot_product_attention(query_BHQK, key_BHMK, value_BHMK, attn_mask)[0], before
    )


def test_masks_are_true_where_one_may_look():
    assert padding_mask(torch.tensor([[5, 2, 0, 0]])).tolist() == [[[[True, True, False, False]]]]
    assert causal_mask(3, torch.device("cpu")).tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


@pytest.mark.parametrize("bias", [True, False])
def test_every_head_works_on_its_own_slice_of_the_projections(bias):
    torch.manual_seed(0)
    attention = MultiHeadAttention(ModelConfig(d_model=12, n_heads=3, attention_bias=bias))
    x_BQD, memory_BMD = torch.randn(B, Q, 12), torch.randn(B, M, 12)
    result_BQD, weights_BHQM = attention(
        x_BQD, *attention.project_kv(memory_BMD), need_weights=True
    )
    key_BMD, value_BMD = attention.k_proj(memory_BMD), attention.v_proj(memory_BMD)
    mixes, weights = [], []
    for head in (slice(0, 4), slice(4, 8), slice(8, 12)):
        weights_BQM = (attention.q_proj(x_BQD)[..., head] @ key_BMD[..., head].mT / 2).softmax(-1)
        mixes.append(weights_BQM @ value_BMD[..., head])
        weights.append(weights_BQM)
    torch.testing.assert_close(weights_BHQM, torch.stack(weights, dim=1))
    torch.testing.assert_close(result_BQD, attention.out_proj(torch.cat(mixes, dim=-1)))
    assert (
        (attention.q_proj.bias is not None)
        == (attention.k_proj.bias is not None)
        == (attention.v_proj.bias is not None)
        == (attention.out_proj.bias is not None)
        == bias
    )


@pytest.mark.parametrize("look", ["everywhere", "back", "at symbols"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("value_size", [8, 5])
def test_fused_kernel_equals_the_explicit_computation(look, biased, value_size):
    generator = torch.Generator().manual_seed(0)
    query, key = (
        torch.randn(2, 3, 6, 8, generator=generator, requires_grad=True) for _ in range(2)
    )
    value = torch.randn(2, 3, 6, value_size, generator=generator, requires_grad=True)
    bias = torch.randn(3, 6, 6, generator=generator, requires_grad=True) if biased else None
    tokens = torch.tensor([[3, 4, 5, 6, 7, 2], [3, 4, 2, 0, 0, 0]])
    attn_mask = {
        "everywhere": None,
        "back": causal_mask(6, tokens.device),
        "at symbols": padding_mask(tokens),
    }[look]
    inputs = [each for each in (query, key, value, bias) if each is not None]
    upstream = torch.randn(2, 3, 6, value_size, generator=generator)
    slow, quick = (
        scaled_dot_product_attention(query, key, value, attn_mask, bias)[0],
        F.scaled_dot_product_attention(query, key, value, merge_mask_and_bias(attn_mask, bias)),
    )
    assert torch.allclose(quick, slow, atol=1e-6)
    for one, other in zip(
        torch.autograd.grad(quick, inputs, upstream),
        torch.autograd.grad(slow, inputs, upstream),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-5)


def test_attention_returns_weights_only_on_request():
    attention = MultiHeadAttention(ModelConfig(d_model=16, n_heads=2)).eval()
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    explicit, weights = attention(x, *attention.project_kv(x), need_weights=True)
    fused, no_weights = attention(x, *attention.project_kv(x))
    assert weights.shape == (2, 2, 5, 5)
    assert no_weights is None
    assert torch.allclose(fused, explicit, atol=1e-6)
