"""An encoder that predicts the whole target in parallel, each token from the whole input.

New letter of shapes: W the tokens of the input, blanks included.
"""

from torch import Tensor, nn

from .config import EncoderOnlyConfig
from .embeddings import InputEmbedding, build_token_embedding
from .initialization import reinitialize
from .layers import Layer, build_final_norm


class EncoderOnly(nn.Module):
    """Encoder layers, and a linear layer that scores every token at each position."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = InputEmbedding(
            config, build_token_embedding(config.source_vocab_size, config.d_model)
        )
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.norm = build_final_norm(config)
        self.output_proj = nn.Linear(
            config.d_model, config.target_vocab_size, bias=config.has_output_bias
        )
        nn.init.xavier_uniform_(self.output_proj.weight)
        reinitialize(self, config)

    def forward(
        self, tokens_BT: Tensor, attn_mask: Tensor, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Return the logits (BWV) of the token at each position.

        Each layer appends its attention weights (BHWW) to `weights`. `attn_mask` is the attention
        mask: True where attention is allowed, broadcast to BHWW.
        """
        x_BTD = self.embedding(tokens_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD, attn_mask, self_weights=weights)
        return self.output_proj(self.norm(x_BTD))
