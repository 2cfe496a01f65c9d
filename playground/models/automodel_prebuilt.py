"""The encoder-decoder from PyTorch's own layers, as a class that Auto classes load.

This file and those that it imports are uploaded to the Hub unchanged.
"""

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from .automodel_base import (
    EncoderForGenerate,
    Seq2SeqConfig,
    Seq2SeqModel,
    check_length,
    cross_entropy,
)
from .torch_transformer import TorchTransformer
from .variant_configs import TorchTransformerConfig


class PlaygroundPrebuiltConfig(Seq2SeqConfig):
    """The sizes in the form of transformers."""

    model_type = "transformer-playground-prebuilt"
    model_config_class = TorchTransformerConfig


class PrebuiltEncoder(EncoderForGenerate):
    """The encoder from PyTorch's own layers."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **unused: Any
    ) -> BaseModelOutput:
        """Return the memory (BSD)."""
        source_BS = self.source_tokens(input_ids, attention_mask)
        return BaseModelOutput(last_hidden_state=self.network.encode(source_BS))


class PlaygroundPrebuiltForSeq2SeqLM(Seq2SeqModel):
    """The encoder-decoder from PyTorch's own layers for transformers."""

    config_class = PlaygroundPrebuiltConfig
    encoder_class = PrebuiltEncoder

    def __init__(self, config: PlaygroundPrebuiltConfig) -> None:
        super().__init__(config)
        self.network = TorchTransformer(config.to_model_config())
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        labels: Tensor | None = None,
        **unused: Any,
    ) -> Seq2SeqLMOutput:
        """Return the logits (BTV) of the token that follows each target position.

        With `labels` (BT), the mean cross-entropy is returned as well.

        Raises:
            ValueError: for sequences longer than the model has positions for, or if the source or
                the target is missing.
        """
        encoder_outputs, source_BS, decoder_input_ids = self.encode_inputs(
            input_ids, attention_mask, encoder_outputs, decoder_input_ids, labels
        )
        check_length("decoder_input_ids", decoder_input_ids, self.network.config.max_positions + 1)
        memory_BSD = encoder_outputs[0]
        logits_BTV = self.network.output_proj(
            self.network.decode(decoder_input_ids, memory_BSD, source_BS)
        )
        loss = None if labels is None else cross_entropy(logits_BTV, labels)
        return Seq2SeqLMOutput(loss=loss, logits=logits_BTV, encoder_last_hidden_state=memory_BSD)
