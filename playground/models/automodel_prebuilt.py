"""The encoder-decoder from PyTorch's own layers, as a class that Auto classes load.

This file and those that it imports are uploaded to the Hub unchanged.
"""

from typing import Any

from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from .automodel_base import (
    Seq2SeqConfig,
    Seq2SeqModel,
    apply_attention_mask,
    check_length,
    cross_entropy,
)
from .torch_transformer import TorchTransformer
from .variant_configs import TorchTransformerConfig


class PlaygroundPrebuiltConfig(Seq2SeqConfig):
    """The sizes in the form of transformers."""

    model_type = "transformer-playground-prebuilt"
    model_config_class = TorchTransformerConfig


class PrebuiltEncoder(nn.Module):
    """The encoder as `generate` calls it: once, for all steps."""

    main_input_name = "input_ids"

    def __init__(self, network: TorchTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **unused: Any
    ) -> BaseModelOutput:
        """Return the memory (BSD)."""
        check_length("input_ids", input_ids, self.network.config.max_positions)
        return BaseModelOutput(
            last_hidden_state=self.network.encode(apply_attention_mask(input_ids, attention_mask))
        )


class PlaygroundPrebuiltForSeq2SeqLM(Seq2SeqModel):
    """The encoder-decoder from PyTorch's own layers for transformers."""

    config_class = PlaygroundPrebuiltConfig

    def __init__(self, config: PlaygroundPrebuiltConfig) -> None:
        super().__init__(config)
        self.network = TorchTransformer(config.to_model_config())
        self.post_init()

    def get_encoder(self, modality: str | None = None) -> PrebuiltEncoder:
        return PrebuiltEncoder(self.network)

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


def register() -> None:
    """Register the classes of this file with the Auto classes of this process."""
    PlaygroundPrebuiltForSeq2SeqLM.register(AutoModelForSeq2SeqLM)
