"""The key-value cache of transformers in the form that the layers use.

This file is uploaded to the Hub beside the model.
"""

from torch import Tensor
from transformers import Cache

from .layers import KVCache


class LayerCache(KVCache):
    """One layer's part of a transformers cache, which beam search can reorder."""

    def __init__(self, cache: Cache, layer: int) -> None:
        self.cache, self.layer = cache, layer
        self.length = int(cache.get_seq_length(layer))

    def append(self, key_BGTK: Tensor, value_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        self.length += key_BGTK.shape[2]
        key_BGMK, value_BGMK = self.cache.update(key_BGTK, value_BGTK, self.layer)
        return key_BGMK[:, :, : self.length], value_BGMK[:, :, : self.length]
