"""The transformer from scratch as a family.

Shapes: B batch, S source, T target, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from playground.decoding import decode
from playground.models.transformer import AttentionRecord, Transformer
from playground.tasks.task import Batch

from .family import Family, all_right, cross_entropy, looking


class EncoderDecoder(Transformer, Family):
    """The transformer from scratch, trained by teacher forcing: at each position, the right answer so far is given."""

    def loss(self, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        return cross_entropy(self(batch.source_BS, batch.decoder_input_BT), batch, label_smoothing)

    def solve(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        return decode(self, source_BS, max_tokens)

    @torch.no_grad()
    def solves(self, batch: Batch) -> Tensor:
        """One teacher-forced pass instead of decoding.

        By induction on the prefix: where every token is the most likely one given the right prefix, greedy decoding writes
        that very prefix, and so the same tokens; where some token is not, it leaves the right answer there.
        """
        with looking(self):
            return all_right(self(batch.source_BS, batch.decoder_input_BT), batch)

    @torch.no_grad()
    def record(self, batch: Batch) -> AttentionRecord:
        with looking(self):
            return self.forward_with_attention(batch.source_BS, batch.decoder_input_BT)[1]

    def axes(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        source_BS, given_BT = batch.source_BS, batch.decoder_input_BT
        return {"encoder": (source_BS, source_BS), "decoder": (given_BT, given_BT), "cross": (given_BT, source_BS)}
