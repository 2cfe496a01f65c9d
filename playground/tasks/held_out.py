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
EVALUATION_SEED = (
    20170612  # any constant; scores compare across runs because all are asked the same sequences
)
CHUNK = 1_000_000  # symbols made at a time, to bound the memory


def is_held_out(sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
    """True for rows that belong to the held-out set (B booleans). Only the symbols count, by their `Task.marks`, not the padding."""
    return (sequence_hash(sequence_BL, lengths_B) & 15) == 0


def training_batch(
    task: Task, batch_size: int, min_length: int, max_length: int, generator: torch.Generator
) -> Batch:
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

    Where a task has kinds (`Task.kinds`), every length holds as many of each kind, so that a
    constant answer scores no more than its share of the kinds, and a length that has a single kind
    holds none. If no length has two kinds, there is nothing to even out.
    """
    even = _even_set(task, n, min_length, max_length, evened=True)
    return even if len(even.lengths_B) else _even_set(task, n, min_length, max_length, evened=False)


def _even_set(task: Task, n: int, min_length: int, max_length: int, evened: bool) -> HeldOut:
    generator = torch.Generator().manual_seed(EVALUATION_SEED)
    parts, lengths, available = [], [], {}
    left = n
    for length in range(min_length, max_length + 1):
        share = -(-left // (max_length - length + 1))
        found_NL, available[length] = _distinct(task, length, share, generator, evened)
        parts.append(torch.nn.functional.pad(found_NL, (0, max_length - length)))
        lengths.append(torch.full((len(found_NL),), length))
        left -= len(found_NL)
    lengths_B = torch.cat(lengths)
    return HeldOut(make_batch(task, torch.cat(parts), lengths_B), lengths_B, available)


def _distinct(
    task: Task, length: int, n: int, generator: torch.Generator, evened: bool
) -> tuple[Tensor, int | None]:
    """Up to `n` distinct held-out sequences of one length in random order, and how many there are."""
    count = task.count(length)
    rows = max(1, CHUNK // length)
    if count <= max(task.enumerable, 2 * n / HELD_OUT_SHARE):
        kept_NL = torch.cat(
            [
                _held_out_rows(task, task.listed(number_N, length))
                for number_N in torch.arange(count).split(rows)
            ]
        )
        kept_NL = kept_NL[torch.randperm(len(kept_NL), generator=generator)]
        return (_one_of_each(task, kept_NL) if evened else kept_NL)[:n], len(kept_NL)
    if evened and task.all_kinds:
        return _drawn_evenly(task, length, n, generator), None
    kept_NL = torch.empty(0, length, dtype=torch.long)
    while len(kept_NL) < n:  # more than 2 n are there to be found
        parts, found = [kept_NL], len(kept_NL)
        while found < n:
            drawn_NL = task.fill(torch.full((min(rows, 64 * n),), length), length, generator)
            parts.append(_held_out_rows(task, drawn_NL))
            found += len(parts[-1])
        kept_NL = torch.cat(parts).unique(dim=0)
    return kept_NL[torch.randperm(len(kept_NL), generator=generator)[:n]], None


def _drawn_evenly(task: Task, length: int, n: int, generator: torch.Generator) -> Tensor:
    """Up to `n` distinct held-out sequences, as many of each kind, out of draws; fewer where a kind hardly has any more."""
    rows = min(max(1, CHUNK // length), max(4096, 64 * n))
    kept_NL = chosen_NL = torch.empty(0, length, dtype=torch.long)
    while True:
        drawn_NL = task.fill(torch.full((rows,), length), length, generator)
        kept_NL = torch.cat((kept_NL, _held_out_rows(task, drawn_NL))).unique(dim=0)
        before = len(chosen_NL)
        chosen_NL = _one_of_each(task, kept_NL[torch.randperm(len(kept_NL), generator=generator)])
        if len(chosen_NL) >= n or len(chosen_NL) == before:
            return chosen_NL[:n]


def _one_of_each(task: Task, sequence_NL: Tensor) -> Tensor:
    """As many sequences of each kind as the rarest has, the kinds in turn; all of them where the task has no kinds."""
    kinds_N = task.kinds(sequence_NL)
    if kinds_N is None:
        return sequence_NL
    rank_N = torch.empty_like(kinds_N)
    counts = []
    for kind in task.all_kinds:
        of_kind_N = kinds_N == kind
        counts.append(int(of_kind_N.sum()))
        rank_N[of_kind_N] = torch.arange(counts[-1])
    order_N = rank_N.argsort(stable=True)
    return sequence_NL[order_N[: len(counts) * min(counts)]]


def _held_out_rows(task: Task, sequence_NL: Tensor) -> Tensor:
    """The held-out ones among sequences of full length."""
    return sequence_NL[
        is_held_out(task.marks(sequence_NL), torch.full((len(sequence_NL),), sequence_NL.shape[1]))
    ]
