"""Position ids that are not simply 0, 1, 2, ...: counted from the end, or randomized."""

from __future__ import annotations

import torch
from torch import Tensor


def positions_from_end(tokens_BS: Tensor) -> Tensor:
    """Return the number of tokens behind each token (BS), without padding (token 0).

    So the EOS of a source has position 0, whatever the length. This is for sources only: during
    generation the length of the target is not known yet, so targets count from their start.
    """
    real_BS = (tokens_BS != 0).long()
    return (real_BS.sum(1, keepdim=True) - real_BS.cumsum(1)).clamp(min=0)


def sample_random_positions(tokens_BS: Tensor, n_positions: int, n_random_positions: int) -> Tensor:
    """Sample increasing random positions (BS) for training (Ruoss et al. 2023, section 3).

    A model that trains on short sequences only still trains every position vector, and learns to
    use their order. The paper samples as many positions as there are tokens. We sample as if the
    sequence had a random total length up to `n_positions`, so that the gaps in training match those
    at inference (see `spread`).
    """
    batch_size, n_tokens = tokens_BS.shape
    total_length = torch.randint(n_tokens, n_positions + 1, (), device=tokens_BS.device)
    rank_BP = (
        torch.rand(batch_size, n_random_positions, device=tokens_BS.device)
        .argsort(descending=True)
        .argsort()
    )
    position_P = torch.arange(n_random_positions, device=tokens_BS.device)
    # First the `longest` positions of lowest rank in order, then all others. Sorting keeps the
    # shape independent of the random length.
    return (
        torch.where(rank_BP < total_length, position_P, n_random_positions + position_P)
        .sort()
        .values[:, :n_tokens]
    )


def evenly_spaced_positions(
    first_position: int,
    n_tokens: int,
    n_positions: int,
    n_random_positions: int,
    device: torch.device,
) -> Tensor:
    """Return evenly spaced positions (S) for inference.

    They are spaced as if the sequence had the maximum length. A token has the same position
    whatever the length, so padding and generation step by step change nothing. (The paper samples
    at inference, too.)
    """
    return (
        torch.arange(first_position, first_position + n_tokens, device=device)
        * n_random_positions
        // n_positions
    )
