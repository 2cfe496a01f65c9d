"""Parallel prediction: all tokens of the target in one pass, each from the whole input.

New letter of shapes: W the tokens of the input, blanks included.
"""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.models.attention import padding_mask
from playground.models.config import EncoderOnlyConfig
from playground.models.single_stack import EncoderOnly
from playground.models.transformer import AttentionWeights
from playground.tasks import EOS, PAD, SOS
from playground.tasks.task import Batch

from .seq2seq_model import TeacherForcedModel, check_lengths, eval_mode


class ParallelModel(TeacherForcedModel):
    """A bidirectional stack on the source and blanks (SOS, which no sequence contains)."""

    @abstractmethod
    def input_tokens(self, source_BS: Tensor, n_tokens: int) -> Tensor:
        """Return the input (BW) for targets of `n_tokens` tokens."""

    @abstractmethod
    def target_logits(
        self, source_BS: Tensor, n_tokens: int, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Return the logits (BTV) of the target's first `n_tokens` tokens.

        Each layer appends its attention weights (BHWW) to `weights`.
        """

    def logits(self, batch: Batch) -> Tensor:
        return self.target_logits(batch.source_BS, batch.labels_BT.shape[1])

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            return pad_after_eos(self.target_logits(source_BS, max_tokens))

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        weights = AttentionWeights()
        with eval_mode(self):
            self.target_logits(batch.source_BS, batch.labels_BT.shape[1], weights.encoder)
        return weights

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        tokens_BW = self.input_tokens(batch.source_BS, batch.labels_BT.shape[1])
        return {"encoder": (tokens_BW, tokens_BW)}


class EncoderOnlyModel(EncoderOnly, ParallelModel):
    """The encoder-only transformer from scratch: position t predicts token t of the target.

    The target may be longer than the source, so blanks follow the source. They attend to the source
    and get no attention, so their number has no effect.
    """

    config: EncoderOnlyConfig

    def input_tokens(self, source_BS: Tensor, n_tokens: int) -> Tensor:
        return pad_source(source_BS, n_tokens, SOS)

    def target_logits(
        self, source_BS: Tensor, n_tokens: int, weights: list[Tensor] | None = None
    ) -> Tensor:
        attn_mask = padding_mask(pad_source(source_BS, n_tokens, PAD))
        return self(self.input_tokens(source_BS, n_tokens), attn_mask, weights)[:, :n_tokens]


def pad_source(source_BS: Tensor, n_tokens: int, token: int) -> Tensor:
    """Return the sources at least `n_tokens` wide (BW), with `token` in place of padding."""
    wide_BW = F.pad(source_BS, (0, max(0, n_tokens - source_BS.shape[1])), value=PAD)
    return wide_BW.masked_fill(wide_BW == PAD, token)


def pad_after_eos(logits_BTV: Tensor) -> Tensor:
    """Return the most likely token at each position (BT), with PAD after the first EOS."""
    generated_BT = logits_BTV.argmax(-1)
    is_after_eos_BT = (generated_BT == EOS).cumsum(1) - (generated_BT == EOS).long() > 0
    return generated_BT.masked_fill(is_after_eos_BT, PAD)
