"""Decoders without an encoder: the target continues the source in one sequence.

Shapes: W is the length of a sequence of source and target tokens.
"""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from playground.models.config import DecoderOnlyConfig
from playground.models.single_stack import DecoderOnly
from playground.models.transformer import AttentionWeights
from playground.tasks import PAD
from playground.tasks.task import Batch

from .seq2seq_model import TeacherForcedModel, eval_mode


class CausalLM(TeacherForcedModel):
    """A causal stack on source, EOS, target, EOS. The loss counts the target only."""

    @abstractmethod
    def forward(self, tokens_BW: Tensor, weights: list[Tensor] | None = None) -> Tensor:
        """Return the logits (BWV) of the token that follows each position.

        Each layer appends its attention weights (BHWW) to `weights`.
        """

    def target_logits(
        self, source_BS: Tensor, decoder_input_BT: Tensor, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Return the logits (BTV) of the token after each token of `decoder_input_BT`.

        `decoder_input_BT` is SOS and the target so far. The EOS that ends the source replaces SOS.
        """
        tokens_BW = concat_source_and_target(source_BS, decoder_input_BT[:, 1:])
        return self(tokens_BW, weights)[:, source_BS.shape[1] - 1 :]

    def logits(self, batch: Batch) -> Tensor:
        return self.target_logits(batch.source_BS, batch.decoder_input_BT)

    def next_token(self, source_BS: Tensor, max_tokens: int) -> Callable[[Tensor], Tensor]:
        def next_token(decoder_input_BT: Tensor) -> Tensor:
            return self.target_logits(source_BS, decoder_input_BT)[:, -1].argmax(-1)

        return next_token

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        weights = AttentionWeights()
        with eval_mode(self):
            self.target_logits(batch.source_BS, batch.decoder_input_BT, weights.decoder)
        return weights

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        tokens_BW = concat_source_and_target(batch.source_BS, batch.decoder_input_BT[:, 1:])
        return {"decoder": (tokens_BW, tokens_BW)}


class DecoderOnlyModel(DecoderOnly, CausalLM):
    """The decoder-only transformer from scratch."""

    config: DecoderOnlyConfig

    def next_token(self, source_BS: Tensor, max_tokens: int) -> Callable[[Tensor], Tensor]:
        cache = self.new_cache(len(source_BS), source_BS.shape[1] + max_tokens)

        def next_token(decoder_input_BT: Tensor) -> Tensor:
            tokens_BW = concat_source_and_target(source_BS, decoder_input_BT[:, 1:])
            new_BT = tokens_BW[:, cache[0].self_attn.length :]
            return self(new_BT, cache=cache, is_token_BW=tokens_BW != PAD)[:, -1].argmax(-1)

        return next_token


def left_pad(source_BS: Tensor) -> Tensor:
    """Move the padding of the sources to the front (BS), so that all end in the last column."""
    column_S = torch.arange(source_BS.shape[1], device=source_BS.device)
    from_BS = column_S - (source_BS == PAD).sum(1, keepdim=True)
    return source_BS.gather(1, from_BS.clamp(min=0)).masked_fill(from_BS < 0, PAD)


def concat_source_and_target(source_BS: Tensor, target_BT: Tensor) -> Tensor:
    """Left-pad the sources, which end in EOS, and append the targets (BW).

    Every target begins in column S, so the token after column S - 1 + t is token t of the target.
    """
    return torch.cat([left_pad(source_BS), target_BT], dim=1)
