"""The recurrent encoder-decoder as an architecture, with or without attention."""

from __future__ import annotations

import torch
from torch import Tensor

from playground.models.recurrent import Recurrent as Network
from playground.models.sizes import RecurrentConfig
from playground.models.transformer import AttentionRecord
from playground.tasks.task import Batch

from .family import Taught, check_room, looking, written


class Recurrent(Network, Taught):
    """A recurrent model, trained with teacher forcing.

    Its attention weights are those of a cross-attention with one layer and one head.
    """

    config: RecurrentConfig

    def logits(self, batch: Batch) -> Tensor:
        return self(batch.source_BS, batch.decoder_input_BT)

    @torch.no_grad()
    def solve(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_room(self.config, source_BS, max_tokens)
        with looking(self):
            memory_BSD, states = self.encode(source_BS)

            def next_token(given_BT: Tensor) -> Tensor:
                nonlocal states
                logits_B1V, states, _ = self.decode(given_BT[:, -1:], memory_BSD, states, source_BS)
                return logits_B1V[:, 0]

            return written(next_token, source_BS, max_tokens)

    @torch.no_grad()
    def record(self, batch: Batch) -> AttentionRecord:
        record = AttentionRecord()
        with looking(self):
            self(batch.source_BS, batch.decoder_input_BT, record.cross_attention)
        return record

    def axes(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        return (
            {}
            if self.config.alignment == "none"
            else {"cross": (batch.decoder_input_BT, batch.source_BS)}
        )
