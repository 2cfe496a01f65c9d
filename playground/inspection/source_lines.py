"""The line of the model's source code that computes each stage of a trace.

This is the only table of such lines. They are located by a part of their text, so they follow
every other edit of the file. A test finds all of them, and those of the known bugs (bugs.toml).
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import playground
from playground.models import attention
from playground.models.attention import MultiHeadAttention
from playground.models.embeddings import InputEmbedding
from playground.models.feed_forward import FeedForward, SwiGLU
from playground.models.layers import ResidualNorm
from playground.models.position_encoding import apply_rotary_emb
from playground.models.transformer import Transformer

# A function, and a part of the line.
Place = tuple[Callable[..., Any], str]
# By the name of the stage, or of its variant.
STAGE_LINES: dict[str, Place] = {
    "token embeddings": (InputEmbedding.forward, "self.token_embedding(tokens_BS) * "),
    "position vectors": (InputEmbedding.forward, "positions_SD = "),
    "sum": (InputEmbedding.forward, "+ positions_SD"),
    "pre-norm": (ResidualNorm.forward, "sublayer(self.norm(x_BSD))"),
    "post-norm": (ResidualNorm.forward, "sublayer(x_BSD)"),
    "queries": (MultiHeadAttention.forward, "self.q_proj(x_BQD)"),
    "keys": (MultiHeadAttention.keys_and_values, "self.k_proj("),
    "values": (MultiHeadAttention.keys_and_values, "self.v_proj("),
    "rotation": (apply_rotary_emb, "torch.cat("),
    "scores": (attention.scaled_dot_product_attention, "scores_BHQM = query"),
    "biased scores": (attention.scaled_dot_product_attention, "+ bias_HQM"),
    "causal mask": (attention.causal_mask, "tril()"),
    "padding mask": (attention.padding_mask, "tokens_BM != 0"),
    "masked scores": (attention.scaled_dot_product_attention, "masked_fill"),
    "softmax": (attention.scaled_dot_product_attention, "scores_BHQM.softmax("),
    "weighted sum": (attention.scaled_dot_product_attention, "weights_BHQM @ value_BHMK"),
    "output projection": (MultiHeadAttention.forward, "self.out_proj("),
    "feed-forward": (FeedForward.forward, "self.down_proj("),
    "gated feed-forward": (SwiGLU.forward, "self.down_proj("),
    "encoder norm": (Transformer.encode, "self.encoder_norm("),
    "decoder norm": (Transformer.decode, "self.decoder_norm("),
    "logits": (Transformer.forward, "self.output_proj("),
    "probabilities": (Transformer.log_probs, "log_softmax"),
}


@dataclass(frozen=True)
class SourceLine:
    """A line of this project's source code.

    `file` is relative to the project's folder, and `line` counts from 1.
    """

    file: str
    line: int
    text: str


@cache
def find_source_line(function: Callable[..., Any], fragment: str) -> SourceLine:
    """Return the only line of a function that contains `fragment`, or raise LookupError."""
    lines, first = inspect.getsourcelines(function)
    matches = [(first + i, line.strip()) for i, line in enumerate(lines) if fragment in line]
    if len(matches) != 1:
        raise LookupError(
            f"{function.__qualname__} has {len(matches)} lines with {fragment!r}; exactly one is "
            "needed"
        )
    root = Path(playground.__file__).resolve().parent.parent
    file = Path(inspect.getsourcefile(inspect.unwrap(function)) or "").resolve().relative_to(root)
    return SourceLine(file.as_posix(), *matches[0])
