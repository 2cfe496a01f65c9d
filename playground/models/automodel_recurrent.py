"""The recurrent encoder-decoder as a class that transformers' Auto classes load.

This file and those that it imports are uploaded to the Hub unchanged.

New letter of shapes: C the states of a cell.
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
    MaxPositionsCriteria,
    Seq2SeqConfig,
    apply_attention_mask,
    check_length,
    cross_entropy,
    shift_right,
)
from .rnn_seq2seq import RNNSeq2Seq
from .variant_configs import RNNSeq2SeqConfig


class PlaygroundRecurrentConfig(Seq2SeqConfig):
    """The sizes in the form of transformers."""

    model_type = "transformer-playground-recurrent"
    model_config_class = RNNSeq2SeqConfig

    # transformers generates an __init__ for a class that defines none
    def __init__(self, **values: Any) -> None:
        super().__init__(**values)


@dataclass
class RecurrentEncoderOutput(ModelOutput):
    """The top layer's hidden states (BSD), and the states after the last token (BLCD)."""

    last_hidden_state: Tensor | None = None
    states_BLCD: Tensor | None = None


class RecurrentEncoder(nn.Module):
    """The encoder as `generate` calls it: once, for all steps."""

    main_input_name = "input_ids"

    def __init__(self, network: RNNSeq2Seq) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **unused: Any
    ) -> RecurrentEncoderOutput:
        check_length("input_ids", input_ids, self.network.config.max_positions)
        memory_BSD, states = self.network.encode(apply_attention_mask(input_ids, attention_mask))
        return RecurrentEncoderOutput(
            memory_BSD, torch.stack([torch.stack(state, dim=1) for state in states], dim=1)
        )


class PlaygroundRecurrentForSeq2SeqLM(PreTrainedModel, GenerationMixin):
    """An encoder-decoder for `generate`: greedy, sampling or beam search, in padded batches."""

    config_class = PlaygroundRecurrentConfig
    base_model_prefix = "network"
    main_input_name = "input_ids"
    accepts_loss_kwargs = False  # the loss is a mean over the batch

    def __init__(self, config: PlaygroundRecurrentConfig) -> None:
        super().__init__(config)
        self.generation_config = config.default_generation_config()
        self.network = RNNSeq2Seq(config.to_model_config())
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Leave the weights as the network initialized them: a file contains them all."""

    def get_encoder(self, modality: str | None = None) -> RecurrentEncoder:
        return RecurrentEncoder(self.network)

    def get_input_embeddings(self) -> nn.Module:
        return self.network.source_token_embedding

    def get_output_embeddings(self) -> nn.Module:
        return self.network.output_proj

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

        Raises:
            ValueError: for sequences longer than `max_positions`, or if the source or the target is
                missing.
        """
        if encoder_outputs is None:
            if input_ids is None:
                raise ValueError("no source: pass input_ids or encoder_outputs")
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("no target: pass decoder_input_ids or labels")
            decoder_input_ids = shift_right(labels)
        check_length("decoder_input_ids", decoder_input_ids, self.network.config.max_positions + 1)
        memory_BSD, states_BLCD = (
            encoder_outputs["last_hidden_state"],
            encoder_outputs["states_BLCD"],
        )
        if input_ids is not None:
            source_BS = apply_attention_mask(input_ids, attention_mask)
        else:  # a step of `generate`: decoding only needs to know which positions are not padding
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
        """Generate as transformers does, but stop at `max_positions`."""
        stop = MaxPositionsCriteria(self.network.config.max_positions)
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
        """Return the inputs of a step: the whole target, since there is no cache."""
        return {
            "decoder_input_ids": decoder_input_ids,
            "encoder_outputs": encoder_outputs,
            "attention_mask": attention_mask,
            "output_attentions": output_attentions,
        }


def register() -> None:
    """Register the classes with the Auto classes, so that no code of a repository is run."""
    AutoConfig.register(
        PlaygroundRecurrentConfig.model_type, PlaygroundRecurrentConfig, exist_ok=True
    )
    AutoModelForSeq2SeqLM.register(
        PlaygroundRecurrentConfig, PlaygroundRecurrentForSeq2SeqLM, exist_ok=True
    )
