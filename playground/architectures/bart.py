"""BART from transformers: an encoder and a decoder (Lewis et al. 2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration

from playground.models.transformer import AttentionWeights
from playground.models.variant_configs import BartSizes
from playground.tasks import EOS, PAD, SOS
from playground.tasks.task import Batch

from .base import TeacherForcedModel, check_lengths, eval_mode, greedy_decode


class Bart(TeacherForcedModel):
    """BART, trained with teacher forcing from random weights; nothing pretrained is loaded."""

    config: BartSizes

    def __init__(self, config: BartSizes) -> None:
        super().__init__()
        self.config = config
        self.model = BartForConditionalGeneration(
            BartConfig(
                vocab_size=config.source_vocab_size,
                max_position_embeddings=config.max_positions,
                d_model=config.d_model,
                encoder_layers=config.n_layers,
                decoder_layers=config.n_layers,
                encoder_attention_heads=config.n_heads,
                decoder_attention_heads=config.n_heads,
                encoder_ffn_dim=config.d_ff,
                decoder_ffn_dim=config.d_ff,
                dropout=config.dropout,
                pad_token_id=PAD,
                bos_token_id=SOS,
                eos_token_id=EOS,
                decoder_start_token_id=SOS,
                forced_eos_token_id=None,
                use_cache=False,
            )
        )
        # other implementations do not return attention weights
        self.model.set_attn_implementation("eager")

    def logits(self, batch: Batch) -> Tensor:
        return self._forward(batch.source_BS, batch.decoder_input_BT).logits

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            encoder_outputs = self.model.model.encoder(
                source_BS, attention_mask=(source_BS != PAD).long()
            )
            return greedy_decode(
                lambda decoder_input_BT: self._forward(
                    source_BS, decoder_input_BT, encoder_outputs=encoder_outputs
                ).logits[:, -1],
                source_BS,
                max_tokens,
            )

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        with eval_mode(self):
            output = self._forward(batch.source_BS, batch.decoder_input_BT, output_attentions=True)
        kinds = (output.encoder_attentions, output.decoder_attentions, output.cross_attentions)
        return AttentionWeights(*(list(kind) for kind in kinds))

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        source_BS, decoder_input_BT = batch.source_BS, batch.decoder_input_BT
        return {
            "encoder": (source_BS, source_BS),
            "decoder": (decoder_input_BT, decoder_input_BT),
            "cross": (decoder_input_BT, source_BS),
        }

    def _forward(self, source_BS: Tensor, decoder_input_BT: Tensor, **more: Any) -> Any:
        return self.model(
            source_BS,
            attention_mask=(source_BS != PAD).long(),
            decoder_input_ids=decoder_input_BT,
            **more,
        )
