import math

import pytest
import torch
from torch import nn

from playground.architectures import load_architecture
from playground.architectures.parameter_groups import parameter_count
from playground.models.attention import MultiHeadAttention
from playground.models.config import POSITION_TYPES, DecoderOnlyConfig, TransformerConfig
from playground.models.feed_forward import build_feed_forward
from playground.models.transformer import Transformer
from playground.training.run_config import RunConfig

WIDE = {"d_model": 64, "d_ff": 256, "source_vocab_size": 200, "target_vocab_size": 200}


def build(**settings):
    torch.manual_seed(0)
    return Transformer(TransformerConfig(**WIDE | settings))


def std(weight):
    return float(weight.detach().std())


def test_default_settings_leave_the_initial_weights_unchanged():
    torch.manual_seed(0)
    expected = nn.Embedding(200, 64)
    nn.init.normal_(expected.weight, std=64**-0.5)
    assert torch.equal(build().target_embedding.token_embedding.weight, expected.weight)


@pytest.mark.parametrize("scale_embeddings", [True, False])
def test_embedding_std_is_that_of_the_vectors_that_enter_the_model(scale_embeddings):
    model = build(scale_embeddings=scale_embeddings, embedding_std=0.5, position_type="none")
    tokens_BS = torch.arange(3, 14)[None]
    assert std(model.source_embedding(tokens_BS)) == pytest.approx(0.5, rel=0.1)
    assert model.source_embedding.scale == (8.0 if scale_embeddings else 1.0)


def test_tied_tables_are_scaled_once():
    sizes = {"share_embeddings": True, "tie_output_embeddings": True}
    model = build(scale_embeddings=False, embedding_std=0.5, **sizes)
    assert std(model.output_proj.weight) == pytest.approx(0.5, rel=0.1)


def test_learned_positions_start_with_their_own_scale():
    model = build(position_std=0.1, max_positions=100)
    assert std(model.source_embedding.position_embedding) == pytest.approx(0.1, rel=0.1)
    waves = build(position_std=0.0, position_type="sinusoidal")
    assert float(waves.source_embedding.position_embedding.abs().max()) == 1.0


@pytest.mark.parametrize("kind", POSITION_TYPES)
def test_derived_tables_are_computed_and_not_saved(kind):
    model = build(position_type=kind)
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()
    expected = {name: table.clone() for name, table in model.named_buffers()}
    assert bool(expected) == (kind in ("sinusoidal", "rope", "alibi"))
    for table in model.buffers():
        table.fill_(torch.nan)
    for module in model.modules():
        if list(module.buffers(recurse=False)):
            module.reset_parameters()
    for name, table in model.named_buffers():
        assert torch.equal(table, expected[name]), name


def test_weights_of_linear_layers_follow_weight_init():
    normal = build(weight_init="normal")
    attention = normal.decoder_layers[0].self_attn
    assert std(attention.q_proj.weight) == pytest.approx(0.02, rel=0.1)
    # 2 layers with 2 outputs into the residual stream in the encoder and 3 in the decoder
    assert std(attention.out_proj.weight) == pytest.approx(0.02 / math.sqrt(10), rel=0.1)
    assert not attention.q_proj.bias.any()
    feed_forward = build(weight_init="torch").encoder_layers[0].feed_forward
    assert float(feed_forward.down_proj.weight.detach().abs().max()) <= 256**-0.5
    projection = build(weight_init="xavier").encoder_layers[0].self_attn.q_proj
    assert std(projection.weight) == pytest.approx(math.sqrt(2 / 128), rel=0.1)
    assert std(build().encoder_layers[0].self_attn.q_proj.weight) < 0.6 * std(projection.weight)


def test_output_bias_is_separate_from_the_other_biases():
    model = build(output_bias=False)
    assert model.output_proj.bias is None
    assert model.encoder_layers[0].feed_forward.up_proj.bias is not None
    n_parameters = sum(weight.numel() for weight in model.parameters())
    assert n_parameters == parameter_count(TransformerConfig(**WIDE, output_bias=False))


def test_dropout_inside_acts_in_training_only():
    config = TransformerConfig(d_model=16, attention_dropout=0.5)
    attention = MultiHeadAttention(config)
    x_BSD = torch.randn(2, 5, 16)
    assert not torch.equal(attention(x_BSD), attention(x_BSD))
    attention.eval()
    torch.testing.assert_close(attention(x_BSD), attention(x_BSD, weights=[]))
    for activation in ("relu", "swiglu"):
        network = build_feed_forward(
            TransformerConfig(d_model=16, activation=activation, activation_dropout=0.5)
        )
        assert not torch.equal(network(x_BSD), network(x_BSD))
        assert torch.equal(network.eval()(x_BSD), network(x_BSD))


def test_model_without_norms_has_no_norm_weights():
    config = RunConfig.from_flat({"architecture": "decoder-only", "norm_type": "none"}).model
    model = load_architecture("decoder-only")(config)
    assert isinstance(config, DecoderOnlyConfig)
    assert not any(isinstance(each, nn.LayerNorm | nn.RMSNorm) for each in model.modules())
    assert sum(weight.numel() for weight in model.parameters()) == parameter_count(config)
