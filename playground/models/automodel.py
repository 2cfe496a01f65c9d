"""The transformer as a class for transformers' Auto classes:

    AutoModelForSeq2SeqLM.from_pretrained("ada/reverse-digits", trust_remote_code=True)

It is a thin wrapper. This file and those that it imports are uploaded to the Hub unchanged.
"""

from typing import Any

from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from .automodel_base import (
    CacheView,
    EncoderDecoderConfig,
    EncoderForGenerate,
    PlaygroundEncoderDecoder,
    check_length,
    check_padding_side,
    cross_entropy,
)
from .config import TransformerConfig
from .kv_cache import LayerCache
from .transformer import AttentionWeights, Transformer


class PlaygroundConfig(EncoderDecoderConfig):
    """The fields of `TransformerConfig`, and the settings that transformers requires."""

    model_type = "transformer-playground"
    model_config_class = TransformerConfig
    has_cache = True


class AttentionEncoder(EncoderForGenerate):
    """The encoder of a transformer, which records its attention weights on request."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        **unused: Any,
    ) -> BaseModelOutput:
        """Return the memory (BSD) and, if requested, each layer's attention weights (BHSS).

        Raises ValueError for padding before a source, if positions count from the first column.
        """
        source_BS = self.source_tokens(input_ids, attention_mask)
        if self.network.config.counts_from_first_column:
            check_padding_side(source_BS)
        record = AttentionWeights() if output_attentions else None
        memory_BSD = self.network.encode(source_BS, record)
        attentions = None if record is None else tuple(record.encoder)
        return BaseModelOutput(last_hidden_state=memory_BSD, attentions=attentions)


class TransformerForSeq2SeqLM(PlaygroundEncoderDecoder):
    """A transformer with encoder and decoder that records its attention weights on request."""

    encoder_class = AttentionEncoder

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        **unused: Any,
    ) -> Seq2SeqLMOutput:
        """Return the logits (BTV) of the token that follows each target position.

        With `labels` (BT), the mean cross-entropy is returned as well. Source positions that are
        PAD or masked get no attention, and the loss ignores labels that are PAD or -100. Without
        `decoder_input_ids` the decoder input is the labels shifted right. Attention weights are
        BHSS, BHTT and BHTS for each layer.

        With `use_cache` or `past_key_values`, `decoder_input_ids` follow the target positions of
        the cache. The cache is extended by them and returned as `past_key_values`. In training mode
        there is no cache, because dropout would stay in it. Raises ValueError for sequences longer
        than the model has positions for, or if the source or the target is missing.
        """
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        source = input_ids, attention_mask, encoder_outputs
        encoder_outputs, source_BS, decoder_input_ids = self.encode_inputs(
            *source, decoder_input_ids, labels, output_attentions=output_attentions
        )
        cache = None
        can_cache = self.config.has_cache and not self.training
        if can_cache and (use_cache or past_key_values is not None):
            cache = past_key_values or EncoderDecoderCache(DynamicCache(), DynamicCache())
        past_length = 0 if cache is None else int(cache.get_seq_length())
        check_length("decoder_input_ids", decoder_input_ids, self.max_target_length, past_length)

        memory_BSD = encoder_outputs[0]
        record = AttentionWeights() if output_attentions else None
        options: dict[str, Any] = {}
        if cache is not None:
            own, cross = cache.self_attention_cache, cache.cross_attention_cache
            layers = range(self.config.n_layers)
            options["cache"] = [LayerCache(CacheView(own, i), CacheView(cross, i)) for i in layers]
        network: Any = self.base_model
        x_BTD = network.decode(decoder_input_ids, memory_BSD, source_BS, weights=record, **options)
        logits_BTV = network.output_proj(x_BTD)
        return Seq2SeqLMOutput(
            loss=None if labels is None else cross_entropy(logits_BTV, labels),
            logits=logits_BTV,
            past_key_values=cache,
            encoder_last_hidden_state=memory_BSD,
            encoder_attentions=encoder_outputs.attentions if output_attentions else None,
            decoder_attentions=None if record is None else tuple(record.decoder),
            cross_attentions=None if record is None else tuple(record.cross),
        )


class PlaygroundForSeq2SeqLM(TransformerForSeq2SeqLM):
    """An encoder-decoder for `generate`: greedy, sampling or beam search, in padded batches.

    Attention weights are returned on request. A checkpoint of the playground names its weights as
    `Transformer` does; transformers loads them as those of the base model.
    """

    config_class = PlaygroundConfig
    network_class = Transformer
    base_model_prefix = "transformer"

    @property
    def max_target_length(self) -> int:
        """Return the number of positions of the target; nothing follows the EOS."""
        return self.config.max_positions
