"""The encoder layer and the decoder layer (Vaswani et al. 2017, section 3.1)."""

from __future__ import annotations

from torch import Tensor, nn

from .attention import MultiHeadAttention
from .config import ModelConfig
from .gated import GatedFeedForward, GeluFeedForward
from .norms import norm
from .relative import Alibi, Buckets, Relation
from .rotary import Rotary


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


FEED_FORWARD = {"relu": FeedForward, "gelu": GeluFeedForward, "swiglu": GatedFeedForward}
RELATIONS = {"rope": Rotary, "alibi": Alibi, "t5": Buckets}


def self_attention(config: ModelConfig, causal: bool) -> MultiHeadAttention:
    """Build attention within one sequence, with relative positions; `causal` in a decoder."""
    relation = (
        RELATIONS[config.positions](config, causal) if config.positions in RELATIONS else Relation()
    )
    return MultiHeadAttention(config, relation)


class AddAndNorm(nn.Module):
    """The residual connection and the norm around every sublayer.

    post, the paper's:             Norm(x + Dropout(Sublayer(x)))
    pre (Xiong et al. 2020):       x + Dropout(Sublayer(Norm(x)))
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def before(self, x_BSD: Tensor) -> Tensor:
        """Return the input of the sublayer."""
        return self.norm(x_BSD) if self.pre else x_BSD

    def after(self, x_BSD: Tensor, result_BSD: Tensor) -> Tensor:
        """Add the result of the sublayer to its input."""
        sum_BSD = x_BSD + self.dropout(result_BSD)
        return sum_BSD if self.pre else self.norm(sum_BSD)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward network.

    A decoder without cross-attention has the same parts. With `causal` the relative positions are
    those of the past only; the caller still passes the causal mask.
    """

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__()
        self.self_attention = self_attention(config, causal)
        self.around_self_attention = AddAndNorm(config)
        self.feed_forward = FEED_FORWARD[config.activation](config)
        self.around_feed_forward = AddAndNorm(config)

    def forward(
        self, x_BSD: Tensor, may_look: Tensor, weigh: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output (BSD) and, with `weigh`, the attention weights (BHSS), else None."""
        y_BSD = self.around_self_attention.before(x_BSD)
        y_BSD, weights_BHSS = self.self_attention(
            y_BSD, *self.self_attention.keys_and_values(y_BSD), may_look, weigh=weigh
        )
        x_BSD = self.around_self_attention.after(x_BSD, y_BSD)

        y_BSD = self.feed_forward(self.around_feed_forward.before(x_BSD))
        return self.around_feed_forward.after(x_BSD, y_BSD), weights_BHSS


class Past:
    """Key-value cache of one decoder layer, for the target positions decoded so far.

    The tensors are allocated once, for the longest target.
    """

    def __init__(self, key_BGMK: Tensor, value_BGMK: Tensor) -> None:
        self.key_BGMK, self.value_BGMK = key_BGMK, value_BGMK
        self.length = 0

    def extend(self, key_BGTK: Tensor, value_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        """Append new positions; return the keys and values of all positions so far."""
        start, self.length = self.length, self.length + key_BGTK.shape[2]
        self.key_BGMK[:, :, start : self.length] = key_BGTK
        self.value_BGMK[:, :, start : self.length] = value_BGTK
        return self.key_BGMK[:, :, : self.length], self.value_BGMK[:, :, : self.length]


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention to the memory, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = self_attention(config, causal=True)
        self.around_self_attention = AddAndNorm(config)
        self.cross_attention = MultiHeadAttention(config)
        self.around_cross_attention = AddAndNorm(config)
        self.feed_forward = FEED_FORWARD[config.activation](config)
        self.around_feed_forward = AddAndNorm(config)

    def forward(
        self,
        x_BTD: Tensor,
        may_look_back: Tensor | None,
        memory: tuple[Tensor, Tensor],
        may_look_across: Tensor,
        past: Past | None = None,
        weigh: bool = True,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the output (BTD) and the weights of self- and cross-attention (BHTM, BHTS).

        The weights are None without `weigh`. `memory` holds the keys and values (BGSK each) that
        `cross_attention` computed from the encoder output. With a `past`, x_BTD holds only the new
        positions.
        """
        y_BTD = self.around_self_attention.before(x_BTD)
        key_BGMK, value_BGMK = self.self_attention.keys_and_values(
            y_BTD, past.length if past else 0
        )
        if past is not None:
            key_BGMK, value_BGMK = past.extend(key_BGMK, value_BGMK)
        y_BTD, self_weights_BHTM = self.self_attention(
            y_BTD, key_BGMK, value_BGMK, may_look_back, weigh=weigh
        )
        x_BTD = self.around_self_attention.after(x_BTD, y_BTD)

        y_BTD = self.around_cross_attention.before(x_BTD)
        y_BTD, cross_weights_BHTS = self.cross_attention(
            y_BTD, *memory, may_look_across, weigh=weigh
        )
        x_BTD = self.around_cross_attention.after(x_BTD, y_BTD)

        y_BTD = self.feed_forward(self.around_feed_forward.before(x_BTD))
        return self.around_feed_forward.after(x_BTD, y_BTD), self_weights_BHTM, cross_weights_BHTS
