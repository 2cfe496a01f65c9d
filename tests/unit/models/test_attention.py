import torch

from playground.models.attention import (
    MultiHeadAttention,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)
from playground.models.config import TransformerConfig


def test_masks_are_true_where_one_may_look():
    assert padding_mask(torch.tensor([[5, 2, 0, 0]])).tolist() == [[[[True, True, False, False]]]]
    assert causal_mask(3, torch.device("cpu")).tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_masked_positions_have_weight_zero_and_no_influence():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, n, 8, generator=generator) for n in (4, 5, 5))
    attn_mask = torch.tensor([True, True, False, True, False])
    before, _ = scaled_dot_product_attention(query, key, value, attn_mask)
    key[:, :, ~attn_mask], value[:, :, ~attn_mask] = 1e4, -1e4
    after, weights_BHQM = scaled_dot_product_attention(query, key, value, attn_mask)
    assert torch.equal(after, before)
    assert not weights_BHQM[..., ~attn_mask].any()
    assert (weights_BHQM[..., attn_mask] > 0).all()
    torch.testing.assert_close(weights_BHQM.sum(-1), torch.ones(2, 3, 4))


def test_attention_returns_weights_only_on_request():
    attention = MultiHeadAttention(TransformerConfig(d_model=16, n_heads=2)).eval()
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    weights = []
    output = attention(x, weights=weights)
    assert [tuple(weights_BHQM.shape) for weights_BHQM in weights] == [(2, 2, 5, 5)]
    torch.testing.assert_close(attention(x), output)
