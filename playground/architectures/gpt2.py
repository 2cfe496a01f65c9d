"""GPT-2 from transformers: the target continues the source (Radford et al. 2019).

New letter of shapes: W the tokens of a sequence that holds source and target.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from playground.models.decoder_only import left_padded_position_ids
from playground.models.transformer import AttentionWeights
from playground.models.variant_configs import GPT2Sizes
from playground.tasks import EOS, PAD, SOS
from playground.tasks.task import Batch

from .base import TeacherForcedModel, check_lengths, eval_mode, greedy_decode
from .sequences import concat_source_and_target


class GPT2(TeacherForcedModel):
    """GPT-2 on source, EOS, target, EOS. The loss counts the target only.

    The weights are random; nothing pretrained is loaded.
    """

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
        # other implementations do not return attention weights
        self.model.set_attn_implementation("eager")

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
        with eval_mode(self):
            passed = self._forward(batch.source_BS, batch.decoder_input_BT, output_attentions=True)
        return AttentionWeights(decoder=list(passed.attentions))

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        row_BW = concat_source_and_target(batch.source_BS, batch.decoder_input_BT[:, 1:])
        return {"decoder": (row_BW, row_BW)}

    def target_logits(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        """Return the logits (BTV) of the token after each token of `decoder_input_BT`.

        `decoder_input_BT` is SOS, which the EOS of the source replaces, and the target so far.
        """
        return self._forward(source_BS, decoder_input_BT).logits[:, source_BS.shape[1] - 1 :]

    def _forward(self, source_BS: Tensor, decoder_input_BT: Tensor, **output_options: Any) -> Any:
        tokens_BT = concat_source_and_target(source_BS, decoder_input_BT[:, 1:])
        return self.model(
            tokens_BT,
            attention_mask=(tokens_BT != PAD).long(),
            position_ids=left_padded_position_ids(tokens_BT),
            **output_options,
        )
