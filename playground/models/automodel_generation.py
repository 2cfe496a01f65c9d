"""Generation of the published transformer: the encoder and the cache as transformers uses them.

This file is uploaded to the Hub beside the model.
"""

from typing import Any

from torch import Tensor
from transformers import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from .attention import padding_mask
from .automodel_base import EncoderForGenerate
from .automodel_cache import LayerCache
from .transformer import AttentionWeights, Transformer


class TransformerEncoder(EncoderForGenerate):
    """The encoder of the transformer."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        **unused: Any,
    ) -> BaseModelOutput:
        """Return the memory (BSD) and, if requested, each layer's attention weights (BHSS)."""
        record = AttentionWeights() if output_attentions else None
        memory_BSD = self.network.encode(self.source_tokens(input_ids, attention_mask), record)
        attentions = None if record is None else tuple(record.encoder)
        return BaseModelOutput(last_hidden_state=memory_BSD, attentions=attentions)


def decode(
    transformer: Transformer,
    decoder_input_ids: Tensor,
    memory_BSD: Tensor,
    source_BS: Tensor,
    cache: EncoderDecoderCache | None,
    weights: AttentionWeights | None,
) -> Tensor:
    """Return the vectors (BTD) of the target positions, which follow those in the cache."""
    if cache is None:
        return transformer.decode(decoder_input_ids, memory_BSD, source_BS, weights)
    layers = range(transformer.config.n_layers)
    # Any, because the type has no keys and values for every kind of layer
    across: Any = cache.cross_attention_cache
    if not cache.is_updated.get(0):
        for layer, (key_BGSK, value_BGSK) in enumerate(transformer.project_memory(memory_BSD)):
            across.update(key_BGSK, value_BGSK, layer)
            cache.is_updated[layer] = True
    memory_kv = [(across.layers[layer].keys, across.layers[layer].values) for layer in layers]
    past = [LayerCache(cache.self_attention_cache, layer) for layer in layers]
    return transformer.decode_step(
        decoder_input_ids, memory_kv, padding_mask(source_BS), past, weights
    )
