"""The feed-forward network of a layer (Vaswani et al. 2017, section 3.3)."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from .config import StackConfig

# GELU(x) = x * P(a standard normal number <= x) (Hendrycks and Gimpel 2016)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """The same network at every position: D -> F -> D with an activation between.

    It equals two convolutions over the positions with kernel size 1 (section 3.3).
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.up_proj = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down_proj = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.dropout = nn.Dropout(config.activation_dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the matrices as Glorot and Bengio (2010) do."""
        for projection in (self.up_proj, self.down_proj):
            nn.init.xavier_uniform_(projection.weight)

    def forward(self, x_BSD: Tensor) -> Tensor:
        return self.down_proj(self.dropout(self.activation(self.up_proj(x_BSD))))


class SwiGLU(nn.Module):
    """SwiGLU (Shazeer 2020, section 2): Swish(x W) * x V, where Swish(a) = a * sigmoid(a).

    The gate W is a third matrix. The paper reduces d_ff to two thirds, so that the number of
    parameters stays that of two matrices. Here d_ff is used as configured.
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.up_proj = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down_proj = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.dropout = nn.Dropout(config.activation_dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the matrices as Glorot and Bengio (2010) do."""
        for projection in (self.gate_proj, self.up_proj, self.down_proj):
            nn.init.xavier_uniform_(projection.weight)

    def forward(self, x_BSD: Tensor) -> Tensor:
        return self.down_proj(self.dropout(F.silu(self.gate_proj(x_BSD)) * self.up_proj(x_BSD)))


def build_feed_forward(config: StackConfig) -> FeedForward | SwiGLU:
    """Build the feed-forward network with the config's activation."""
    return SwiGLU(config) if config.activation == "swiglu" else FeedForward(config)
