"""The encoder alone as a family: a whole answer in one pass.

Shapes: B batch, S source, T target, W places of a row, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.models.encoder_only import EncoderOnly as Encoder
from playground.models.sizes import EncoderOnlyConfig
from playground.models.transformer import AttentionRecord
from playground.tasks import EOS, PAD, SOS
from playground.tasks.task import Batch

from .family import Family, cross_entropy, looking


class EncoderOnly(Encoder, Family):
    """Place t of the row is read off as the answer's token t. Where the answer may outgrow the sequence, blanks (SOS, which no
    sequence holds) stand behind it; padding is blank too, since the model is not told how long the answer will be."""

    config: EncoderOnlyConfig

    def loss(self, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        logits_BTV = self.logits(batch.source_BS, batch.labels_BT.shape[1])
        return cross_entropy(logits_BTV, batch, label_smoothing)

    @torch.no_grad()
    def solve(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        with looking(self):
            answer_BT = self.logits(source_BS, max_tokens).argmax(-1)
        behind_BT = (answer_BT == EOS).cumsum(1) - (answer_BT == EOS).long() > 0
        return answer_BT.masked_fill(behind_BT, PAD)

    @torch.no_grad()
    def solves(self, batch: Batch) -> Tensor:
        with looking(self):
            choice_BT = self.logits(batch.source_BS, batch.labels_BT.shape[1]).argmax(-1)
        return ((choice_BT == batch.labels_BT) | (batch.labels_BT == PAD)).all(1)

    @torch.no_grad()
    def record(self, batch: Batch) -> AttentionRecord:
        record = AttentionRecord()
        with looking(self):
            self(row_of(batch.source_BS, batch.labels_BT.shape[1]), record.encoder_attention)
        return record

    def axes(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        row_BW = row_of(batch.source_BS, batch.labels_BT.shape[1])
        return {"encoder": (row_BW, row_BW)}

    def logits(self, source_BS: Tensor, n_tokens: int) -> Tensor:
        """Scores (BTV) of the first `n_tokens` places."""
        return self(row_of(source_BS, n_tokens))[:, :n_tokens]


def row_of(source_BS: Tensor, n_tokens: int) -> Tensor:
    """The source with a blank wherever it holds nothing, at least `n_tokens` wide (BW)."""
    wider_BW = F.pad(source_BS, (0, max(0, n_tokens - source_BS.shape[1])), value=PAD)
    return wider_BW.masked_fill(wider_BW == PAD, SOS)
