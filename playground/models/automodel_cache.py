"""The key-value cache of transformers in the form that the layers use.

This file is uploaded to the Hub beside the model.
"""

from typing import Any

from torch import Tensor
from transformers import Cache

from .attention import KVCache


class CacheView(KVCache):
    """One layer's part of a transformers cache, which beam search can reorder."""

    def __init__(self, cache: Cache, layer: int) -> None:
        self.cache, self.layer = cache, layer
        self.length = int(cache.get_seq_length(layer))

    def append(self, key_BGQK: Tensor, value_BGQK: Tensor) -> None:
        self.length += key_BGQK.shape[2]
        self.cache.update(key_BGQK, value_BGQK, self.layer)

    def read(self) -> tuple[Tensor, Tensor]:
        # Any, because the type has no keys and values for every kind of layer
        stored: Any = self.cache.layers[self.layer]
        return stored.keys[:, :, : self.length], stored.values[:, :, : self.length]
