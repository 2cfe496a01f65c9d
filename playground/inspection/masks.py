"""Masks by themselves: which positions count, who may look at whom, and what a mask does to a softmax.

Shapes: B rows, S source, T target, H heads, Q queries, M memory, K numbers a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from playground.models.attention import MultiHeadAttention, attend, causal_mask, padding_mask
from playground.tasks.task import Batch

from .components import Component, watched
from .subject import NotInspectable, Subject

PUBLISHED = {  # a tutorial's rows of scores in which zeros are padding, and what it prints, to four digits
    "scores": [[7, 6, 0, 0, 0], [1, 2, 3, 0, 0], [3, 0, 0, 0, 0]],
    "plain": [
        [0.7296, 0.2684, 0.0007, 0.0007, 0.0007],
        [0.0844, 0.2295, 0.6239, 0.0311, 0.0311],
        [0.8339, 0.0415, 0.0415, 0.0415, 0.0415],
    ],
    "masked": [[0.7311, 0.2689, 0, 0, 0], [0.0900, 0.2447, 0.6652, 0, 0], [1, 0, 0, 0, 0]],
}
MOST_SCORES = 64  # in a row, and rows


@dataclass(frozen=True)
class MaskedSoftmax:
    """Rows of scores with zeros as padding: which are real (1) and which padding (0), and their softmax without and with the mask."""

    scores: list[list[float]]
    real: list[list[int]]
    plain: list[list[float]]
    masked: list[list[float]]


def padding(tokens: Sequence[int]) -> list[int]:
    """1 at real tokens, 0 at padding, which is token 0: [87, 600, 0, 0, 0] -> [1, 1, 0, 0, 0]."""
    return padding_mask(torch.tensor([list(tokens)]))[0, 0, 0].int().tolist()


def look_ahead(length: int) -> list[list[int]]:
    """1 where a position (row) may look (column): at itself and at what comes before."""
    return causal_mask(length, torch.device("cpu")).int().tolist()


def masked_softmax(scores: Sequence[Sequence[float]]) -> MaskedSoftmax:
    """What padding does to attention: it takes its share of every row, unless it is masked.

    Raises:
        NotInspectable: for no rows, rows of unequal length, a number that is not finite, or a row of zeros alone.
    """
    if (
        not scores
        or len(scores) > MOST_SCORES
        or not 0 < len(scores[0]) <= MOST_SCORES
        or len({len(row) for row in scores}) > 1
    ):
        raise NotInspectable(
            f"type 1 to {MOST_SCORES} rows of equally many scores, at most {MOST_SCORES}, such as 7 6 0 0 0"
        )
    if not all(math.isfinite(score) for row in scores for score in row):
        raise NotInspectable("a score is not finite; type numbers such as 7 6 0 0 0")
    if not all(any(row) for row in scores):
        raise NotInspectable(
            "a row holds zeros alone; zeros are padding here, so give each row a score other than 0"
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
def four_kinds(subject: Subject, batch: Batch, layer: int = 0) -> dict[str, Tensor]:
    """Four kinds of attention side by side on one sequence, each as weights HQM, with the projections of one layer of the model.

    bidirectional   the source looks at the source, everybody at everybody; one head as wide as the model
    causal          the same queries and keys, but nobody looks ahead
    cross           the target looks at the source; one head as wide as the model
    multi-head      the source looks at the source with the heads that the model has

    A bias that each head adds to its scores for distance (ALiBi, T5) is that of no wider head: it is in the last one only.

    Raises:
        NotInspectable: for more than one sequence, or a layer that there is not.
    """
    family = subject.family
    if len(batch.source_BS) != 1:
        raise NotInspectable(
            f"the batch has {len(batch.source_BS)} rows; one sequence at a time is shown"
        )
    if not 0 <= layer < family.config.n_layers:
        raise NotInspectable(
            f"layer is {layer}; this model has the layers 0 to {family.config.n_layers - 1}"
        )
    own, across = Component("encoder", layer).module, Component("cross", layer).module
    with watched(family) as calls:
        family(batch.source_BS, batch.decoder_input_BT)

    def weights(module: str, n_heads: int, causal: bool = False) -> Tensor:
        """The attention of a module on what it was given in the pass, cut into so many heads."""
        _, key_BGMK, value_BGMK, may_look = calls[module][-1].given
        query_BQD = calls[f"{module}.query"][-1].result
        attention = cast(MultiHeadAttention, family.get_submodule(module))
        query_BHQK = attention.relation.rotate(
            attention.split_heads(query_BQD, family.config.n_heads)
        )
        bias_HQM = (
            attention.relation.bias(query_BHQK, key_BGMK)
            if n_heads == family.config.n_heads
            else None
        )
        if causal:
            may_look = causal_mask(query_BQD.shape[1], query_BQD.device)
        every = (query_BHQK, attention.shared(key_BGMK), attention.shared(value_BGMK))
        split = [
            x.transpose(1, 2).flatten(2).unflatten(-1, (n_heads, -1)).transpose(1, 2) for x in every
        ]
        return attend(split[0], split[1], split[2], may_look, bias_HQM)[1][0]

    return {
        "bidirectional": weights(own, 1),
        "causal": weights(own, 1, causal=True),
        "cross": weights(across, 1),
        "multi-head": weights(own, family.config.n_heads),
    }
