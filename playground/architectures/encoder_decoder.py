"""Models with an encoder and a decoder: the decoder continues the target, given the source."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from playground.generation import generate
from playground.models.attention import MultiHeadAttention
from playground.models.config import RecurrentConfig, TorchTransformerConfig, TransformerConfig
from playground.models.recurrent import Recurrent
from playground.models.torch_transformer import TorchTransformer
from playground.models.transformer import AttentionWeights, Transformer
from playground.tasks.task import Batch

from .seq2seq_model import TeacherForcedModel, eval_mode


class EncoderDecoderModel(TeacherForcedModel):
    """The layout of the encoder-decoders: `forward` takes the source and the decoder input."""

    def logits(self, batch: Batch) -> Tensor:
        return self(batch.source_BS, batch.decoder_input_BT)

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        weights = AttentionWeights()
        with eval_mode(self):
            self(batch.source_BS, batch.decoder_input_BT, weights)
        return weights

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        source_BS, decoder_input_BT = batch.source_BS, batch.decoder_input_BT
        return {
            "encoder": (source_BS, source_BS),
            "decoder": (decoder_input_BT, decoder_input_BT),
            "cross": (decoder_input_BT, source_BS),
        }


class TransformerModel(Transformer, EncoderDecoderModel):
    """The transformer from scratch."""

    config: TransformerConfig

    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        return generate(self, source_BS, max_tokens)


class TorchTransformerModel(TorchTransformer, EncoderDecoderModel):
    """The transformer from PyTorch's layers.

    PyTorch's decoder has no cache, so each new token processes the whole target so far again.
    """

    config: TorchTransformerConfig

    def next_token(self, source_BS: Tensor, max_tokens: int) -> Callable[[Tensor], Tensor]:
        memory_BSD = self.encode(source_BS)

        def next_token(decoder_input_BT: Tensor) -> Tensor:
            x_BTD = self.decode(decoder_input_BT, memory_BSD, source_BS)
            return self.output_proj(x_BTD[:, -1]).argmax(-1)

        return next_token


class RecurrentModel(Recurrent, EncoderDecoderModel):
    """A recurrent model; its attention is a cross-attention with one layer and one head."""

    config: RecurrentConfig

    def next_token(self, source_BS: Tensor, max_tokens: int) -> Callable[[Tensor], Tensor]:
        memory_BSD, states = self.encode(source_BS)

        def next_token(decoder_input_BT: Tensor) -> Tensor:
            nonlocal states
            newest_B1 = decoder_input_BT[:, -1:]
            logits_B1V, states, _ = self.decode(newest_B1, memory_BSD, states, source_BS)
            return logits_B1V[:, 0].argmax(-1)

        return next_token

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        weights = AttentionWeights()
        with eval_mode(self):
            self(batch.source_BS, batch.decoder_input_BT, weights.cross)
        return weights

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        if self.config.attention == "none":
            return {}
        return {"cross": (batch.decoder_input_BT, batch.source_BS)}


@torch.no_grad()
def copy_weights(torch_model: TorchTransformer, model: Transformer) -> None:
    """Copy the weights of PyTorch's layers into a transformer from scratch of the same sizes.

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
