"""The decoder without an encoder as a class that transformers' Auto classes load.

This file and those that it imports travel to the Hub unchanged.

Shapes: B batch, W width of a row, D d_model, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    GenerationMixin,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.modeling_outputs import CausalLMOutput

from .automodel_base import (
    SPECIAL_TOKENS,
    FamilyConfig,
    StopAtLastPosition,
    apply_mask,
    check_length,
    cross_entropy,
)
from .decoder_only import DecoderOnly, RowEmbedding
from .positions import sinusoid
from .sizes import DecoderOnlyConfig


class PlaygroundDecoderOnlyConfig(FamilyConfig):
    """The sizes, as transformers keeps them."""

    model_type = "transformer-playground-decoder-only"
    sizes_class = DecoderOnlyConfig

    def __init__(
        self, **values: Any
    ) -> None:  # transformers writes another one where a class has none
        super().__init__(**values)

    def generation(self) -> GenerationConfig:
        """Return the default generation: greedy, an answer as long as there are positions for."""
        return GenerationConfig(
            **SPECIAL_TOKENS, max_new_tokens=self.max_positions, use_cache=False
        )


class PlaygroundDecoderOnlyForCausalLM(PreTrainedModel, GenerationMixin):
    """Continues a row of source and EOS with the answer: `generate` greedily, sampled or with beams, in batches padded in front."""

    config_class = PlaygroundDecoderOnlyConfig
    base_model_prefix = "network"
    main_input_name = "input_ids"
    accepts_loss_kwargs = False  # the loss is a mean over the batch

    def __init__(self, config: PlaygroundDecoderOnlyConfig) -> None:
        super().__init__(config)
        self.generation_config = config.generation()
        self.network = DecoderOnly(config.sizes())
        self._tied_weights_keys = (
            {"network.output.weight": "network.embedding.tokens.weight"}
            if config.tie_output
            else {}
        )
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Fill in sine waves, which are in no file. All other weights are."""
        if (
            isinstance(module, RowEmbedding)
            and "positions" in module._buffers
            and module.positions is not None
        ):
            sizes = self.network.config
            module.positions.copy_(
                sizes.position_scale * sinusoid(len(module.positions), sizes.d_model)
            )

    @property
    def longest_row(self) -> int:
        """Tokens that a row of source and answer may have."""
        return self.network.config.row_width(
            self.network.config.max_positions, self.network.config.max_positions
        )

    def get_input_embeddings(self) -> nn.Module:
        return self.network.embedding.tokens

    def get_output_embeddings(self) -> nn.Module:
        return self.network.output

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        **unused: Any,
    ) -> CausalLMOutput:
        """Return logits (BWV) of the token that follows each place; with `labels` (BW), the mean cross-entropy too.

        As in transformers, labels are the row itself, with -100 where nothing is scored.

        Raises:
            ValueError: for rows longer than the model has positions for.
        """
        check_length("input_ids", input_ids, self.longest_row)
        weights: list[Tensor] | None = [] if output_attentions else None
        logits_BWV = self.network(apply_mask(input_ids, attention_mask), weights)
        loss = (
            None
            if labels is None
            else cross_entropy(logits_BWV, F.pad(labels[:, 1:], (0, 1), value=0))
        )
        return CausalLMOutput(
            loss=loss, logits=logits_BWV, attentions=tuple(weights) if weights is not None else None
        )

    def generate(
        self, *inputs: Any, stopping_criteria: StoppingCriteriaList | None = None, **kwargs: Any
    ) -> Any:
        """Generate as transformers does, but no row outgrows the model's positions."""
        stop = StopAtLastPosition(self.longest_row)
        return super().generate(  # type: ignore[misc]
            *inputs,
            stopping_criteria=StoppingCriteriaList([*(stopping_criteria or ()), stop]),
            **kwargs,
        )

    def prepare_inputs_for_generation(  # type: ignore[override]
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return what a step needs. Each step reads the whole row again: rows are short."""
        return {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "output_attentions": output_attentions,
        }


def register() -> None:
    """Let the Auto classes of this process load this family without running code of a repository."""
    AutoConfig.register(
        PlaygroundDecoderOnlyConfig.model_type, PlaygroundDecoderOnlyConfig, exist_ok=True
    )
    AutoModelForCausalLM.register(
        PlaygroundDecoderOnlyConfig, PlaygroundDecoderOnlyForCausalLM, exist_ok=True
    )
