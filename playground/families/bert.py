"""BERT from transformers: it predicts all blanks at once (Devlin et al. 2019).

New letter of shapes: W the tokens of the input, blanks included.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from playground.models.decoder_only import places
from playground.models.sizes import BertSizes
from playground.models.transformer import AttentionRecord
from playground.tasks import PAD, SOS
from playground.tasks.task import Batch

from .encoder_only import up_to_eos
from .family import Taught, check_room, looking
from .rows import question_and_answer


class Bert(Taught):
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
                vocab_size=config.source_vocabulary,
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
        return self.answers(batch.source_BS, batch.labels_BT.shape[1])

    @torch.no_grad()
    def solve(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_room(self.config, source_BS, max_tokens)
        with looking(self):
            return up_to_eos(self.answers(source_BS, max_tokens))

    @torch.no_grad()
    def record(self, batch: Batch) -> AttentionRecord:
        with looking(self):
            return AttentionRecord(
                encoder_attention=list(
                    self._passed(batch.source_BS, output_attentions=True).attentions
                )
            )

    def axes(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        row_BW = self._row(batch.source_BS)
        return {"encoder": (row_BW, row_BW)}

    def answers(self, source_BS: Tensor, n_tokens: int) -> Tensor:
        """Return the logits (BTV) of the first `n_tokens` blanks."""
        first = source_BS.shape[1]
        return self._passed(source_BS).logits[:, first : first + n_tokens]

    def _row(self, source_BS: Tensor) -> Tensor:
        return question_and_answer(
            source_BS, source_BS.new_full((len(source_BS), self.config.max_positions), SOS)
        )

    def _passed(self, source_BS: Tensor, **wanted: Any) -> Any:
        row_BW = self._row(source_BS)
        segment_BW = (
            (torch.arange(row_BW.shape[1], device=row_BW.device) >= source_BS.shape[1])
            .long()
            .expand_as(row_BW)
        )
        return self.model(
            row_BW,
            attention_mask=(row_BW != PAD).long(),
            token_type_ids=segment_BW,
            position_ids=places(row_BW),
            **wanted,
        )
