"""The encoder layer and the decoder layer (Vaswani et al. 2017, section 3.1)."""

from __future__ import annotations

from torch import Tensor, nn

from .attention import MultiHeadAttention
from .config import ModelConfig
from .gated import GeluFeedForward, SwiGLU
from .norms import build_norm
from .relative import ALiBi, RelativePositionEncoding, T5RelativePositionBias
from .rotary import RotaryEmbedding


class FeedForward(nn.Module):
    """The same network at every position: D -> F -> D with a ReLU between (section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.widen = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.narrow = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        nn.init.xavier_uniform_(self.widen.weight)
        nn.init.xavier_uniform_(self.narrow.weight)

    def forward(self, x_BSD: Tensor) -> Tensor:
        return self.narrow(self.widen(x_BSD).relu())


FEED_FORWARD_TYPES = {"relu": FeedForward, "gelu": GeluFeedForward, "swiglu": SwiGLU}
POSITION_ENCODINGS = {"rope": RotaryEmbedding, "alibi": ALiBi, "t5": T5RelativePositionBias}


def build_self_attention(config: ModelConfig, causal: bool) -> MultiHeadAttention:
    """Build attention within one sequence, with relative positions; `causal` in a decoder."""
    position_encoding = (
        POSITION_ENCODINGS[config.position_type](config, causal)
        if config.position_type in POSITION_ENCODINGS
        else RelativePositionEncoding()
    )
    return MultiHeadAttention(config, position_encoding)


class ResidualNorm(nn.Module):
    """The residual connection and the norm around every sublayer.

    post, the paper's:             Norm(x + Dropout(Sublayer(x)))
    pre (Xiong et al. 2020):       x + Dropout(Sublayer(Norm(x)))
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.norm_first = config.norm_placement == "pre"

    def sublayer_input(self, x_BSD: Tensor) -> Tensor:
        """Return the input of the sublayer."""
        return self.norm(x_BSD) if self.norm_first else x_BSD

    def add(self, x_BSD: Tensor, output_BSD: Tensor) -> Tensor:
        """Add the result of the sublayer to its input."""
        sum_BSD = x_BSD + self.dropout(output_BSD)
        return sum_BSD if self.norm_first else self.norm(sum_BSD)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward network.

    A decoder without cross-attention has the same parts. With `causal` the relative positions are
    those of the past only; the caller still passes the causal mask.
    """

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__()
        self.self_attention = build_self_attention(config, causal)
        self.around_self_attention = ResidualNorm(config)
        self.feed_forward = FEED_FORWARD_TYPES[config.activation](config)
        self.around_feed_forward = ResidualNorm(config)

    def forward(
        self, x_BSD: Tensor, attn_mask: Tensor, need_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output (BSD) and, with `need_weights`, the attention weights (BHSS), else
        None.
        """
        y_BSD = self.around_self_attention.sublayer_input(x_BSD)
        y_BSD, weights_BHSS = self.self_attention(
            y_BSD, *self.self_attention.project_kv(y_BSD), attn_mask, need_weights=need_weights
        )
        x_BSD = self.around_self_attention.add(x_BSD, y_BSD)

        y_BSD = self.feed_forward(self.around_feed_forward.sublayer_input(x_BSD))
        return self.around_feed_forward.add(x_BSD, y_BSD), weights_BHSS


class KVCache:
    """Key-value cache of one decoder layer, for the target positions decoded so far.

    The tensors are allocated once, for the longest target.
    """

    def __init__(self, key_BGMK: Tensor, value_BGMK: Tensor) -> None:
        self.key_BGMK, self.value_BGMK = key_BGMK, value_BGMK
        self.length = 0

    def append(self, key_BGTK: Tensor, value_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        """Append new positions; return the keys and values of all positions so far."""
        start, self.length = self.length, self.length + key_BGTK.shape[2]
        self.key_BGMK[:, :, start : self.length] = key_BGTK
        self.value_BGMK[:, :, start : self.length] = value_BGTK
        return self.key_BGMK[:, :, : self.length], self.value_BGMK[:, :, : self.length]


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention to the memory, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = build_self_attention(config, causal=True)
        self.around_self_attention = ResidualNorm(config)
        self.cross_attention = MultiHeadAttention(config)
        self.around_cross_attention = ResidualNorm(config)
        self.feed_forward = FEED_FORWARD_TYPES[config.activation](config)
        self.around_feed_forward = ResidualNorm(config)

    def forward(
        self,
        x_BTD: Tensor,
        self_attn_mask: Tensor | None,
        memory_key_value: tuple[Tensor, Tensor],
        cross_attn_mask: Tensor,
        cache: KVCache | None = None,
        need_weights: bool = True,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the output (BTD) and the weights of self- and cross-attention (BHTM, BHTS).

        The weights are None without `need_weights`. `memory_key_value` holds the keys and values
        (BGSK each) that `cross_attention` computed from the encoder output. With a `cache`, x_BTD
        holds only the new positions.
        """
        y_BTD = self.around_self_attention.sublayer_input(x_BTD)
        key_BGMK, value_BGMK = self.self_attention.project_kv(y_BTD, cache.length if cache else 0)
        if cache is not None:
            key_BGMK, value_BGMK = cache.append(key_BGMK, value_BGMK)
        y_BTD, self_weights_BHTM = self.self_attention(
            y_BTD, key_BGMK, value_BGMK, self_attn_mask, need_weights=need_weights
        )
        x_BTD = self.around_self_attention.add(x_BTD, y_BTD)

        y_BTD = self.around_cross_attention.sublayer_input(x_BTD)
        y_BTD, cross_weights_BHTS = self.cross_attention(
            y_BTD, *memory_key_value, cross_attn_mask, need_weights=need_weights
        )
        x_BTD = self.around_cross_attention.add(x_BTD, y_BTD)

        y_BTD = self.feed_forward(self.around_feed_forward.sublayer_input(x_BTD))
        return self.around_feed_forward.add(x_BTD, y_BTD), self_weights_BHTM, cross_weights_BHTS
