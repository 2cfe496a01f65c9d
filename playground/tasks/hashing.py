"""A hash of the sequences of padded batches, equal on every device and in every version.

The held-out split depends on it.
"""

import torch
from torch import Tensor

# 0x9E3779B97F4A7C15 as int64: the odd constant of Fibonacci hashing
_SPLITMIX64_GAMMA = -7046029254386353131
# 0xBF58476D1CE4E5B9 as int64: splitmix64's first multiplier
_SPLITMIX64_MULTIPLIER = -4658895280553007687


def splitmix64(x: Tensor) -> Tensor:
    """Run a round of splitmix64 (Steele, Lea and Flood 2014) on int64.

    int64 wraps around as unsigned arithmetic does.
    """
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _SPLITMIX64_MULTIPLIER
    return x ^ ((x >> 27) & 0x1FFFFFFFFF)


def position_keys(width: int, device: torch.device) -> Tensor:
    """Return an odd number for each position, so that the order counts."""
    return splitmix64((torch.arange(width, device=device) + 1) * _SPLITMIX64_GAMMA) | 1


def sequence_hash(sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
    """Return 64 bits for each sequence (B, int64). Only the symbols count, not the padding."""
    column_L = torch.arange(sequence_BL.shape[1], device=sequence_BL.device)
    symbols_BL = torch.where(column_L < lengths_B[:, None], sequence_BL, 0)
    return splitmix64(
        splitmix64((symbols_BL * position_keys(sequence_BL.shape[1], sequence_BL.device)).sum(1))
    )
