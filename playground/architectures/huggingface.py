"""BART, GPT-2 and BERT from transformers, trained from random weights; nothing is downloaded.

A module of its own, because importing transformers is slow. New letter of shapes: W the tokens of a
sequence that holds source and target.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
)

from playground.models.config import BartSizes, BertSizes, GPT2Sizes
from playground.models.embeddings import positions_from_first_token
from playground.models.transformer import AttentionWeights
from playground.tasks import EOS, PAD, SOS
from playground.tasks.task import Batch

from .decoder_only import CausalLM, concat_source_and_target
from .encoder_decoder import EncoderDecoderModel
from .parallel import ParallelModel
from .seq2seq_model import eval_mode

# The other implementations in transformers do not return attention weights.
ATTENTION = "eager"


class Bart(EncoderDecoderModel):
    """BART (Lewis et al. 2020)."""

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
        self.model.set_attn_implementation(ATTENTION)

    def forward(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        return self._run(source_BS, decoder_input_BT).logits

    def next_token(self, source_BS: Tensor, max_tokens: int) -> Callable[[Tensor], Tensor]:
        is_token_BS = (source_BS != PAD).long()
        encoded = self.model.model.encoder(source_BS, attention_mask=is_token_BS)

        def next_token(decoder_input_BT: Tensor) -> Tensor:
            result = self._run(source_BS, decoder_input_BT, encoder_outputs=encoded)
            return result.logits[:, -1].argmax(-1)

        return next_token

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        with eval_mode(self):
            output = self._run(batch.source_BS, batch.decoder_input_BT, output_attentions=True)
        kinds = (output.encoder_attentions, output.decoder_attentions, output.cross_attentions)
        return AttentionWeights(*(list(kind) for kind in kinds))

    def _run(self, source_BS: Tensor, decoder_input_BT: Tensor, **options: Any) -> Any:
        return self.model(
            source_BS,
            attention_mask=(source_BS != PAD).long(),
            decoder_input_ids=decoder_input_BT,
            **options,
        )


class GPT2(CausalLM):
    """GPT-2 (Radford et al. 2019)."""

    config: GPT2Sizes

    def __init__(self, config: GPT2Sizes) -> None:
        super().__init__()
        self.config = config
        self.model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=config.source_vocab_size,
                n_positions=2 * config.max_positions,
                n_embd=config.d_model,
                n_layer=config.n_layers,
                n_head=config.n_heads,
                n_inner=config.d_ff,
                resid_pdrop=config.dropout,
                embd_pdrop=config.dropout,
                attn_pdrop=config.dropout,
                bos_token_id=SOS,
                eos_token_id=EOS,
                pad_token_id=PAD,
                use_cache=False,
            )
        )
        self.model.set_attn_implementation(ATTENTION)

    def forward(self, tokens_BW: Tensor, weights: list[Tensor] | None = None) -> Tensor:
        output = self.model(
            tokens_BW,
            attention_mask=(tokens_BW != PAD).long(),
            position_ids=positions_from_first_token(tokens_BW != PAD),
            output_attentions=weights is not None,
        )
        if weights is not None:
            weights.extend(output.attentions)
        return output.logits


class Bert(ParallelModel):
    """BERT (Devlin et al. 2018) on a sequence of source, EOS and blanks.

    Blanks are SOS instead of [MASK]. There are as many as the model has positions, because BERT
    attends to them and must not learn the target's length from them. Source and blanks are BERT's
    two segments.
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
        self.model.set_attn_implementation(ATTENTION)

    def input_tokens(self, source_BS: Tensor, n_tokens: int) -> Tensor:
        blanks_BT = source_BS.new_full((len(source_BS), self.config.max_positions), SOS)
        return concat_source_and_target(source_BS, blanks_BT)

    def target_logits(
        self, source_BS: Tensor, n_tokens: int, weights: list[Tensor] | None = None
    ) -> Tensor:
        first = source_BS.shape[1]
        tokens_BW = self.input_tokens(source_BS, n_tokens)
        segment_W = (torch.arange(tokens_BW.shape[1], device=tokens_BW.device) >= first).long()
        output = self.model(
            tokens_BW,
            attention_mask=(tokens_BW != PAD).long(),
            token_type_ids=segment_W.expand_as(tokens_BW),
            position_ids=positions_from_first_token(tokens_BW != PAD),
            output_attentions=weights is not None,
        )
        if weights is not None:
            weights.extend(output.attentions)
        return output.logits[:, first : first + n_tokens]
