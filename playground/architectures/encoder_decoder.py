"""The transformer from scratch as an architecture."""

from __future__ import annotations

import torch
from torch import Tensor

from playground.generation import generate
from playground.models.transformer import AttentionWeights, Transformer
from playground.tasks.task import Batch

from .base import TeacherForcedModel, eval_mode


class EncoderDecoder(Transformer, TeacherForcedModel):
    """The transformer from scratch, trained with teacher forcing."""

    def logits(self, batch: Batch) -> Tensor:
        return self(batch.source_BS, batch.decoder_input_BT)

    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        return generate(self, source_BS, max_tokens)

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
