"""An encoder that writes the answer in place: all of it at once, each symbol from everything that was read.

Shapes: B batch, W places of a row, D d_model, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn

from .layers import EncoderLayer
from .norms import norm
from .positions import Embedding, token_table
from .sizes import EncoderOnlyConfig


class EncoderOnly(nn.Module):
    """Encoder layers over the row, and a linear layer that scores every symbol at every place."""

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
        """Logits (BWV) of the symbol that belongs at each place; each layer's attention (BHWW) is appended to `weights`.

        `may_look` is true at what may be looked at and broadcasts to BHWW.
        """
        x_BWD = self.embedding(row_BW)
        for layer in self.layers:
            x_BWD, weights_BHWW = layer(x_BWD, may_look, weigh=weights is not None)
            if weights is not None:
                weights.append(weights_BHWW)
        return self.output(self.norm(x_BWD))
