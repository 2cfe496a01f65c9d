"""The layer of encoders and decoders (Vaswani et al. 2017, section 3.1)."""

from collections.abc import Callable

from torch import Tensor, nn

from .attention import MultiHeadAttention
from .config import StackConfig
from .feed_forward import build_feed_forward
from .kv_cache import LayerCache
from .position_encoding import build_position_encoding

NORM_EPS = 1e-5  # as in nn.LayerNorm; it keeps a vector of zeros at zero


def build_norm(config: StackConfig) -> nn.Module:
    """Build layer norm, RMSNorm (Zhang and Sennrich 2019), which subtracts no mean, or no norm."""
    if config.norm_type == "none":
        return nn.Identity()
    if config.norm_type == "rms":
        return nn.RMSNorm(config.d_model, NORM_EPS)
    return nn.LayerNorm(config.d_model, NORM_EPS, bias=config.bias)


def build_final_norm(config: StackConfig) -> nn.Module:
    """Build the norm after the last layer.

    Pre-norm needs it, because the sum of its residual connections is not normalized. Post-norm has
    none, as in the paper.
    """
    return build_norm(config) if config.norm_placement == "pre" else nn.Identity()


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

    def forward(self, x_BSD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x_BSD + self.dropout(sublayer(self.norm(x_BSD)))
        return self.norm(x_BSD + self.dropout(sublayer(x_BSD)))


class Layer(nn.Module):
    """Self-attention, in a decoder cross-attention to the memory, then the feed-forward network.

    The memory is the output of the encoder. `causal` is for T5's position bias only, which uses all
    buckets for the past; the caller of `forward` passes the causal mask.
    """

    def __init__(
        self, config: StackConfig, causal: bool = False, has_cross_attention: bool = False
    ) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(config, build_position_encoding(config, causal))
        self.self_attn_residual = ResidualNorm(config)
        if has_cross_attention:
            self.cross_attn = MultiHeadAttention(config)
            self.cross_attn_residual = ResidualNorm(config)
        self.feed_forward = build_feed_forward(config)
        self.feed_forward_residual = ResidualNorm(config)

    def forward(
        self,
        x_BTD: Tensor,
        attn_mask: Tensor | None,
        memory_BSD: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: LayerCache | None = None,
        self_weights: list[Tensor] | None = None,
        cross_weights: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the next vector of each position (BTD).

        The masks are True where attention is allowed, and broadcast to BHTM and BHTS. With a
        `cache`, x are new positions, after those in the cache; M counts both. The weights of self-
        and cross-attention (BHTM, BHTS) are appended to the lists, if they are given.
        """
        self_cache, cross_cache = cache or (None, None)
        x_BTD = self.self_attn_residual(
            x_BTD,
            lambda y: self.self_attn(
                y, attn_mask=attn_mask, cache=self_cache, weights=self_weights
            ),
        )
        if memory_BSD is not None:
            x_BTD = self.cross_attn_residual(
                x_BTD,
                lambda y: self.cross_attn(
                    y, memory_BSD, attn_mask=memory_mask, cache=cross_cache, weights=cross_weights
                ),
            )
        return self.feed_forward_residual(x_BTD, self.feed_forward)
