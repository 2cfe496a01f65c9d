"""The recurrent encoder-decoder as a class that transformers' Auto classes load.

This file and those that it imports are uploaded to the Hub unchanged.

New letter of shapes: C the states of a cell.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.generic import ModelOutput

from .automodel_base import (
    EncoderDecoderConfig,
    EncoderForGenerate,
    PlaygroundEncoderDecoder,
    check_length,
    cross_entropy,
)
from .config import RecurrentConfig
from .recurrent import Recurrent


class PlaygroundRecurrentConfig(EncoderDecoderConfig):
    """The sizes in the form of transformers."""

    model_type = "transformer-playground-recurrent"
    model_config_class = RecurrentConfig


@dataclass
class RecurrentEncoderOutput(ModelOutput):
    """The top layer's hidden states (BSD), and the states after the last token (BLCD)."""

    last_hidden_state: Tensor | None = None
    states_BLCD: Tensor | None = None


class RecurrentEncoder(EncoderForGenerate):
    """The recurrent encoder."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **unused: Any
    ) -> RecurrentEncoderOutput:
        memory_BSD, states = self.network.encode(self.source_tokens(input_ids, attention_mask))
        states_BLCD = torch.stack([torch.stack(state, dim=1) for state in states], dim=1)
        return RecurrentEncoderOutput(memory_BSD, states_BLCD)


class PlaygroundRecurrentForSeq2SeqLM(PlaygroundEncoderDecoder):
    """The recurrent encoder-decoder for transformers."""

    config_class = PlaygroundRecurrentConfig
    network_class = Recurrent
    encoder_class = RecurrentEncoder

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: RecurrentEncoderOutput | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        **unused: Any,
    ) -> Seq2SeqLMOutput:
        """Return the logits (BTV) of the token that follows each target position.

        With `labels` (BT), the mean cross-entropy is returned as well. `output_attentions` returns
        the attention weights, if the model has attention, as those of one layer with one head.
        Raises ValueError for sequences longer than `max_positions`, or if the source or the target
        is missing.
        """
        encoder_outputs, source_BS, decoder_input_ids = self.encode_inputs(
            input_ids, attention_mask, encoder_outputs, decoder_input_ids, labels
        )
        check_length("decoder_input_ids", decoder_input_ids, self.max_target_length)
        memory_BSD = encoder_outputs["last_hidden_state"]
        states_BLCD = encoder_outputs["states_BLCD"]
        states = [tuple(layer_BCD.unbind(1)) for layer_BCD in states_BLCD.unbind(1)]
        logits_BTV, _, weights_BTS = self.network.decode(
            decoder_input_ids, memory_BSD, states, source_BS
        )
        loss = None if labels is None else cross_entropy(logits_BTV, labels)
        has_attentions = output_attentions and weights_BTS is not None
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits_BTV,
            encoder_last_hidden_state=memory_BSD,
            cross_attentions=(weights_BTS[:, None],) if has_attentions else None,
        )
