"""The transformer from PyTorch's own layers as an architecture."""

from __future__ import annotations

import torch
from torch import Tensor

from playground.models.torch_transformer import TorchTransformer as Transformer
from playground.models.transformer import AttentionWeights
from playground.models.variant_configs import TorchTransformerConfig
from playground.tasks.task import Batch

from .base import TeacherForcedModel, check_lengths, eval_mode, greedy_decode


class Prebuilt(Transformer, TeacherForcedModel):
    """The transformer from PyTorch's layers, trained with teacher forcing.

    PyTorch's decoder has no cache, so each new token processes the whole target so far again.
    """

    config: TorchTransformerConfig

    def logits(self, batch: Batch) -> Tensor:
        return self(batch.source_BS, batch.decoder_input_BT)

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            memory_BSD = self.encode(source_BS)
            return greedy_decode(
                lambda decoder_input_BT: self.output_proj(
                    self.decode(decoder_input_BT, memory_BSD, source_BS)[:, -1]
                ),
                source_BS,
                max_tokens,
            )

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        with eval_mode(self):
            return self.forward_with_attention(batch.source_BS, batch.decoder_input_BT)[1]

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        source_BS, decoder_input_BT = batch.source_BS, batch.decoder_input_BT
        return {
            "encoder": (source_BS, source_BS),
            "decoder": (decoder_input_BT, decoder_input_BT),
            "cross": (decoder_input_BT, source_BS),
        }
