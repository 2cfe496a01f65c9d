"""The encoder layer and the decoder layer (Vaswani et al. 2017, section 3.1).

Shapes: B batch, S source, T target, M memory or past, H heads, G heads of keys and values, K numbers a head, D d_model, F d_ff.
"""

from __future__ import annotations

from torch import Tensor, nn

from .attention import MultiHeadAttention
from .config import ModelConfig
from .gated import GatedFeedForward, GeluFeedForward
from .norms import norm
from .relative import Alibi, Buckets, Relation
from .rotary import Rotary


class FeedForward(nn.Module):
    """The same two-layer network at every position: D -> F -> D with a ReLU between (section 3.3)."""

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
    """Attention within one sequence, where relative positions act; `causal` where nobody looks ahead."""
    relation = (
        RELATIONS[config.positions](config, causal) if config.positions in RELATIONS else Relation()
    )
    return MultiHeadAttention(config, relation)


class AddAndNorm(nn.Module):
    """What stands around every sublayer.

    post, the paper's:             Norm(x + Dropout(Sublayer(x)))
    pre (Xiong et al. 2020):       x + Dropout(Sublayer(Norm(x)))
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def before(self, x_BSD: Tensor) -> Tensor:
        """What the sublayer is given."""
        return self.norm(x_BSD) if self.pre else x_BSD

    def after(self, x_BSD: Tensor, result_BSD: Tensor) -> Tensor:
        """The sublayer's result added to what went in."""
        sum_BSD = x_BSD + self.dropout(result_BSD)
        return sum_BSD if self.pre else self.norm(sum_BSD)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward network. With `causal` its relative positions look back only, for a
    decoder without cross-attention, which has the same parts; the mask is given all the same."""

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__()
        self.self_attention = self_attention(config, causal)
        self.around_self_attention = AddAndNorm(config)
        self.feed_forward = FEED_FORWARD[config.activation](config)
        self.around_feed_forward = AddAndNorm(config)

    def forward(
        self, x_BSD: Tensor, may_look: Tensor, weigh: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """The layer's output (BSD) and its attention weights (BHSS), these only where `weigh` asks for them."""
        y_BSD = self.around_self_attention.before(x_BSD)
        y_BSD, weights_BHSS = self.self_attention(
            y_BSD, *self.self_attention.keys_and_values(y_BSD), may_look, weigh=weigh
        )
        x_BSD = self.around_self_attention.after(x_BSD, y_BSD)

        y_BSD = self.feed_forward(self.around_feed_forward.before(x_BSD))
        return self.around_feed_forward.after(x_BSD, y_BSD), weights_BHSS


class Past:
    """Keys and values of the target positions already decoded, one layer's share, in room reserved beforehand."""

    def __init__(self, key_BGMK: Tensor, value_BGMK: Tensor) -> None:
        self.key_BGMK, self.value_BGMK = key_BGMK, value_BGMK
        self.length = 0

    def extend(self, key_BGTK: Tensor, value_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        """Append new positions; returns keys and values of everything so far."""
        start, self.length = self.length, self.length + key_BGTK.shape[2]
        self.key_BGMK[:, :, start : self.length] = key_BGTK
        self.value_BGMK[:, :, start : self.length] = value_BGTK
        return self.key_BGMK[:, :, : self.length], self.value_BGMK[:, :, : self.length]


class DecoderLayer(nn.Module):
    """Self-attention over the target so far, cross-attention to the encoder's memory, then the feed-forward network."""

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
        """The layer's output (BTD), its self-attention (BHTM) and its cross-attention (BHTS), these only where `weigh` asks for them.

        `memory` holds the keys and values (BGSK each) that `cross_attention` made of the encoder's output; with a `past`,
        x_BTD holds the new positions alone.
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
