"""BERT from transformers: it predicts all blanks at once (Devlin et al. 2019).

New letter of shapes: W the tokens of the input, blanks included.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from playground.models.decoder_only import left_padded_position_ids
from playground.models.transformer import AttentionWeights
from playground.models.variant_configs import BertSizes
from playground.tasks import PAD, SOS
from playground.tasks.task import Batch

from .base import TeacherForcedModel, check_lengths, eval_mode
from .encoder_only import pad_after_eos
from .sequences import concat_source_and_target


class Bert(TeacherForcedModel):
    """BERT on a sequence of source, EOS and blanks.

    Blanks are SOS, which no sequence contains, instead of [MASK]. There are as many as the model
    has positions, because BERT attends to them and must not learn the target's length from them.
    Source and blanks are BERT's two segments. The weights are random; nothing pretrained is loaded.
    """

    config: BertSizes

    def __init__(self, config: BertSizes) -> None:
        super().__init__()
        self.config = config
        self.model = BertForMaskedLM(
            BertConfig(
                vocab_size=config.source_vocab_size,
                hidden_size=config.d_model,
                num_hidden_layers=config.n_layers,
                num_attention_heads=config.n_heads,
                intermediate_size=config.d_ff,
                hidden_dropout_prob=config.dropout,
                attention_probs_dropout_prob=config.dropout,
                max_position_embeddings=2 * config.max_positions,
                pad_token_id=PAD,
            )
        )
        # other implementations do not return attention weights
        self.model.set_attn_implementation("eager")

    def logits(self, batch: Batch) -> Tensor:
        return self.target_logits(batch.source_BS, batch.labels_BT.shape[1])

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            return pad_after_eos(self.target_logits(source_BS, max_tokens))

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        with eval_mode(self):
            return AttentionWeights(
                encoder=list(self._forward(batch.source_BS, output_attentions=True).attentions)
            )

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        tokens_BT = self._input_ids(batch.source_BS)
        return {"encoder": (tokens_BT, tokens_BT)}

    def target_logits(self, source_BS: Tensor, n_tokens: int) -> Tensor:
        """Return the logits (BTV) of the first `n_tokens` blanks."""
        first = source_BS.shape[1]
        return self._forward(source_BS).logits[:, first : first + n_tokens]

    def _input_ids(self, source_BS: Tensor) -> Tensor:
        return concat_source_and_target(
            source_BS, source_BS.new_full((len(source_BS), self.config.max_positions), SOS)
        )

    def _forward(self, source_BS: Tensor, **output_options: Any) -> Any:
        tokens_BT = self._input_ids(source_BS)
        segment_BW = (
            (torch.arange(tokens_BT.shape[1], device=tokens_BT.device) >= source_BS.shape[1])
            .long()
            .expand_as(tokens_BT)
        )
        return self.model(
            tokens_BT,
            attention_mask=(tokens_BT != PAD).long(),
            token_type_ids=segment_BW,
            position_ids=left_padded_position_ids(tokens_BT),
            **output_options,
        )
