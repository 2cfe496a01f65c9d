"""The encoder-decoder transformer made of torch's own layers, as most tutorials build it.

Shapes: B batch, S source, T target, H heads, D d_model, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .attention import causal_mask
from .positions import token_table
from .sizes import PrebuiltConfig
from .transformer import AttentionRecord


class Prebuilt(nn.Module):
    """`nn.TransformerEncoder` and `nn.TransformerDecoder` between embeddings and a linear layer.

    Source and target have tables of their own for symbols and for positions, which are learned; the target's has a row more, for
    a whole answer between SOS and EOS. With the same weights it computes what the transformer from scratch computes. While training
    it differs in dropout: torch's layers also drop attention weights and values inside the feed-forward network.
    """

    def __init__(self, config: PrebuiltConfig) -> None:
        super().__init__()
        self.config = config
        d, pre = config.d_model, config.norm == "pre"
        self.source_tokens = token_table(config.source_vocabulary, d)
        self.target_tokens = token_table(config.target_vocabulary, d)
        self.source_positions = nn.Embedding(config.max_positions, d)
        self.target_positions = nn.Embedding(config.max_positions + 1, d)
        self.dropout = nn.Dropout(config.dropout)
        sizes: dict[str, Any] = {
            "d_model": d, "nhead": config.n_heads, "dim_feedforward": config.d_ff, "dropout": config.dropout,
            "batch_first": True, "norm_first": pre,
        }  # fmt: skip
        final_norms = [nn.LayerNorm(d) if pre else None for _ in range(2)]
        encoder_layer, decoder_layer = (
            nn.TransformerEncoderLayer(**sizes),
            nn.TransformerDecoderLayer(**sizes),
        )
        self.encoder = nn.TransformerEncoder(
            encoder_layer, config.n_layers, final_norms[0], enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(decoder_layer, config.n_layers, final_norms[1])
        self.output = nn.Linear(d, config.target_vocabulary)
        for stack in (
            self.encoder,
            self.decoder,
            self.output,
        ):  # torch copies one layer: without this all begin with equal weights
            for weight in stack.parameters():
                if weight.dim() > 1:
                    nn.init.xavier_uniform_(weight)

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Logits (BTV) of the token that follows each target position."""
        return self.output(self.decode(target_BT, self.encode(source_BS), source_BS))

    def encode(self, source_BS: Tensor) -> Tensor:
        """The memory (BSD): a vector for each source position that knows about the whole source."""
        x_BSD = self._embedded(source_BS, self.source_tokens, self.source_positions)
        return self.encoder(x_BSD, src_key_padding_mask=source_BS == 0)

    def decode(self, target_BT: Tensor, memory_BSD: Tensor, source_BS: Tensor) -> Tensor:
        """A vector (BTD) for each target position, made from its past and from the memory."""
        x_BTD = self._embedded(target_BT, self.target_tokens, self.target_positions)
        hidden = ~causal_mask(
            target_BT.shape[1], target_BT.device
        )  # torch's masks are true where one may not look
        return self.decoder(
            x_BTD,
            memory_BSD,
            tgt_mask=hidden,
            tgt_is_causal=True,
            memory_key_padding_mask=source_BS == 0,
        )

    def forward_with_attention(
        self, source_BS: Tensor, target_BT: Tensor
    ) -> tuple[Tensor, AttentionRecord]:
        """Logits as from `forward`, and the attention of every layer and head on the way to them."""
        record = AttentionRecord()
        with (
            _asked(self.encoder, "self_attn", record.encoder_attention),
            _asked(self.decoder, "self_attn", record.decoder_attention),
            _asked(self.decoder, "multihead_attn", record.cross_attention),
        ):
            return self(source_BS, target_BT), record

    def _embedded(self, tokens_BS: Tensor, tokens: nn.Embedding, positions: nn.Embedding) -> Tensor:
        place_S = torch.arange(tokens_BS.shape[1], device=tokens_BS.device)
        return self.dropout(tokens(tokens_BS) * math.sqrt(self.config.d_model) + positions(place_S))


@contextmanager
def _asked(stack: nn.Module, name: str, weights: list[Tensor]) -> Iterator[None]:
    """While the block lasts, each layer's attention `name` appends its weights (BHQM) to `weights`. Torch's layers ask for none."""

    def ask(
        _: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return given, named | {"need_weights": True, "average_attn_weights": False}

    def keep(_: nn.Module, given: tuple[Any, ...], result: tuple[Tensor, Tensor]) -> None:
        weights.append(result[1])

    parts = [module for path, module in stack.named_modules() if path.endswith(name)]
    hooks = [
        hook
        for each in parts
        for hook in (
            each.register_forward_pre_hook(ask, with_kwargs=True),
            each.register_forward_hook(keep),
        )
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
