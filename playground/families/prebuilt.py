"""The transformer from PyTorch's own layers as an architecture."""

from __future__ import annotations

import torch
from torch import Tensor

from playground.models.prebuilt import Prebuilt as Transformer
from playground.models.sizes import PrebuiltConfig
from playground.models.transformer import AttentionRecord
from playground.tasks.task import Batch

from .family import Taught, check_room, looking, written


class Prebuilt(Transformer, Taught):
    """The transformer from PyTorch's layers, trained with teacher forcing.

    PyTorch's decoder has no cache, so each new token processes the whole target so far again.
    """

    config: PrebuiltConfig

    def logits(self, batch: Batch) -> Tensor:
        return self(batch.source_BS, batch.decoder_input_BT)

    @torch.no_grad()
    def solve(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_room(self.config, source_BS, max_tokens)
        with looking(self):
            memory_BSD = self.encode(source_BS)
            return written(
                lambda given_BT: self.output(self.decode(given_BT, memory_BSD, source_BS)[:, -1]),
                source_BS,
                max_tokens,
            )

    @torch.no_grad()
    def record(self, batch: Batch) -> AttentionRecord:
        with looking(self):
            return self.forward_with_attention(batch.source_BS, batch.decoder_input_BT)[1]

    def axes(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        source_BS, given_BT = batch.source_BS, batch.decoder_input_BT
        return {
            "encoder": (source_BS, source_BS),
            "decoder": (given_BT, given_BT),
            "cross": (given_BT, source_BS),
        }
