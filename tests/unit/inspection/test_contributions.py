"""The contribution of each sublayer to the residual stream."""

import pytest
import torch

from playground.checkpoints.checkpoint import build_model
from playground.inspection.contributions import record_contributions
from playground.models.config import TransformerConfig
from playground.models.transformer import Transformer
from tests.support.small_configs import VARIANTS, small_config

SOURCE, TARGET = torch.tensor([[3, 4, 5, 2]]), torch.tensor([[1, 5, 4, 3]])


def build_transformer(norm_placement):
    torch.manual_seed(0)
    return Transformer(TransformerConfig(norm_placement=norm_placement, dropout=0.0)).eval()


@pytest.mark.parametrize("norm_placement", ["pre", "post"])
@torch.no_grad()
def test_contribution_is_output_norm_over_stream_norm(norm_placement):
    model = build_transformer(norm_placement)
    with record_contributions(model) as contributions:
        model(SOURCE, TARGET)
    x_BSD = model.source_embedding(SOURCE)
    layer = model.encoder_layers[0]
    is_pre_norm = norm_placement == "pre"
    attention_norm, network_norm = layer.self_attn_residual.norm, layer.feed_forward_residual.norm
    output_BSD = layer.self_attn(attention_norm(x_BSD) if is_pre_norm else x_BSD)
    expected = (output_BSD.norm(dim=-1) / x_BSD.norm(dim=-1)).mean()
    assert contributions["encoder_layers.0.self_attn"] == pytest.approx(float(expected), rel=1e-4)
    after_BSD = x_BSD + output_BSD if is_pre_norm else attention_norm(x_BSD + output_BSD)
    output_BSD = layer.feed_forward(network_norm(after_BSD) if is_pre_norm else after_BSD)
    expected = (output_BSD.norm(dim=-1) / after_BSD.norm(dim=-1)).mean()
    assert contributions["encoder_layers.0.feed_forward"] == pytest.approx(
        float(expected), rel=1e-4
    )
    assert len(contributions) == 2 * model.config.n_layers + 3 * model.config.n_layers


@torch.no_grad()
def test_a_sublayer_with_zero_output_contributes_nothing():
    model = build_transformer("pre")
    projection = model.decoder_layers[1].cross_attn.out_proj
    for parameter in projection.parameters():
        parameter.zero_()
    with record_contributions(model) as contributions:
        model(SOURCE, TARGET)
    zero = [name for name, value in contributions.items() if value == 0]
    assert zero == ["decoder_layers.1.cross_attn"]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_architecture_can_be_recorded(name):
    model = build_model(small_config(name))
    with record_contributions(model) as contributions:
        pass
    assert contributions == {}
