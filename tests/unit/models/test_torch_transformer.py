import pytest
import torch

from playground.models.config import ModelConfig
from playground.models.torch_transformer import TorchTransformer
from playground.models.transformer import Transformer
from playground.models.variant_configs import TorchTransformerConfig

SOURCE_BS = torch.tensor([[3, 4, 5, 6, 2], [7, 2, 0, 0, 0]])
TARGET_BT = torch.tensor([[1, 6, 5, 4], [1, 7, 2, 0]])


def build_pair(norm):
    """Return a TorchTransformer and a Transformer with the same random weights."""
    torch.manual_seed(0)
    sizes = {
        "d_model": 16,
        "n_heads": 2,
        "n_layers": 2,
        "d_ff": 24,
        "max_positions": 6,
        "norm_placement": norm,
    }
    torch_model, own_model = (
        TorchTransformer(TorchTransformerConfig(**sizes)).eval(),
        Transformer(ModelConfig(**sizes)).eval(),
    )
    with torch.no_grad():
        for weight in torch_model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))

        def copy_attention(own, reference):
            projections = (own.q_proj, own.k_proj, own.v_proj)
            weights, biases = reference.in_proj_weight.chunk(3), reference.in_proj_bias.chunk(3)
            for part, weight, bias in zip(projections, weights, biases, strict=True):
                part.weight.copy_(weight)
                part.bias.copy_(bias)
            own.out_proj.load_state_dict(reference.out_proj.state_dict())

        own_model.output_proj.load_state_dict(torch_model.output_proj.state_dict())
        for side, tokens, positions in (
            (
                own_model.source_embedding,
                torch_model.source_token_embedding,
                torch_model.source_position_embedding,
            ),
            (
                own_model.target_embedding,
                torch_model.target_token_embedding,
                torch_model.target_position_embedding,
            ),
        ):
            side.token_embedding.weight.copy_(tokens.weight)
            side.position_embedding.copy_(positions.weight[:6])
        for own, reference in zip(
            (*own_model.encoder_layers, *own_model.decoder_layers),
            (*torch_model.encoder.layers, *torch_model.decoder.layers),
            strict=True,
        ):
            copy_attention(own.self_attn, reference.self_attn)
            norms = [own.self_attn_residual.norm, own.feed_forward_residual.norm]
            if hasattr(reference, "multihead_attn"):
                copy_attention(own.cross_attn, reference.multihead_attn)
                norms.insert(1, own.cross_attn_residual.norm)
            for n, each in enumerate(norms, start=1):
                each.load_state_dict(getattr(reference, f"norm{n}").state_dict())
            own.feed_forward.up_proj.load_state_dict(reference.linear1.state_dict())
            own.feed_forward.down_proj.load_state_dict(reference.linear2.state_dict())
        if norm == "pre":
            own_model.encoder_norm.load_state_dict(torch_model.encoder.norm.state_dict())
            own_model.decoder_norm.load_state_dict(torch_model.decoder.norm.state_dict())
    return torch_model, own_model


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_torch_transformer_equals_the_transformer(norm):
    torch_model, own_model = build_pair(norm)
    expected, record = own_model.forward_with_attention(SOURCE_BS, TARGET_BT)
    torch.testing.assert_close(torch_model(SOURCE_BS, TARGET_BT), expected, atol=1e-5, rtol=1e-5)
    logits_BTV, actual = torch_model.forward_with_attention(SOURCE_BS, TARGET_BT)
    torch.testing.assert_close(logits_BTV, expected, atol=1e-5, rtol=1e-5)
    for kind in ("encoder", "decoder", "cross"):
        assert len(getattr(actual, kind)) == 2
        for reference, own in zip(getattr(actual, kind), getattr(record, kind), strict=True):
            torch.testing.assert_close(reference, own, atol=1e-5, rtol=1e-5)


def test_recording_removes_its_hooks():
    torch_model, _ = build_pair("pre")
    torch_model.forward_with_attention(SOURCE_BS, TARGET_BT)
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
