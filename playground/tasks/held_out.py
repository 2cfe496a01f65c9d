"""Which sequences train and which are held out: a fixed hash of the sequence decides, one in sixteen is held out.

The decision needs no list and no memory of what was drawn: the same sequence falls on the same side in every run, for
every seed and on every device, so a model can never have trained on what it is scored on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .task import Batch, Task, make_batch
from .vocabulary import SPECIAL

HELD_OUT_SHARE = 1 / 16
EVALUATION_SEED = 20170612  # any constant; scores compare across runs because all are asked the same sequences
ENUMERABLE = 200_000  # up to this many sequences of a length are listed rather than drawn
CHUNK = 1_000_000  # symbols made at a time, to bound the memory

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64: the odd constant of Fibonacci hashing
_MIX = -4658895280553007687  # 0xBF58476D1CE4E5B9 as int64: splitmix64's first multiplier


def _scramble(x: Tensor) -> Tensor:
    """One round of splitmix64 (Steele, Lea and Flood 2014) on int64, which wraps as unsigned arithmetic does."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _MIX
    return x ^ ((x >> 27) & 0x1FFFFFFFFF)


def is_held_out(sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
    """True for rows that belong to the held-out set (B booleans). Only the symbols count, not the padding."""
    column_L = torch.arange(sequence_BL.shape[1], device=sequence_BL.device)
    key_L = _scramble((column_L + 1) * _GOLDEN) | 1
    symbols_BL = torch.where(column_L < lengths_B[:, None], sequence_BL, 0)
    hash_B = _scramble(_scramble((symbols_BL * key_L).sum(1)))
    return (hash_B & 15) == 0


def training_batch(task: Task, batch_size: int, min_length: int, max_length: int, generator: torch.Generator) -> Batch:
    """A fresh batch on the generator's device; lengths are uniform, held-out rows get weight 0."""
    device = generator.device
    lengths_B = torch.randint(min_length, max_length + 1, (batch_size,), generator=generator, device=device)
    shape = (batch_size, max_length)
    sequence_BL = torch.randint(len(SPECIAL), len(task.vocabulary), shape, generator=generator, device=device)
    weight_B = (~is_held_out(sequence_BL, lengths_B)).float()
    return make_batch(task, sequence_BL, lengths_B, weight_B)


@dataclass(frozen=True)
class HeldOut:
    """Distinct held-out sequences, shared out over the lengths.

    available   by length: how many distinct held-out sequences there are (None: more than are counted, see ENUMERABLE)
    """

    batch: Batch
    lengths_B: Tensor
    available: dict[int, int | None]

    def to(self, device: torch.device) -> HeldOut:
        return HeldOut(self.batch.to(device), self.lengths_B, self.available)


def held_out_set(task: Task, n: int, min_length: int, max_length: int) -> HeldOut:
    """`n` distinct held-out sequences, the same at every call: each length gets its share, and what short lengths cannot
    fill goes to the longer ones. Fewer than `n` come back only where fewer exist; a short length may have none.
    """
    generator = torch.Generator().manual_seed(EVALUATION_SEED)
    parts, lengths, available = [], [], {}
    left = n
    for length in range(min_length, max_length + 1):
        share = -(-left // (max_length - length + 1))
        found_NL, available[length] = _distinct(task, length, share, generator)
        parts.append(torch.nn.functional.pad(found_NL, (0, max_length - length)))
        lengths.append(torch.full((len(found_NL),), length))
        left -= len(found_NL)
    lengths_B = torch.cat(lengths)
    return HeldOut(make_batch(task, torch.cat(parts), lengths_B), lengths_B, available)


def _distinct(task: Task, length: int, n: int, generator: torch.Generator) -> tuple[Tensor, int | None]:
    """Up to `n` distinct held-out sequences of one length in random order, and how many there are."""
    symbols = len(task.vocabulary.symbols)
    rows = max(1, CHUNK // length)
    if symbols**length <= max(ENUMERABLE, 2 * n / HELD_OUT_SHARE):
        place_L = symbols ** torch.arange(length)
        parts = [
            _held_out_rows(number_N[:, None] // place_L % symbols + len(SPECIAL)) for number_N in torch.arange(symbols**length).split(rows)
        ]
        kept_NL = torch.cat(parts)
        order_N = torch.randperm(len(kept_NL), generator=generator)[:n]
        return kept_NL[order_N], len(kept_NL)
    kept_NL = torch.empty(0, length, dtype=torch.long)
    while len(kept_NL) < n:  # more than 2 n are there to be found
        parts, found = [kept_NL], len(kept_NL)
        while found < n:
            drawn_NL = torch.randint(len(SPECIAL), len(task.vocabulary), (min(rows, 64 * n), length), generator=generator)
            parts.append(_held_out_rows(drawn_NL))
            found += len(parts[-1])
        kept_NL = torch.cat(parts).unique(dim=0)
    return kept_NL[torch.randperm(len(kept_NL), generator=generator)[:n]], None


def _held_out_rows(sequence_NL: Tensor) -> Tensor:
    """The held-out ones among sequences of full length."""
    return sequence_NL[is_held_out(sequence_NL, torch.full((len(sequence_NL),), sequence_NL.shape[1]))]
