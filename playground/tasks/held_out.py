"""Which sequences train and which are held out: a fixed hash of the sequence decides, one in sixteen is held out.

The decision needs no list and no memory of what was drawn: the same sequence falls on the same side in every run, for
every seed and on every device, so a model can never have trained on what it is scored on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .hashing import sequence_hash
from .task import Batch, Task, make_batch

HELD_OUT_SHARE = 1 / 16
EVALUATION_SEED = 20170612  # any constant; scores compare across runs because all are asked the same sequences
CHUNK = 1_000_000  # symbols made at a time, to bound the memory


def is_held_out(sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
    """True for rows that belong to the held-out set (B booleans). Only the symbols count, by their `Task.marks`, not the padding."""
    return (sequence_hash(sequence_BL, lengths_B) & 15) == 0


def training_batch(task: Task, batch_size: int, min_length: int, max_length: int, generator: torch.Generator) -> Batch:
    """A fresh batch on the generator's device, drawn as the task draws; held-out rows get weight 0."""
    sequence_BL, lengths_B = task.draw(batch_size, min_length, max_length, generator)
    weight_B = (~is_held_out(task.marks(sequence_BL), lengths_B)).float()
    return make_batch(task, sequence_BL, lengths_B, weight_B)


@dataclass(frozen=True)
class HeldOut:
    """Distinct held-out sequences, shared out over the lengths.

    available   by length: how many distinct held-out sequences there are (None: more than are counted, see Task.enumerable)
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
    count = task.count(length)
    rows = max(1, CHUNK // length)
    if count <= max(task.enumerable, 2 * n / HELD_OUT_SHARE):
        kept_NL = torch.cat([_held_out_rows(task, task.listed(number_N, length)) for number_N in torch.arange(count).split(rows)])
        order_N = torch.randperm(len(kept_NL), generator=generator)
        kinds_N = task.kinds(kept_NL[order_N])
        if kinds_N is not None:
            order_N = order_N[_taking_turns(kinds_N)]
        return kept_NL[order_N[:n]], len(kept_NL)
    kept_NL = torch.empty(0, length, dtype=torch.long)
    while len(kept_NL) < n:  # more than 2 n are there to be found
        parts, found = [kept_NL], len(kept_NL)
        while found < n:
            drawn_NL = task.fill(torch.full((min(rows, 64 * n),), length), length, generator)
            parts.append(_held_out_rows(task, drawn_NL))
            found += len(parts[-1])
        kept_NL = torch.cat(parts).unique(dim=0)
    return kept_NL[torch.randperm(len(kept_NL), generator=generator)[:n]], None


def _taking_turns(kinds_N: Tensor) -> Tensor:
    """The order in which each kind gives its next one in turn: places are ranked within their kind."""
    rank_N = torch.empty_like(kinds_N)
    for kind in kinds_N.unique():
        rank_N[kinds_N == kind] = torch.arange(int((kinds_N == kind).sum()))
    return rank_N.argsort(stable=True)


def _held_out_rows(task: Task, sequence_NL: Tensor) -> Tensor:
    """The held-out ones among sequences of full length."""
    return sequence_NL[is_held_out(task.marks(sequence_NL), torch.full((len(sequence_NL),), sequence_NL.shape[1]))]
