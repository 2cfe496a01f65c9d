"""The keys and values of the positions so far, for decoding token by token.

They are stored with their rotation, so that a step computes those of its own tokens only.
"""

from typing import NamedTuple

from torch import Tensor

from .config import StackConfig


class KVCache:
    """The keys and values of one self-attention, for the positions so far.

    The tensors are allocated once, for `n_positions`, on the device of `like` and with its type.
    """

    def __init__(
        self, config: StackConfig, batch_size: int, n_positions: int, like: Tensor
    ) -> None:
        shape_BGM = (batch_size, config.n_kv_heads_resolved, n_positions)
        self.key_BGMK = like.new_empty(*shape_BGM, config.key_size)
        self.value_BGMK = like.new_empty(*shape_BGM, config.value_size)
        self.length = 0

    def update(self, key_BGQK: Tensor, value_BGQK: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new positions; return those of all so far (BGMK)."""
        start, self.length = self.length, self.length + key_BGQK.shape[2]
        self.key_BGMK[:, :, start : self.length] = key_BGQK
        self.value_BGMK[:, :, start : self.length] = value_BGQK
        return self.key_BGMK[:, :, : self.length], self.value_BGMK[:, :, : self.length]


class MemoryCache(KVCache):
    """The keys and values of one cross-attention: those of the memory, which does not change."""

    def __init__(self) -> None:
        self.length = 0

    def update(self, key_BGMK: Tensor, value_BGMK: Tensor) -> tuple[Tensor, Tensor]:
        self.length = key_BGMK.shape[2]
        # Every step reads them, which is faster without strides.
        self.key_BGMK, self.value_BGMK = key_BGMK.contiguous(), value_BGMK.contiguous()
        return self.key_BGMK, self.value_BGMK


class LayerCache(NamedTuple):
    """The keys and values of one layer; only a layer with cross-attention has `cross_attn`."""

    self_attn: KVCache
    cross_attn: KVCache | None = None
