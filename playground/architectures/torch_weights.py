"""Convert the weights of PyTorch's layers to those of the transformer from scratch."""

from typing import Any

import torch
from torch import nn

from playground.models.attention import MultiHeadAttention
from playground.models.torch_transformer import TorchTransformer
from playground.models.transformer import Transformer


@torch.no_grad()
def copy_weights(torch_model: TorchTransformer, model: Transformer) -> None:
    """Copy all weights into a transformer from scratch of the same sizes.

    It needs learned positions. Its target has one position fewer: the one that only a target with
    both SOS and EOS uses.
    """
    for side in ("source", "target"):
        embedding: Any = model.get_submodule(f"{side}_embedding")
        tokens_VD, positions_PD = (
            torch_model.get_parameter(f"{side}_{kind}_embedding.weight")
            for kind in ("token", "position")
        )
        embedding.token_embedding.weight.copy_(tokens_VD)
        embedding.position_embedding.copy_(positions_PD[: model.config.max_positions])
    layers: tuple[Any, ...] = (*model.encoder_layers, *model.decoder_layers)
    for layer, torch_layer in zip(
        layers, (*torch_model.encoder.layers, *torch_model.decoder.layers), strict=True
    ):
        parts = ["self_attn", "feed_forward"]
        _copy_attention(torch_layer.self_attn, layer.self_attn)
        if hasattr(layer, "cross_attn"):
            parts.insert(1, "cross_attn")
            _copy_attention(torch_layer.multihead_attn, layer.cross_attn)
        for number, part in enumerate(parts, start=1):
            norm = layer.get_submodule(f"{part}_residual.norm")
            norm.load_state_dict(torch_layer.get_submodule(f"norm{number}").state_dict())
        layer.feed_forward.up_proj.load_state_dict(torch_layer.linear1.state_dict())
        layer.feed_forward.down_proj.load_state_dict(torch_layer.linear2.state_dict())
    if torch_model.encoder.norm is not None and torch_model.decoder.norm is not None:
        model.encoder_norm.load_state_dict(torch_model.encoder.norm.state_dict())
        model.decoder_norm.load_state_dict(torch_model.decoder.norm.state_dict())
    model.output_proj.load_state_dict(torch_model.output_proj.state_dict())


def _copy_attention(torch_attn: nn.MultiheadAttention, attn: MultiHeadAttention) -> None:
    """Copy the weights of an attention: PyTorch stores Q, K and V in one matrix."""
    projections = (attn.q_proj, attn.k_proj, attn.v_proj)
    weights, biases = torch_attn.in_proj_weight.chunk(3), torch_attn.in_proj_bias.chunk(3)
    for projection, weight, bias in zip(projections, weights, biases, strict=True):
        projection.weight.copy_(weight)
        projection.bias.copy_(bias)
    attn.out_proj.load_state_dict(torch_attn.out_proj.state_dict())
