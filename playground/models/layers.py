"""The encoder layer and the decoder layer (Vaswani et al. 2017, section 3.1)."""

from torch import Tensor, nn

from .attention import MultiHeadAttention
from .feed_forward import build_feed_forward
from .position_encoding import build_position_encoding
from .stack_config import StackConfig

NORM_EPS = 1e-5  # as in nn.LayerNorm; it keeps a vector of zeros at zero


def build_norm(config: StackConfig) -> nn.Module:
    """Build layer norm, RMSNorm (Zhang and Sennrich 2019), which subtracts no mean, or no norm."""
    if config.norm_type == "none":
        return nn.Identity()
    if config.norm_type == "rms":
        return nn.RMSNorm(config.d_model, NORM_EPS)
    return nn.LayerNorm(config.d_model, NORM_EPS, bias=config.bias)


class ResidualNorm(nn.Module):
    """The residual connection and the norm around every sublayer.

    post, the paper's:             Norm(x + Dropout(Sublayer(x)))
    pre (Xiong et al. 2020):       x + Dropout(Sublayer(Norm(x)))
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.norm_first = config.norm_placement == "pre"

    def sublayer_input(self, x_BSD: Tensor) -> Tensor:
        """Return the input of the sublayer."""
        return self.norm(x_BSD) if self.norm_first else x_BSD

    def add(self, x_BSD: Tensor, output_BSD: Tensor) -> Tensor:
        """Add the sublayer's output to the residual stream; post-norm normalizes the sum."""
        sum_BSD = x_BSD + self.dropout(output_BSD)
        return sum_BSD if self.norm_first else self.norm(sum_BSD)


class KVCache:
    """Key-value cache of one layer, for the positions decoded so far.

    The tensors are allocated once, for the longest sequence.
    """

    def __init__(
        self, config: StackConfig, batch_size: int, n_positions: int, like: Tensor
    ) -> None:
        """Allocate a cache on the device of `like`, with its type."""
        shape_BGM = (batch_size, config.n_kv_heads_resolved, n_positions)
        self.key_BGMK = like.new_empty(*shape_BGM, config.key_size)
        self.value_BGMK = like.new_empty(*shape_BGM, config.value_size)
        self.length = 0

    def append(self, key_BGTK: Tensor, value_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        """Append new positions; return the keys and values of all positions so far."""
        start, self.length = self.length, self.length + key_BGTK.shape[2]
        self.key_BGMK[:, :, start : self.length] = key_BGTK
        self.value_BGMK[:, :, start : self.length] = value_BGTK
        return self.key_BGMK[:, :, : self.length], self.value_BGMK[:, :, : self.length]


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network.

    A decoder layer without cross-attention has the same parts. With `causal`, T5's position bias
    uses all buckets for the past; the caller still passes the causal mask.
    """

    def __init__(self, config: StackConfig, causal: bool = False) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(config, build_position_encoding(config, causal))
        self.self_attn_residual = ResidualNorm(config)
        self.feed_forward = build_feed_forward(config)
        self.feed_forward_residual = ResidualNorm(config)

    def forward(
        self,
        x_BSD: Tensor,
        attn_mask: Tensor | None,
        cache: KVCache | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output (BSD) and, if `need_weights`, the attention weights (BHSM).

        With a `cache`, x_BSD holds only the new positions; without one, M = S.
        """
        y_BSD = self.self_attn_residual.sublayer_input(x_BSD)
        key_BGMK, value_BGMK = self.self_attn.project_kv(y_BSD, cache.length if cache else 0)
        if cache is not None:
            key_BGMK, value_BGMK = cache.append(key_BGMK, value_BGMK)
        y_BSD, weights_BHSM = self.self_attn(
            y_BSD, key_BGMK, value_BGMK, attn_mask, need_weights=need_weights
        )
        x_BSD = self.self_attn_residual.add(x_BSD, y_BSD)

        y_BSD = self.feed_forward(self.feed_forward_residual.sublayer_input(x_BSD))
        return self.feed_forward_residual.add(x_BSD, y_BSD), weights_BHSM


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention to the memory, then the feed-forward network."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(config, build_position_encoding(config, causal=True))
        self.self_attn_residual = ResidualNorm(config)
        self.cross_attn = MultiHeadAttention(config)
        self.cross_attn_residual = ResidualNorm(config)
        self.feed_forward = build_feed_forward(config)
        self.feed_forward_residual = ResidualNorm(config)

    def forward(
        self,
        x_BTD: Tensor,
        self_attn_mask: Tensor | None,
        memory_key_BGSK: Tensor,
        memory_value_BGSK: Tensor,
        cross_attn_mask: Tensor | None,
        cache: KVCache | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the output (BTD) and the weights of self- and cross-attention (BHTM, BHTS).

        The weights are None without `need_weights`. `cross_attn` computed the keys and values of
        the memory. With a `cache`, x_BTD holds only the new positions; without one, M = T.
        """
        y_BTD = self.self_attn_residual.sublayer_input(x_BTD)
        key_BGMK, value_BGMK = self.self_attn.project_kv(y_BTD, cache.length if cache else 0)
        if cache is not None:
            key_BGMK, value_BGMK = cache.append(key_BGMK, value_BGMK)
        y_BTD, self_weights_BHTM = self.self_attn(
            y_BTD, key_BGMK, value_BGMK, self_attn_mask, need_weights=need_weights
        )
        x_BTD = self.self_attn_residual.add(x_BTD, y_BTD)

        y_BTD = self.cross_attn_residual.sublayer_input(x_BTD)
        y_BTD, cross_weights_BHTS = self.cross_attn(
            y_BTD, memory_key_BGSK, memory_value_BGSK, cross_attn_mask, need_weights=need_weights
        )
        x_BTD = self.cross_attn_residual.add(x_BTD, y_BTD)

        y_BTD = self.feed_forward(self.feed_forward_residual.sublayer_input(x_BTD))
        return self.feed_forward_residual.add(x_BTD, y_BTD), self_weights_BHTM, cross_weights_BHTS
