"""The decoder-only transformer as an architecture: the target continues the source.

New letter of shapes: W the tokens of a sequence that holds source and target.
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
    """Decoder-only on source, EOS, target, EOS. The loss counts the target only."""

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
        """Return the logits (BTV) of the token after each token of `given_BT`.

        `given_BT` is SOS, which the EOS of the source replaces, and the target so far.
        """
        return self(question_and_answer(source_BS, given_BT[:, 1:]), weights)[
            :, source_BS.shape[1] - 1 :
        ]
