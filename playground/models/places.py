"""Which row of a table of positions a token takes, where that is not simply its number.

Shapes: B batch, S tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor


def from_the_end(tokens_BS: Tensor) -> Tensor:
    """BS: how many tokens come after each one, padding (token 0) left out: the EOS of a source is at place 0 whatever its length.

    For sources only. How long an answer will be is not known while it is being written, so targets count from their start.
    """
    real_BS = (tokens_BS != 0).long()
    return (real_BS.sum(1, keepdim=True) - real_BS.cumsum(1)).clamp(min=0)


def drawn(tokens_BS: Tensor, n_positions: int, n_places: int) -> Tensor:
    """BS: places for training, for each sequence drawn at random out of many more and put in order (Ruoss et al. 2023, section
    3): a model that only ever meets short sequences meets every place, and learns to go by their order.

    The paper draws as many places as there are tokens. Here the tokens may be the beginning of a longer sequence, of any length
    up to `n_positions`, so that they stand as close together as they will (see `spread`) when the model is asked.
    """
    n_rows, n_tokens = tokens_BS.shape
    longest = torch.randint(n_tokens, n_positions + 1, (), device=tokens_BS.device)
    rank_BP = (
        torch.rand(n_rows, n_places, device=tokens_BS.device).argsort(descending=True).argsort()
    )
    place_P = torch.arange(n_places, device=tokens_BS.device)
    # The `longest` places of lowest rank in order, then the others: so the shape does not follow from what was drawn.
    return torch.where(rank_BP < longest, place_P, n_places + place_P).sort().values[:, :n_tokens]


def spread(
    first: int, n_tokens: int, n_positions: int, n_places: int, device: torch.device
) -> Tensor:
    """S: places when the model is asked, spread evenly as if the sequence were the longest that there is room for: the same for
    each position whatever the length, so that padding and going symbol by symbol change nothing. (The paper draws here, too.)"""
    return torch.arange(first, first + n_tokens, device=device) * n_places // n_positions
