import pytest
import torch

from playground.models.config import ModelConfig
from playground.models.embeddings import InputEmbedding, build_token_embedding
from playground.models.feed_forward import FeedForward
from playground.models.layers import KVCache, ResidualNorm


def test_feed_forward_applies_relu_network_to_each_position():
    torch.manual_seed(0)
    network = FeedForward(ModelConfig(d_model=8, d_ff=20))
    x_BSD = torch.randn(2, 3, 8)
    hidden = (x_BSD[1, 2] @ network.up_proj.weight.T + network.up_proj.bias).clamp(min=0)
    assert hidden.shape == (20,)
    torch.testing.assert_close(
        network(x_BSD)[1, 2], hidden @ network.down_proj.weight.T + network.down_proj.bias
    )


def test_post_norm_normalizes_residual_sum_and_pre_norm_the_input():
    torch.manual_seed(0)
    x_BSD, result_BSD = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    normal = torch.nn.functional.layer_norm
    post, pre = (
        ResidualNorm(ModelConfig(d_model=8, norm_placement=norm)) for norm in ("post", "pre")
    )
    assert torch.equal(post.sublayer_input(x_BSD), x_BSD)
    torch.testing.assert_close(post.add(x_BSD, result_BSD), normal(x_BSD + result_BSD, (8,)))
    torch.testing.assert_close(pre.sublayer_input(x_BSD), normal(x_BSD, (8,)))
    torch.testing.assert_close(pre.add(x_BSD, result_BSD), x_BSD + result_BSD)


def test_dropout_applies_to_sublayer_output_and_not_to_residual():
    torch.manual_seed(0)
    around = ResidualNorm(ModelConfig(d_model=64, dropout=0.3, norm_placement="pre"))
    x_BSD, ones_BSD = torch.full((8, 20, 64), 5.0), torch.ones(8, 20, 64)
    added_BSD = around.add(x_BSD, ones_BSD) - x_BSD
    assert float((added_BSD == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(
        added_BSD[added_BSD != 0].unique(), torch.tensor([1 / 0.7]), atol=1e-5, rtol=0
    )
    assert torch.equal(around.eval().add(x_BSD, ones_BSD), x_BSD + 1)


def test_dropout_applies_to_sum_of_token_and_position_embedding():
    torch.manual_seed(0)
    config = ModelConfig(dropout=0.3)
    embedding = InputEmbedding(config, build_token_embedding(13, 64))
    tokens_BS = torch.randint(3, 13, (64, 10))
    assert float((embedding(tokens_BS) == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    assert not (embedding.eval()(tokens_BS) == 0).any()


def test_a_past_returns_everything_so_far():
    torch.manual_seed(0)
    key_BHTK, value_BHTK = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 6, 4)
    past = KVCache(ModelConfig(n_heads=3, d_k=4, d_v=4), 2, 6, like=key_BHTK)
    for start, end in ((0, 1), (1, 2), (2, 5)):
        keys, values = past.append(key_BHTK[:, :, start:end], value_BHTK[:, :, start:end])
        assert torch.equal(keys, key_BHTK[:, :, :end])
        assert torch.equal(values, value_BHTK[:, :, :end])
        assert past.length == end
