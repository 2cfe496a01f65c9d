"""Attention masks: the padding mask, the causal mask, and the effect of a mask on a softmax.

Shapes: B rows, S source, T target, H heads, Q queries, M memory, K head size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from playground.common import messages
from playground.models.attention import (
    MultiHeadAttention,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
    split_heads,
)
from playground.tasks.task import Batch

from .hooks import Component, record_activations
from .inspected_model import InspectedModel, InspectionError

# Rows of scores from a tutorial, in which zeros are padding, and its results to four digits.
TUTORIAL_EXAMPLE = {
    "scores": [[7, 6, 0, 0, 0], [1, 2, 3, 0, 0], [3, 0, 0, 0, 0]],
    "unmasked": [
        [0.7296, 0.2684, 0.0007, 0.0007, 0.0007],
        [0.0844, 0.2295, 0.6239, 0.0311, 0.0311],
        [0.8339, 0.0415, 0.0415, 0.0415, 0.0415],
    ],
    "masked": [[0.7311, 0.2689, 0, 0, 0], [0.0900, 0.2447, 0.6652, 0, 0], [1, 0, 0, 0, 0]],
}
MAX_SCORES = 64  # maximum length of a row, and maximum number of rows


MAX_TYPED_TOKENS = 32


@dataclass(frozen=True)
class TokenMasks:
    """The masks of a sequence of token ids, and the attention weights of equal scores under both.

    `allowed` is 1 if a query (row) may attend to a key (column) under the padding mask and the
    causal mask.
    """

    padding: list[int]
    allowed: list[list[int]]
    weights: list[list[float]]


@dataclass(frozen=True)
class MaskedSoftmax:
    """Rows of scores with zeros as padding, and their softmax without and with the mask.

    `is_token` is 1 for tokens and 0 for padding.
    """

    scores: list[list[float]]
    is_token: list[list[int]]
    unmasked: list[list[float]]
    masked: list[list[float]]


def padding_mask_row(tokens: Sequence[int]) -> list[int]:
    """Return the padding mask: 1 for tokens, 0 for padding, which is token 0.

    Example: [87, 600, 0, 0, 0] -> [1, 1, 0, 0, 0].
    """
    return padding_mask(torch.tensor([list(tokens)]))[0, 0, 0].int().tolist()


def causal_mask_rows(length: int) -> list[list[int]]:
    """Return the causal mask: 1 if a query (row) may attend to a key (column).

    A position attends to itself and to earlier positions.
    """
    return causal_mask(length, torch.device("cpu")).int().tolist()


def masks_of_tokens(tokens: Sequence[int]) -> TokenMasks:
    """Return the masks of token ids, in which 0 is padding.

    Raises:
        InspectionError: for no tokens, too many, or padding as the first one, which leaves the
            first query nothing to attend to.
    """
    if not 0 < len(tokens) <= MAX_TYPED_TOKENS or min(tokens) < 0:
        raise InspectionError(
            f"type 1 to {MAX_TYPED_TOKENS} token ids from 0 on, such as 87 600 0 0 0"
        )
    if not tokens[0]:
        raise InspectionError(
            "the first token is padding, so its query has no key; begin with another token"
        )
    padding_M = padding_mask(torch.tensor([list(tokens)]))[0, 0, 0]
    allowed_QM = padding_M & causal_mask(len(tokens), torch.device("cpu"))
    scores_QM = torch.zeros(allowed_QM.shape).masked_fill(~allowed_QM, -torch.inf)
    return TokenMasks(
        padding_M.int().tolist(), allowed_QM.int().tolist(), scores_QM.softmax(-1).tolist()
    )


def masked_softmax(scores: Sequence[Sequence[float]]) -> MaskedSoftmax:
    """Compute the softmax of scores without and with a padding mask.

    Without the mask, padding gets part of the attention of every row.

    Raises:
        InspectionError: for no rows, rows of unequal length, a score that is not finite, or a row
            that holds only zeros.
    """
    if (
        not scores
        or len(scores) > MAX_SCORES
        or not 0 < len(scores[0]) <= MAX_SCORES
        or len({len(row) for row in scores}) > 1
    ):
        raise InspectionError(
            f"type 1 to {MAX_SCORES} rows of equal length, each with at most {MAX_SCORES} "
            "scores, such as 7 6 0 0 0"
        )
    if not all(math.isfinite(score) for row in scores for score in row):
        raise InspectionError("a score is not finite; type numbers such as 7 6 0 0 0")
    if not all(any(row) for row in scores):
        raise InspectionError(
            "a row holds only zeros; zeros are padding, so give each row a score other than 0"
        )
    scores_BM = torch.tensor([list(row) for row in scores], dtype=torch.double)
    real_BM = padding_mask(scores_BM)[:, 0, 0]
    masked_BM = scores_BM.masked_fill(~real_BM, -torch.inf).softmax(-1)
    return MaskedSoftmax(
        scores_BM.tolist(),
        real_BM.int().tolist(),
        scores_BM.softmax(-1).tolist(),
        masked_BM.tolist(),
    )


@torch.no_grad()
def compare_attention_types(
    subject: InspectedModel, batch: Batch, layer: int = 0
) -> dict[str, Tensor]:
    """Compute four types of attention on one sequence with the projections of one layer.

    Each result is attention weights HQM.

    bidirectional   source queries attend to all source positions; one head of size d_model
    causal          the same queries and keys, with a causal mask
    cross           target queries attend to the source; one head of size d_model
    multi-head      source queries attend to the source, with the heads of the model

    A position bias per head (ALiBi, T5) does not exist for a single wide head, so only
    "multi-head" includes it.

    Raises:
        InspectionError: for more than one sequence, or a layer that the model does not have.
    """
    model = subject.transformer
    if len(batch.source_BS) != 1:
        raise InspectionError(messages.requires_one_sequence(len(batch.source_BS)))
    if not 0 <= layer < model.config.n_layers:
        raise InspectionError(
            f"layer is {layer}; this model has the layers 0 to {model.config.n_layers - 1}"
        )
    self_attn_name = Component("encoder", layer).module_name
    cross_attn_name = Component("cross", layer).module_name
    with record_activations(model) as calls:
        model(batch.source_BS, batch.decoder_input_BT)

    def weights(module: str, n_heads: int, causal: bool = False) -> Tensor:
        """Return the attention weights of a module on its inputs, split into `n_heads` heads."""
        _, key_BGMK, value_BGMK, attn_mask = calls[module][-1].inputs
        query_BQD = calls[f"{module}.q_proj"][-1].output
        attention = cast(MultiHeadAttention, model.get_submodule(module))
        query_BHQK = split_heads(query_BQD, model.config.n_heads)
        query_BHQK = attention.position_encoding.rotate(query_BHQK)
        bias_HQM = None
        if n_heads == model.config.n_heads:
            n_queries, n_keys = query_BHQK.shape[2], key_BGMK.shape[2]
            bias_HQM = attention.position_encoding.bias(n_queries, n_keys, query_BQD.device)
        if causal:
            attn_mask = causal_mask(query_BQD.shape[1], query_BQD.device)
        every = (query_BHQK, attention.repeat_kv(key_BGMK), attention.repeat_kv(value_BGMK))
        split = [
            x.transpose(1, 2).flatten(2).unflatten(-1, (n_heads, -1)).transpose(1, 2) for x in every
        ]
        return scaled_dot_product_attention(split[0], split[1], split[2], attn_mask, bias_HQM)[1][0]

    return {
        "bidirectional": weights(self_attn_name, 1),
        "causal": weights(self_attn_name, 1, causal=True),
        "cross": weights(cross_attn_name, 1),
        "multi-head": weights(self_attn_name, model.config.n_heads),
    }
