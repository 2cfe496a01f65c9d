import torch

from playground.architectures.parallel import EncoderOnlyModel
from playground.models.config import EncoderOnlyConfig


def family(**sizes):
    torch.manual_seed(0)
    return EncoderOnlyModel(
        EncoderOnlyConfig(**{"d_model": 16, "n_heads": 2, "d_ff": 16, "max_positions": 9} | sizes)
    ).eval()


def test_blanks_stand_where_the_source_holds_nothing():
    source_BS = torch.tensor([[3, 4, 2], [5, 2, 0]])
    assert family().input_tokens(source_BS, 5).tolist() == [[3, 4, 2, 1, 1], [5, 2, 1, 1, 1]]
    assert family().input_tokens(source_BS, 2).tolist() == [[3, 4, 2], [5, 2, 1]]


def test_the_number_of_blanks_has_no_effect():
    model, source_BS = family(), torch.tensor([[3, 4, 2]])
    short, long = model.target_logits(source_BS, 3), model.target_logits(source_BS, 9)
    torch.testing.assert_close(long[:, :3], short, atol=1e-6, rtol=1e-5)


def test_every_token_counts_at_every_position():
    model = family()
    one, other = (
        model.target_logits(torch.tensor([source]), 5) for source in ([3, 4, 5, 2], [3, 4, 6, 2])
    )
    assert ((one - other).abs().amax(-1) > 1e-6).all()


def test_no_query_attends_to_padding():
    model, weights = family(), []
    model.target_logits(torch.tensor([[3, 4, 2, 0], [3, 4, 5, 2]]), 6, weights)
    for weights_BHWW in weights:
        assert not weights_BHWW[0, :, :, 3:].any()
        assert (weights_BHWW[0, :, :, :3] > 0).all()
        assert (weights_BHWW[1, :, :, :4] > 0).all()
