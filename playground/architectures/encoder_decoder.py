"""Models with an encoder and a decoder: the decoder continues the target, given the source."""

import torch
from torch import Tensor

from playground.generation import generate
from playground.models.config import RecurrentConfig, TorchTransformerConfig, TransformerConfig
from playground.models.recurrent import Recurrent
from playground.models.torch_transformer import TorchTransformer
from playground.models.transformer import AttentionWeights, Transformer
from playground.tasks.task import Batch

from .seq2seq_model import TeacherForcedModel, check_lengths, eval_mode, generate_tokens


class EncoderDecoderModel(TeacherForcedModel):
    """The layout of the encoder-decoders: `forward` takes the source and the decoder input."""

    def logits(self, batch: Batch) -> Tensor:
        return self(batch.source_BS, batch.decoder_input_BT)

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        weights = AttentionWeights()
        with eval_mode(self):
            self(batch.source_BS, batch.decoder_input_BT, weights)
        return weights

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        source_BS, decoder_input_BT = batch.source_BS, batch.decoder_input_BT
        return {
            "encoder": (source_BS, source_BS),
            "decoder": (decoder_input_BT, decoder_input_BT),
            "cross": (decoder_input_BT, source_BS),
        }


class TransformerModel(Transformer, EncoderDecoderModel):
    """The transformer from scratch."""

    config: TransformerConfig

    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        return generate(self, source_BS, max_tokens)


class TorchTransformerModel(TorchTransformer, EncoderDecoderModel):
    """The transformer from PyTorch's layers.

    PyTorch's decoder has no cache, so each new token processes the whole target so far again.
    """

    config: TorchTransformerConfig

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            memory_BSD = self.encode(source_BS)

            def next_token(decoder_input_BT: Tensor) -> Tensor:
                x_BTD = self.decode(decoder_input_BT, memory_BSD, source_BS)
                return self.output_proj(x_BTD[:, -1]).argmax(-1)

            return generate_tokens(next_token, source_BS, max_tokens)


class RecurrentModel(Recurrent, EncoderDecoderModel):
    """A recurrent model; its attention is a cross-attention with one layer and one head."""

    config: RecurrentConfig

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            memory_BSD, states = self.encode(source_BS)

            def next_token(decoder_input_BT: Tensor) -> Tensor:
                nonlocal states
                newest_B1 = decoder_input_BT[:, -1:]
                logits_B1V, states, _ = self.decode(newest_B1, memory_BSD, states, source_BS)
                return logits_B1V[:, 0].argmax(-1)

            return generate_tokens(next_token, source_BS, max_tokens)

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        weights = AttentionWeights()
        with eval_mode(self):
            self(batch.source_BS, batch.decoder_input_BT, weights.cross)
        return weights

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        if self.config.attention == "none":
            return {}
        return {"cross": (batch.decoder_input_BT, batch.source_BS)}
