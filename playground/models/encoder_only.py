"""An encoder that predicts the whole target in parallel, each token from the whole input.

New letter of shapes: W the tokens of the input, blanks included.
"""

from __future__ import annotations

from torch import Tensor, nn

from .layers import EncoderLayer
from .norms import norm
from .positions import Embedding, token_table
from .sizes import EncoderOnlyConfig


class EncoderOnly(nn.Module):
    """Encoder layers, and a linear layer that scores every token at each position."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, token_table(config.source_vocabulary, config.d_model))
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        self.norm = norm(config) if config.norm == "pre" else nn.Identity()
        self.output = nn.Linear(config.d_model, config.target_vocabulary, bias=config.bias)
        nn.init.xavier_uniform_(self.output.weight)

    def forward(
        self, row_BW: Tensor, may_look: Tensor, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Return the logits (BWV) of the token at each position.

        Each layer appends its attention weights (BHWW) to `weights`. `may_look` is the attention
        mask: True where attention is allowed, broadcast to BHWW.
        """
        x_BWD = self.embedding(row_BW)
        for layer in self.layers:
            x_BWD, weights_BHWW = layer(x_BWD, may_look, weigh=weights is not None)
            if weights is not None:
                weights.append(weights_BHWW)
        return self.output(self.norm(x_BWD))
