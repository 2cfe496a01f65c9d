"""The decoder-only transformer as an architecture: the target continues the source.

New letter of shapes: W the tokens of a sequence that holds source and target.
"""

from __future__ import annotations

import torch
from torch import Tensor

from playground.models.decoder_only import DecoderOnly as Decoder
from playground.models.transformer import AttentionWeights
from playground.models.variant_configs import DecoderOnlyConfig
from playground.tasks.task import Batch

from .base import TeacherForcedModel, check_lengths, eval_mode, greedy_decode
from .sequences import concat_source_and_target


class DecoderOnly(Decoder, TeacherForcedModel):
    """Decoder-only on source, EOS, target, EOS. The loss counts the target only."""

    config: DecoderOnlyConfig

    def logits(self, batch: Batch) -> Tensor:
        return self.target_logits(batch.source_BS, batch.decoder_input_BT)

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            return greedy_decode(
                lambda decoder_input_BT: self.target_logits(source_BS, decoder_input_BT)[:, -1],
                source_BS,
                max_tokens,
            )

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        record = AttentionWeights()
        with eval_mode(self):
            self.target_logits(batch.source_BS, batch.decoder_input_BT, record.decoder)
        return record

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        tokens_BT = concat_source_and_target(batch.source_BS, batch.decoder_input_BT[:, 1:])
        return {"decoder": (tokens_BT, tokens_BT)}

    def target_logits(
        self, source_BS: Tensor, decoder_input_BT: Tensor, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Return the logits (BTV) of the token after each token of `decoder_input_BT`.

        `decoder_input_BT` is SOS, which the EOS of the source replaces, and the target so far.
        """
        return self(concat_source_and_target(source_BS, decoder_input_BT[:, 1:]), weights)[
            :, source_BS.shape[1] - 1 :
        ]
