import pytest
import torch

from playground.models.config import TransformerConfig
from playground.models.embeddings import InputEmbedding, build_token_embedding
from playground.models.layers import ResidualNorm


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


def test_dropout_applies_to_sum_of_token_and_position_embedding():
    torch.manual_seed(0)
    config = TransformerConfig(dropout=0.3)
    embedding = InputEmbedding(config, build_token_embedding(13, 64))
    tokens_BS = torch.randint(3, 13, (64, 10))
    assert float((embedding(tokens_BS) == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    assert not (embedding.eval()(tokens_BS) == 0).any()
