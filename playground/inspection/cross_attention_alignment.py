"""Measure how closely cross-attention heads follow the alignment of source and target.

Shapes: L layers, H heads, Q queries, M memory.
"""

from typing import Any

import torch
from torch import Tensor


def diagonal(n_queries: int, n_memory: int, start: int = 0) -> Tensor:
    """Return the source positions (Q) of an output in the order of the source.

    They are evenly spaced from position `start` to the last source position.
    """
    step = (n_memory - 1 - start) / max(n_queries - 1, 1)
    return start + torch.arange(n_queries) * step


def score_alignment(weights_LHQM: Tensor, aligned_Q: Tensor, start: int = 0) -> dict[str, Any]:
    """Return how much attention of each head is on the aligned source position of each query.

    `start` is the first source position to count, after a task prefix. The result has, as means
    over the queries: `scores` (LH), the share of attention within one position of the aligned one;
    `last` (LH), the other share on the last source position, which is the EOS of most tokenizers;
    `baseline`, both shares for uniform attention. `best` is the head with the largest score.
    """
    n_queries, n_memory = weights_LHQM.shape[-2:]
    columns_M = torch.arange(n_memory)
    near_QM = ((columns_M - aligned_Q[:, None]).abs() <= 1) & (columns_M >= start)
    last_QM = (columns_M == n_memory - 1) & ~near_QM
    uniform_QM = torch.full((n_queries, n_memory), 1 / n_memory)
    scores_LH = _mean_share(weights_LHQM, near_QM)
    best = int(scores_LH.argmax())
    n_heads = weights_LHQM.shape[1]
    return {
        "scores": scores_LH.tolist(),
        "last": _mean_share(weights_LHQM, last_QM).tolist(),
        "baseline": {
            "score": float(_mean_share(uniform_QM, near_QM)),
            "last": float(_mean_share(uniform_QM, last_QM)),
        },
        "best": {"layer": best // n_heads, "head": best % n_heads},
    }


def _mean_share(weights: Tensor, mask_QM: Tensor) -> Tensor:
    """Return the share of attention within a mask, as a mean over the queries."""
    return (weights * mask_QM).sum(-1).mean(-1)
