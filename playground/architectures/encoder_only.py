"""The encoder-only transformer as an architecture: the whole target in one pass.

New letter of shapes: W the tokens of the input, blanks included.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.models.attention import padding_mask
from playground.models.encoder_only import EncoderOnly as Encoder
from playground.models.transformer import AttentionWeights
from playground.models.variant_configs import EncoderOnlyConfig
from playground.tasks import EOS, PAD, SOS
from playground.tasks.task import Batch

from .base import TeacherForcedModel, check_lengths, eval_mode


class EncoderOnly(Encoder, TeacherForcedModel):
    """Encoder-only: position t of the input predicts token t of the target.

    The target may be longer than the source, so blanks (SOS, which no sequence contains) follow the
    source. They attend to the source and get no attention, so their number has no effect.
    """

    config: EncoderOnlyConfig

    def logits(self, batch: Batch) -> Tensor:
        return self.target_logits(batch.source_BS, batch.labels_BT.shape[1])

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            return pad_after_eos(self.target_logits(source_BS, max_tokens))

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        record = AttentionWeights()
        with eval_mode(self):
            self.target_logits(batch.source_BS, batch.labels_BT.shape[1], record.encoder)
        return record

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        tokens_BT = with_blanks(batch.source_BS, batch.labels_BT.shape[1])
        return {"encoder": (tokens_BT, tokens_BT)}

    def target_logits(
        self, source_BS: Tensor, n_tokens: int, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Return the logits (BTV) of the first `n_tokens` positions.

        Each layer appends its attention weights to `weights`.
        """
        tokens_BT = with_blanks(source_BS, n_tokens)
        attn_mask = padding_mask(
            F.pad(source_BS, (0, tokens_BT.shape[1] - source_BS.shape[1]), value=PAD)
        )
        return self(tokens_BT, attn_mask, weights)[:, :n_tokens]


def with_blanks(source_BS: Tensor, n_tokens: int) -> Tensor:
    """Replace the padding of the sources by blanks, at least `n_tokens` wide (BW)."""
    wider_BW = F.pad(source_BS, (0, max(0, n_tokens - source_BS.shape[1])), value=PAD)
    return wider_BW.masked_fill(wider_BW == PAD, SOS)


def pad_after_eos(logits_BTV: Tensor) -> Tensor:
    """Return the most likely token at each position (BT), with PAD after the first EOS."""
    generated_BT = logits_BTV.argmax(-1)
    behind_BT = (generated_BT == EOS).cumsum(1) - (generated_BT == EOS).long() > 0
    return generated_BT.masked_fill(behind_BT, PAD)
