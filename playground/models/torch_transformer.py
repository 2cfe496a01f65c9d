"""The encoder-decoder transformer from PyTorch's own layers, as many tutorials build it."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .attention import causal_mask
from .config import TorchTransformerConfig
from .embeddings import build_token_embedding
from .transformer import AttentionWeights


class TorchTransformer(nn.Module):
    """`nn.TransformerEncoder` and `nn.TransformerDecoder` between embeddings and a linear layer.

    Source and target have separate tables of token embeddings and learned position embeddings. The
    target has one position more, for a whole target between SOS and EOS. With the same weights the
    model computes what the transformer from scratch computes. In training it differs in dropout:
    PyTorch's layers also drop attention weights and values inside the feed-forward network.
    """

    def __init__(self, config: TorchTransformerConfig) -> None:
        super().__init__()
        self.config = config
        d, norm_first = config.d_model, config.norm_placement == "pre"
        self.source_token_embedding = build_token_embedding(config.source_vocab_size, d)
        self.target_token_embedding = build_token_embedding(config.target_vocab_size, d)
        self.source_position_embedding = nn.Embedding(config.max_positions, d)
        self.target_position_embedding = nn.Embedding(config.max_positions + 1, d)
        self.dropout = nn.Dropout(config.dropout)
        layer_options: dict[str, Any] = {
            "d_model": d,
            "nhead": config.n_heads,
            "dim_feedforward": config.d_ff,
            "dropout": config.dropout,
            "batch_first": True,
            "norm_first": norm_first,
        }
        final_norms = [nn.LayerNorm(d) if norm_first else None for _ in range(2)]
        encoder_layer = nn.TransformerEncoderLayer(**layer_options)
        decoder_layer = nn.TransformerDecoderLayer(**layer_options)
        self.encoder = nn.TransformerEncoder(
            encoder_layer, config.n_layers, final_norms[0], enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(decoder_layer, config.n_layers, final_norms[1])
        self.output_proj = nn.Linear(d, config.target_vocab_size)
        # PyTorch copies one layer, so without this all layers would start with equal weights.
        for stack in (self.encoder, self.decoder, self.output_proj):
            for weight in stack.parameters():
                if weight.dim() > 1:
                    nn.init.xavier_uniform_(weight)

    def forward(
        self, source_BS: Tensor, target_BT: Tensor, weights: AttentionWeights | None = None
    ) -> Tensor:
        """Return the logits (BTV) of the token that follows each target position.

        Each layer appends its attention weights to those in `weights`, if they are given.
        """
        memory_BSD = self.encode(source_BS, weights)
        return self.output_proj(self.decode(target_BT, memory_BSD, source_BS, weights))

    def encode(self, source_BS: Tensor, weights: AttentionWeights | None = None) -> Tensor:
        """Return the memory (BSD): a vector for each source position, computed from all of them."""
        x_BSD = self._embed(source_BS, self.source_token_embedding, self.source_position_embedding)
        with _record_attention(self.encoder, "self_attn", weights.encoder if weights else None):
            return self.encoder(x_BSD, src_key_padding_mask=source_BS == 0)

    def decode(
        self,
        target_BT: Tensor,
        memory_BSD: Tensor,
        source_BS: Tensor,
        weights: AttentionWeights | None = None,
    ) -> Tensor:
        """Return a vector (BTD) for each target position, from the target so far and the memory."""
        x_BTD = self._embed(target_BT, self.target_token_embedding, self.target_position_embedding)
        # PyTorch's masks are True where attention is not allowed.
        blocked_TT = ~causal_mask(target_BT.shape[1], target_BT.device)
        with (
            _record_attention(self.decoder, "self_attn", weights.decoder if weights else None),
            _record_attention(self.decoder, "multihead_attn", weights.cross if weights else None),
        ):
            return self.decoder(
                x_BTD,
                memory_BSD,
                tgt_mask=blocked_TT,
                tgt_is_causal=True,
                memory_key_padding_mask=source_BS == 0,
            )

    def _embed(self, tokens_BS: Tensor, tokens: nn.Embedding, positions: nn.Embedding) -> Tensor:
        position_S = torch.arange(tokens_BS.shape[1], device=tokens_BS.device)
        x_BSD = tokens(tokens_BS) * math.sqrt(self.config.d_model)
        return self.dropout(x_BSD + positions(position_S))


@contextmanager
def _record_attention(stack: nn.Module, name: str, weights: list[Tensor] | None) -> Iterator[None]:
    """Record the attention weights of a stack during a `with` block, if there is a list for them.

    Each layer's attention `name` appends its weights (BHQM) to `weights`. PyTorch's layers do not
    request them themselves.
    """

    def request_weights(
        _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs | {"need_weights": True, "average_attn_weights": False}

    if weights is None:
        yield
        return
    recorded = weights
    with ExitStack() as hooks:
        for path, attention in stack.named_modules():
            if path.endswith(name):
                before = attention.register_forward_pre_hook(request_weights, with_kwargs=True)
                after = attention.register_forward_hook(lambda *args: recorded.append(args[-1][1]))
                hooks.enter_context(before)
                hooks.enter_context(after)
        yield
