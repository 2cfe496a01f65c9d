"""The key-value cache of transformers in the form that the layers use.

This file is uploaded to the Hub beside the model.
"""

from typing import Any

from torch import Tensor
from transformers import Cache

from .kv_cache import KVCache


class CacheView(KVCache):
    """One layer's part of a transformers cache, which beam search can reorder."""

    def __init__(self, cache: Cache, layer: int) -> None:
        self.cache, self.layer = cache, layer
        self.length = int(cache.get_seq_length(layer))
        if self.length:
            # Any, because the type has no keys and values for every kind of layer
            stored: Any = cache.layers[layer]
            self.key_BGMK = stored.keys[:, :, : self.length]
            self.value_BGMK = stored.values[:, :, : self.length]

    def update(self, key_BGQK: Tensor, value_BGQK: Tensor) -> tuple[Tensor, Tensor]:
        self.length += key_BGQK.shape[2]
        key_BGMK, value_BGMK = self.cache.update(key_BGQK, value_BGQK, self.layer)
        return key_BGMK[:, :, : self.length], value_BGMK[:, :, : self.length]
