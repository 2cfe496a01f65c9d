"""The transformers of one stack as classes that transformers' Auto classes load.

This file and those that it imports are uploaded to the Hub unchanged.

New letter of shapes: W the tokens of a sequence that holds source and target, or source and blanks.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers import Cache, DynamicCache, GenerationConfig
from transformers.modeling_outputs import CausalLMOutputWithPast, MaskedLMOutput

from .attention import padding_mask
from .automodel_base import (
    PAD,
    SOS,
    SPECIAL_TOKEN_IDS,
    ArchitectureConfig,
    CacheView,
    PlaygroundGenerationMixin,
    PlaygroundModel,
    apply_attention_mask,
    check_length,
    check_padding_side,
    cross_entropy,
)
from .config import DecoderOnlyConfig, EncoderOnlyConfig
from .kv_cache import LayerCache
from .single_stack import DecoderOnly, EncoderOnly


class PlaygroundDecoderOnlyConfig(ArchitectureConfig):
    """The sizes in the form of transformers."""

    model_type = "transformer-playground-decoder-only"
    model_config_class = DecoderOnlyConfig

    def default_generation_config(self) -> GenerationConfig:
        """Return the default generation: greedy, up to the last position."""
        return GenerationConfig(**SPECIAL_TOKEN_IDS, max_new_tokens=self.max_positions)


class PlaygroundDecoderOnlyForCausalLM(PlaygroundModel, PlaygroundGenerationMixin):
    """Continues a sequence of source and EOS with the target.

    `generate` supports greedy decoding, sampling and beam search, in batches with left padding.
    """

    config_class = PlaygroundDecoderOnlyConfig
    network_class = DecoderOnly

    @property
    def max_sequence_length(self) -> int:
        """Return the number of tokens that source and target may have together."""
        return self.network.config.n_positions

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        **unused: Any,
    ) -> CausalLMOutputWithPast:
        """Return the logits (BWV) of the token that follows each position.

        With `labels` (BW), the mean cross-entropy is returned as well. As in transformers, labels
        are the sequence itself, with -100 at positions that the loss ignores. With `use_cache` or
        `past_key_values`, `input_ids` follow the tokens of the cache, which is extended and
        returned; `attention_mask` then describes cached and new tokens. In training mode there is
        no cache, because dropout would stay in it. Raises ValueError for sequences longer than the
        model has positions for.
        """
        cache = None
        if not self.training and (use_cache or past_key_values is not None):
            cache = past_key_values if past_key_values is not None else DynamicCache()
        n_cached = 0 if cache is None else int(cache.get_seq_length())
        check_length("input_ids", input_ids, self.max_sequence_length, n_cached)
        if attention_mask is None:
            attention_mask = F.pad(input_ids != PAD, (n_cached, 0), value=True)
        weights: list[Tensor] | None = [] if output_attentions else None
        caches = None
        if cache is not None:
            caches = [LayerCache(CacheView(cache, i)) for i in range(self.config.n_layers)]
        tokens_BT = apply_attention_mask(input_ids, attention_mask[:, n_cached:])
        logits_BWV = self.network(tokens_BT, weights, caches, attention_mask != 0)
        loss = None
        if labels is not None:
            loss = cross_entropy(logits_BWV, F.pad(labels[:, 1:], (0, 1), value=PAD))
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits_BWV,
            past_key_values=cache,
            attentions=tuple(weights) if weights is not None else None,
        )


class PlaygroundEncoderOnlyConfig(ArchitectureConfig):
    """The sizes in the form of transformers."""

    model_type = "transformer-playground-encoder-only"
    model_config_class = EncoderOnlyConfig


class PlaygroundEncoderOnlyForMaskedLM(PlaygroundModel):
    """Scores all tokens at all target positions in one pass; the first EOS ends the target."""

    config_class = PlaygroundEncoderOnlyConfig
    network_class = EncoderOnly

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
        source, and no position attends to them. Raises ValueError for sequences longer than the
        model has positions for, or for padding before a source.
        """
        width = self.config.max_positions
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
