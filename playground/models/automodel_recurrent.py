"""The recurrent encoder-decoder as a class that transformers' Auto classes load.

This file and those that it imports travel to the Hub unchanged.

Shapes: B batch, S source, T target, L layers, C states of a cell, D d_model, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    GenerationMixin,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.generic import ModelOutput

from .automodel_base import (
    Seq2SeqConfig,
    StopAtLastPosition,
    apply_mask,
    check_length,
    cross_entropy,
    shift_right,
)
from .recurrent import Recurrent
from .sizes import RecurrentConfig


class PlaygroundRecurrentConfig(Seq2SeqConfig):
    """The sizes, as transformers keeps them."""

    model_type = "transformer-playground-recurrent"
    sizes_class = RecurrentConfig

    def __init__(
        self, **values: Any
    ) -> None:  # transformers writes another one where a class has none
        super().__init__(**values)


@dataclass
class RecurrentEncoderOutput(ModelOutput):
    """The top layer's hidden state at each symbol (BSD), and the states behind the last symbol (BLCD)."""

    last_hidden_state: Tensor | None = None
    states_BLCD: Tensor | None = None


class RecurrentEncoder(nn.Module):
    """The encoder as `generate` calls it: once for a source."""

    main_input_name = "input_ids"

    def __init__(self, network: Recurrent) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **unused: Any
    ) -> RecurrentEncoderOutput:
        check_length("input_ids", input_ids, self.network.config.max_positions)
        memory_BSD, states = self.network.encode(apply_mask(input_ids, attention_mask))
        return RecurrentEncoderOutput(
            memory_BSD, torch.stack([torch.stack(state, dim=1) for state in states], dim=1)
        )


class PlaygroundRecurrentForSeq2SeqLM(PreTrainedModel, GenerationMixin):
    """Sequence in, sequence out: `generate` greedily, sampled or with beams, in padded batches."""

    config_class = PlaygroundRecurrentConfig
    base_model_prefix = "network"
    main_input_name = "input_ids"
    accepts_loss_kwargs = False  # the loss is a mean over the batch

    def __init__(self, config: PlaygroundRecurrentConfig) -> None:
        super().__init__(config)
        self.generation_config = config.generation()
        self.network = Recurrent(config.sizes())
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Leave the weights as the network has them: a file holds them all."""

    def get_encoder(self, modality: str | None = None) -> RecurrentEncoder:
        return RecurrentEncoder(self.network)

    def get_input_embeddings(self) -> nn.Module:
        return self.network.source_tokens

    def get_output_embeddings(self) -> nn.Module:
        return self.network.output

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
        """Return logits (BTV) of the token that follows each target position; with `labels` (BT), the mean cross-entropy too.

        With an alignment, `output_attentions` gives its weights as those of one layer with one head.

        Raises:
            ValueError: for sequences longer than the model was made for, or where the source or the target is missing.
        """
        if encoder_outputs is None:
            if input_ids is None:
                raise ValueError("there is no source: give input_ids, or encoder_outputs")
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError(
                    "there is no target: give decoder_input_ids, or labels, which they follow from"
                )
            decoder_input_ids = shift_right(labels)
        check_length("decoder_input_ids", decoder_input_ids, self.network.config.max_positions + 1)
        memory_BSD, states_BLCD = (
            encoder_outputs["last_hidden_state"],
            encoder_outputs["states_BLCD"],
        )
        if input_ids is not None:
            source_BS = apply_mask(input_ids, attention_mask)
        else:  # a step of `generate`: the decoder needs to know only where the source has a token
            source_BS = (
                memory_BSD.new_ones(memory_BSD.shape[:2])
                if attention_mask is None
                else attention_mask
            )
        states = [tuple(layer_BCD.unbind(1)) for layer_BCD in states_BLCD.unbind(1)]
        logits_BTV, _, weights_BTS = self.network.decode(
            decoder_input_ids, memory_BSD, states, source_BS
        )
        loss = None if labels is None else cross_entropy(logits_BTV, labels)
        attentions = (
            (weights_BTS[:, None],) if output_attentions and weights_BTS is not None else None
        )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits_BTV,
            encoder_last_hidden_state=memory_BSD,
            cross_attentions=attentions,
        )

    def generate(
        self, *inputs: Any, stopping_criteria: StoppingCriteriaList | None = None, **kwargs: Any
    ) -> Any:
        """Generate as transformers does, but no answer outgrows what the model was made for."""
        stop = StopAtLastPosition(self.network.config.max_positions)
        if kwargs.get("max_new_tokens") is not None:
            kwargs.setdefault("max_length", None)
        return super().generate(  # type: ignore[misc]
            *inputs,
            stopping_criteria=StoppingCriteriaList([*(stopping_criteria or ()), stop]),
            **kwargs,
        )

    def prepare_inputs_for_generation(  # type: ignore[override]
        self,
        decoder_input_ids: Tensor,
        encoder_outputs: RecurrentEncoderOutput | None = None,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return what a step needs. Each step reads the whole target again: answers are short."""
        return {
            "decoder_input_ids": decoder_input_ids,
            "encoder_outputs": encoder_outputs,
            "attention_mask": attention_mask,
            "output_attentions": output_attentions,
        }


def register() -> None:
    """Let the Auto classes of this process load this family without running code of a repository."""
    AutoConfig.register(
        PlaygroundRecurrentConfig.model_type, PlaygroundRecurrentConfig, exist_ok=True
    )
    AutoModelForSeq2SeqLM.register(
        PlaygroundRecurrentConfig, PlaygroundRecurrentForSeq2SeqLM, exist_ok=True
    )
