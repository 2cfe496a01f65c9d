"""The encoder-only transformer as an architecture: the whole target in one pass.

New letter of shapes: W the tokens of the input, blanks included.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.models.attention import padding_mask
from playground.models.encoder_only import EncoderOnly as Encoder
from playground.models.sizes import EncoderOnlyConfig
from playground.models.transformer import AttentionRecord
from playground.tasks import EOS, PAD, SOS
from playground.tasks.task import Batch

from .family import Taught, check_room, looking


class EncoderOnly(Encoder, Taught):
    """Encoder-only: position t of the input predicts token t of the target.

    The target may be longer than the source, so blanks (SOS, which no sequence contains) follow the
    source. They attend to the source and get no attention, so their number has no effect.
    """

    config: EncoderOnlyConfig

    def logits(self, batch: Batch) -> Tensor:
        return self.answers(batch.source_BS, batch.labels_BT.shape[1])

    @torch.no_grad()
    def solve(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_room(self.config, source_BS, max_tokens)
        with looking(self):
            return up_to_eos(self.answers(source_BS, max_tokens))

    @torch.no_grad()
    def record(self, batch: Batch) -> AttentionRecord:
        record = AttentionRecord()
        with looking(self):
            self.answers(batch.source_BS, batch.labels_BT.shape[1], record.encoder_attention)
        return record

    def axes(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        row_BW = row_of(batch.source_BS, batch.labels_BT.shape[1])
        return {"encoder": (row_BW, row_BW)}

    def answers(
        self, source_BS: Tensor, n_tokens: int, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Return the logits (BTV) of the first `n_tokens` positions.

        Each layer appends its attention weights to `weights`.
        """
        row_BW = row_of(source_BS, n_tokens)
        may_look = padding_mask(
            F.pad(source_BS, (0, row_BW.shape[1] - source_BS.shape[1]), value=PAD)
        )
        return self(row_BW, may_look, weights)[:, :n_tokens]


def row_of(source_BS: Tensor, n_tokens: int) -> Tensor:
    """Replace the padding of the sources by blanks, at least `n_tokens` wide (BW)."""
    wider_BW = F.pad(source_BS, (0, max(0, n_tokens - source_BS.shape[1])), value=PAD)
    return wider_BW.masked_fill(wider_BW == PAD, SOS)


def up_to_eos(logits_BTV: Tensor) -> Tensor:
    """Return the most likely token at each position (BT), with PAD after the first EOS."""
    answer_BT = logits_BTV.argmax(-1)
    behind_BT = (answer_BT == EOS).cumsum(1) - (answer_BT == EOS).long() > 0
    return answer_BT.masked_fill(behind_BT, PAD)
