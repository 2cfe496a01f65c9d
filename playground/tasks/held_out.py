"""The split into training and held-out sequences: a hash holds out one in 16.

The decision needs no list and no record of the sampled sequences. A sequence is on the same side in
every run, for every seed and on every device, so no model trains on the sequences that evaluate it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .hashing import sequence_hash
from .task import Batch, Task, make_batch

HELD_OUT_SHARE = 1 / 16
# Any constant; scores of runs are comparable because all are evaluated on the same sequences.
EVALUATION_SEED = 20170612
CHUNK = 1_000_000  # maximum number of symbols generated together, to limit the memory


def is_held_out(sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
    """Return True for held-out sequences (B booleans).

    Only the symbols count, by their `Task.marks`, not the padding.
    """
    return (sequence_hash(sequence_BL, lengths_B) & 15) == 0


def training_batch(
    task: Task, batch_size: int, min_length: int, max_length: int, generator: torch.Generator
) -> Batch:
    """Sample a new batch on the generator's device; held-out sequences get loss weight 0."""
    sequence_BL, lengths_B = task.draw(batch_size, min_length, max_length, generator)
    weight_B = (~is_held_out(task.marks(sequence_BL), lengths_B)).float()
    return make_batch(task, sequence_BL, lengths_B, weight_B)


@dataclass(frozen=True)
class HeldOut:
    """Distinct held-out sequences, distributed over the lengths.

    available   by length, the number of distinct held-out sequences; None if there are too many to
                count (see `Task.enumerable`)
    """

    batch: Batch
    lengths_B: Tensor
    available: dict[int, int | None]

    def to(self, device: torch.device) -> HeldOut:
        return HeldOut(self.batch.to(device), self.lengths_B, self.available)


def held_out_set(task: Task, n: int, min_length: int, max_length: int) -> HeldOut:
    """Return `n` distinct held-out sequences, the same at every call.

    Each length gets an equal part. If a short length has too few, the longer ones get more.
    Fewer than `n` are returned only if fewer exist; a short length may have none.

    If a task has strata (`Task.kinds`), every length has equally many sequences of each stratum, so
    a constant target scores no more than the fraction of its stratum. A length with a single
    stratum has no sequences. If no length has two strata, the sequences are not stratified.
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
    """Return up to `n` distinct held-out sequences of one length, and how many there are.

    The order is random.
    """
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
    while len(kept_NL) < n:  # there are more than 2 n, so the loop ends
        parts, found = [kept_NL], len(kept_NL)
        while found < n:
            drawn_NL = task.fill(torch.full((min(rows, 64 * n),), length), length, generator)
            parts.append(_held_out_rows(task, drawn_NL))
            found += len(parts[-1])
        kept_NL = torch.cat(parts).unique(dim=0)
    return kept_NL[torch.randperm(len(kept_NL), generator=generator)[:n]], None


def _drawn_evenly(task: Task, length: int, n: int, generator: torch.Generator) -> Tensor:
    """Sample up to `n` distinct held-out sequences, equally many of each stratum.

    Fewer are returned if a stratum is so rare that sampling yields no more of it.
    """
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
    """Return equally many sequences of each stratum, in turn; all of them without strata."""
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
    """Return the held-out sequences among sequences of full length."""
    return sequence_NL[
        is_held_out(task.marks(sequence_NL), torch.full((len(sequence_NL),), sequence_NL.shape[1]))
    ]
