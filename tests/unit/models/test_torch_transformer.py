import pytest
import torch

from playground.models.config import ModelConfig
from playground.models.torch_transformer import TorchTransformer
from playground.models.transformer import Transformer
from playground.models.variant_configs import TorchTransformerConfig

SOURCE_BS = torch.tensor([[3, 4, 5, 6, 2], [7, 2, 0, 0, 0]])
TARGET_BT = torch.tensor([[1, 6, 5, 4], [1, 7, 2, 0]])


def both(norm):
    """The prebuilt network and the one from scratch, with the same random weights in every
    place, biases and norms too.
    """
    torch.manual_seed(0)
    sizes = {
        "d_model": 16,
        "n_heads": 2,
        "n_layers": 2,
        "d_ff": 24,
        "max_positions": 6,
        "norm_placement": norm,
    }
    theirs, ours = (
        TorchTransformer(TorchTransformerConfig(**sizes)).eval(),
        Transformer(ModelConfig(**sizes)).eval(),
    )
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.1 * torch.randn_like(weight))

        def attention(mine, its):
            projections = (mine.q_proj, mine.k_proj, mine.v_proj)
            weights, biases = its.in_proj_weight.chunk(3), its.in_proj_bias.chunk(3)
            for part, weight, bias in zip(projections, weights, biases, strict=True):
                part.weight.copy_(weight)
                part.bias.copy_(bias)
            mine.out_proj.load_state_dict(its.out_proj.state_dict())

        ours.output_proj.load_state_dict(theirs.output_proj.state_dict())
        for side, tokens, positions in (
            (
                ours.source_embedding,
                theirs.source_token_embedding,
                theirs.source_position_embedding,
            ),
            (
                ours.target_embedding,
                theirs.target_token_embedding,
                theirs.target_position_embedding,
            ),
        ):
            side.token_embedding.weight.copy_(tokens.weight)
            side.position_embedding.copy_(positions.weight[:6])
        for mine, its in zip(
            (*ours.encoder_layers, *ours.decoder_layers),
            (*theirs.encoder.layers, *theirs.decoder.layers),
            strict=True,
        ):
            attention(mine.self_attn, its.self_attn)
            norms = [mine.self_attn_residual.norm, mine.feed_forward_residual.norm]
            if hasattr(its, "multihead_attn"):
                attention(mine.cross_attn, its.multihead_attn)
                norms.insert(1, mine.cross_attn_residual.norm)
            for n, each in enumerate(norms, start=1):
                each.load_state_dict(getattr(its, f"norm{n}").state_dict())
            mine.feed_forward.up_proj.load_state_dict(its.linear1.state_dict())
            mine.feed_forward.down_proj.load_state_dict(its.linear2.state_dict())
        if norm == "pre":
            ours.encoder_norm.load_state_dict(theirs.encoder.norm.state_dict())
            ours.decoder_norm.load_state_dict(theirs.decoder.norm.state_dict())
    return theirs, ours


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_prebuilt_network_is_the_one_from_scratch(norm):
    theirs, ours = both(norm)
    expected, record = ours.forward_with_attention(SOURCE_BS, TARGET_BT)
    torch.testing.assert_close(theirs(SOURCE_BS, TARGET_BT), expected, atol=1e-5, rtol=1e-5)
    logits_BTV, actual = theirs.forward_with_attention(SOURCE_BS, TARGET_BT)
    torch.testing.assert_close(logits_BTV, expected, atol=1e-5, rtol=1e-5)
    for kind in ("encoder", "decoder", "cross"):
        assert len(getattr(actual, kind)) == 2
        for its, mine in zip(getattr(actual, kind), getattr(record, kind), strict=True):
            torch.testing.assert_close(its, mine, atol=1e-5, rtol=1e-5)


def test_weights_are_no_longer_computed_after_recording():
    theirs, _ = both("pre")
    theirs.forward_with_attention(SOURCE_BS, TARGET_BT)
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in theirs.modules()
    )


def test_layers_begin_with_weights_of_their_own():
    model = TorchTransformer(TorchTransformerConfig(n_layers=2))
    for stack in (model.encoder, model.decoder):
        assert not torch.equal(stack.layers[0].linear1.weight, stack.layers[1].linear1.weight)


def test_the_targets_table_of_positions_is_one_longer_than_the_sources():
    model = TorchTransformer(TorchTransformerConfig(max_positions=6))
    assert (
        len(model.source_position_embedding.weight),
        len(model.target_position_embedding.weight),
    ) == (6, 7)
