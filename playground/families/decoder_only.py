"""The decoder alone as a family: question and answer are one row, and the answer is its continuation.

Shapes: B batch, S source, T target, W places of a row, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from playground.models.decoder_only import DecoderOnly as Decoder
from playground.models.sizes import DecoderOnlyConfig
from playground.models.transformer import AttentionRecord
from playground.tasks.task import Batch

from .family import Taught, check_room, looking, written
from .rows import question_and_answer


class DecoderOnly(Decoder, Taught):
    """A row is source, EOS, answer, EOS; the first EOS asks for the answer. Only the answer is trained."""

    config: DecoderOnlyConfig

    def logits(self, batch: Batch) -> Tensor:
        return self.answers(batch.source_BS, batch.decoder_input_BT)

    @torch.no_grad()
    def solve(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_room(self.config, source_BS, max_tokens)
        with looking(self):
            return written(
                lambda given_BT: self.answers(source_BS, given_BT)[:, -1], source_BS, max_tokens
            )

    @torch.no_grad()
    def record(self, batch: Batch) -> AttentionRecord:
        record = AttentionRecord()
        with looking(self):
            self.answers(batch.source_BS, batch.decoder_input_BT, record.decoder_attention)
        return record

    def axes(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        row_BW = question_and_answer(batch.source_BS, batch.decoder_input_BT[:, 1:])
        return {"decoder": (row_BW, row_BW)}

    def answers(
        self, source_BS: Tensor, given_BT: Tensor, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Scores (BTV) of what follows each token of `given_BT`: SOS, for which the source's EOS stands, and the answer so far."""
        return self(question_and_answer(source_BS, given_BT[:, 1:]), weights)[
            :, source_BS.shape[1] - 1 :
        ]
