"""The recurrent encoder-decoder as an architecture, with or without attention."""

from __future__ import annotations

import torch
from torch import Tensor

from playground.models.rnn_seq2seq import RNNSeq2Seq as Network
from playground.models.transformer import AttentionWeights
from playground.models.variant_configs import RNNSeq2SeqConfig
from playground.tasks.task import Batch

from .base import TeacherForcedModel, check_lengths, eval_mode, greedy_decode


class Recurrent(Network, TeacherForcedModel):
    """A recurrent model, trained with teacher forcing.

    Its attention weights are those of a cross-attention with one layer and one head.
    """

    config: RNNSeq2SeqConfig

    def logits(self, batch: Batch) -> Tensor:
        return self(batch.source_BS, batch.decoder_input_BT)

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            memory_BSD, states = self.encode(source_BS)

            def next_token(decoder_input_BT: Tensor) -> Tensor:
                nonlocal states
                logits_B1V, states, _ = self.decode(
                    decoder_input_BT[:, -1:], memory_BSD, states, source_BS
                )
                return logits_B1V[:, 0]

            return greedy_decode(next_token, source_BS, max_tokens)

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        record = AttentionWeights()
        with eval_mode(self):
            self(batch.source_BS, batch.decoder_input_BT, record.cross)
        return record

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        return (
            {}
            if self.config.attention == "none"
            else {"cross": (batch.decoder_input_BT, batch.source_BS)}
        )
