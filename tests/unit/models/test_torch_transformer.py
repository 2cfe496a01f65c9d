import pytest
import torch

from playground.architectures.encoder_decoder import copy_weights
from playground.models.config import TorchTransformerConfig, TransformerConfig
from playground.models.torch_transformer import TorchTransformer
from playground.models.transformer import AttentionWeights, Transformer

SOURCE_BS = torch.tensor([[3, 4, 5, 6, 2], [7, 2, 0, 0, 0]])
TARGET_BT = torch.tensor([[1, 6, 5, 4], [1, 7, 2, 0]])


def build_pair(norm):
    """Return a TorchTransformer and a Transformer with the same random weights."""
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 24, "max_positions": 6}
    sizes["norm_placement"] = norm
    torch_model = TorchTransformer(TorchTransformerConfig(**sizes)).eval()
    own_model = Transformer(TransformerConfig(**sizes)).eval()
    with torch.no_grad():
        for weight in torch_model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    copy_weights(torch_model, own_model)
    return torch_model, own_model


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_torch_transformer_equals_the_transformer(norm):
    torch_model, own_model = build_pair(norm)
    record, actual = AttentionWeights(), AttentionWeights()
    expected = own_model(SOURCE_BS, TARGET_BT, record)
    torch.testing.assert_close(torch_model(SOURCE_BS, TARGET_BT), expected, atol=1e-5, rtol=1e-5)
    logits_BTV = torch_model(SOURCE_BS, TARGET_BT, actual)
    torch.testing.assert_close(logits_BTV, expected, atol=1e-5, rtol=1e-5)
    for kind in ("encoder", "decoder", "cross"):
        assert len(getattr(actual, kind)) == 2
        for reference, own in zip(getattr(actual, kind), getattr(record, kind), strict=True):
            torch.testing.assert_close(reference, own, atol=1e-5, rtol=1e-5)


def test_recording_removes_its_hooks():
    torch_model, _ = build_pair("pre")
    torch_model(SOURCE_BS, TARGET_BT, AttentionWeights())
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in torch_model.modules()
    )


def test_layers_begin_with_weights_of_their_own():
    model = TorchTransformer(TorchTransformerConfig(n_layers=2))
    for stack in (model.encoder, model.decoder):
        assert not torch.equal(stack.layers[0].linear1.weight, stack.layers[1].linear1.weight)


def test_the_target_has_one_more_position_vector_than_the_source():
    model = TorchTransformer(TorchTransformerConfig(max_positions=6))
    assert (
        len(model.source_position_embedding.weight),
        len(model.target_position_embedding.weight),
    ) == (6, 7)
