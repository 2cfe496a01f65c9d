"""The encoder-only transformer as a class that transformers' Auto classes load.

It predicts the whole target in parallel. This file and those that it imports are uploaded to the
Hub unchanged.

New letter of shapes: W the tokens of the input, blanks included.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_outputs import MaskedLMOutput

from .attention import padding_mask
from .automodel_base import (
    PAD,
    SOS,
    ArchitectureConfig,
    PlaygroundModel,
    apply_attention_mask,
    check_length,
    check_padding_side,
    cross_entropy,
)
from .config import EncoderOnlyConfig
from .encoder_only import EncoderOnly


class PlaygroundEncoderOnlyConfig(ArchitectureConfig):
    """The sizes in the form of transformers."""

    model_type = "transformer-playground-encoder-only"
    model_config_class = EncoderOnlyConfig


class PlaygroundEncoderOnlyForMaskedLM(PlaygroundModel):
    """Scores all tokens at all target positions in one pass; the first EOS ends the target."""

    config_class = PlaygroundEncoderOnlyConfig

    def __init__(self, config: PlaygroundEncoderOnlyConfig) -> None:
        super().__init__(config)
        self.network = EncoderOnly(config.to_model_config())
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        **unused: Any,
    ) -> MaskedLMOutput:
        """Return the logits (BWV) of each target position, as many as the model has positions.

        With `labels`, the loss is returned as well. Blanks follow the source. They attend to the
        source, and no position attends to them.

        Raises:
            ValueError: for sequences longer than the model has positions for, or for padding
                before a source.
        """
        width = self.network.config.max_positions
        check_length("input_ids", input_ids, width)
        source_BS = apply_attention_mask(input_ids, attention_mask)
        check_padding_side(source_BS)
        source_BW = F.pad(source_BS, (0, width - input_ids.shape[1]), value=PAD)
        weights: list[Tensor] | None = [] if output_attentions else None
        logits_BWV = self.network(
            source_BW.masked_fill(source_BW == PAD, SOS), padding_mask(source_BW), weights
        )
        loss = None if labels is None else cross_entropy(logits_BWV[:, : labels.shape[1]], labels)
        return MaskedLMOutput(
            loss=loss, logits=logits_BWV, attentions=tuple(weights) if weights is not None else None
        )
