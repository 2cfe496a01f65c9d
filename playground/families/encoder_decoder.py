"""The transformer from scratch as a family.

Shapes: B batch, S source, T target, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.decoding import decode
from playground.models.transformer import AttentionRecord, Transformer
from playground.tasks import PAD
from playground.tasks.task import Batch

from .family import Family


class EncoderDecoder(Transformer, Family):
    """The transformer from scratch, trained by teacher forcing: at each position, the right answer so far is given."""

    def loss(self, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """Cross-entropy of the next token, with label smoothing (Szegedy et al. 2016; 5.4 in Vaswani et al. 2017)."""
        logits_BTV = self(batch.source_BS, batch.decoder_input_BT)
        labels_BT = batch.labels_BT
        loss_BT = F.cross_entropy(logits_BTV.transpose(1, 2), labels_BT, reduction="none", label_smoothing=label_smoothing)
        weight_BT = (labels_BT != PAD) * batch.weight_B[:, None]
        return (loss_BT * weight_BT).sum() / weight_BT.sum().clamp(min=1)

    def solve(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        return decode(self, source_BS, max_tokens)

    @torch.no_grad()
    def solves(self, batch: Batch) -> Tensor:
        """One teacher-forced pass instead of decoding.

        By induction on the prefix: where every token is the most likely one given the right prefix, greedy decoding writes
        that very prefix, and so the same tokens; where some token is not, it leaves the right answer there.
        """
        was_training = self.training
        self.eval()
        choice_BT = self(batch.source_BS, batch.decoder_input_BT).argmax(-1)
        self.train(was_training)
        return ((choice_BT == batch.labels_BT) | (batch.labels_BT == PAD)).all(1)

    @torch.no_grad()
    def record(self, batch: Batch) -> AttentionRecord:
        was_training = self.training
        self.eval()
        _, record = self.forward_with_attention(batch.source_BS, batch.decoder_input_BT)
        self.train(was_training)
        return record
