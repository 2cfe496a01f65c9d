"""The split into training and held-out sequences: a hash holds out one in `held_out_one_in`.

The decision needs no list and no record of the sampled sequences. A sequence is on the same side in
every run, for every seed and on every device, so no model trains on the sequences that evaluate it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .hashing import sequence_hash
from .task import Batch, Task, make_batch

HELD_OUT_FRACTION = 1 / 16  # by default
# Any constant; scores of runs are comparable because all are evaluated on the same sequences.
EVALUATION_SEED = 20170612
MAX_SYMBOLS_PER_CHUNK = 1_000_000  # symbols that are generated together, to limit the memory


def is_held_out(sequence_BL: Tensor, lengths_B: Tensor, one_in: int = 16) -> Tensor:
    """Return True for held-out sequences (B booleans), one in `one_in`, a power of two.

    `sequence_BL` holds the ids that `Task.hash_ids` returns. Padding does not affect the result.
    """
    return (sequence_hash(sequence_BL, lengths_B) & (one_in - 1)) == 0


def sample_training_batch(
    task: Task, batch_size: int, min_length: int, max_length: int, generator: torch.Generator
) -> Batch:
    """Sample a new batch on the generator's device; held-out sequences get loss weight 0."""
    sequence_BL, lengths_B = task.sample(batch_size, min_length, max_length, generator)
    held_out_B = is_held_out(task.hash_ids(sequence_BL), lengths_B, task.held_out_one_in)
    loss_weight_B = (~held_out_B).float()
    return make_batch(task, sequence_BL, lengths_B, loss_weight_B)


@dataclass(frozen=True)
class HeldOutSet:
    """Distinct held-out sequences, distributed over the lengths.

    num_available  by length, the number of distinct held-out sequences; None if there are too many
                   to count (see `Task.max_enumerated`)
    """

    batch: Batch
    lengths_B: Tensor
    num_available: dict[int, int | None]

    def to(self, device: torch.device) -> HeldOutSet:
        return HeldOutSet(self.batch.to(device), self.lengths_B, self.num_available)


def build_held_out_set(task: Task, n: int, min_length: int, max_length: int) -> HeldOutSet:
    """Return `n` distinct held-out sequences, the same at every call.

    Each length gets an equal part. If a short length has too few, the longer ones get more.
    Fewer than `n` are returned only if fewer exist; a short length may have none.

    If a task has strata (`Task.strata`), every length has equally many sequences of each stratum.
    So a model that always predicts the same target scores at most 1 / (number of strata). A length
    that lacks a stratum has no sequences. If every length lacks one, the set is not stratified.
    """
    balanced = _build_set(task, n, min_length, max_length, stratified=True)
    return (
        balanced
        if len(balanced.lengths_B)
        else _build_set(task, n, min_length, max_length, stratified=False)
    )


def _build_set(
    task: Task, n: int, min_length: int, max_length: int, stratified: bool
) -> HeldOutSet:
    generator = torch.Generator().manual_seed(EVALUATION_SEED)
    parts, lengths, num_available = [], [], {}
    n_remaining = n
    for length in range(min_length, max_length + 1):
        n_of_length = -(-n_remaining // (max_length - length + 1))
        sequence_NL, num_available[length] = _distinct_held_out(
            task, length, n_of_length, generator, stratified
        )
        parts.append(torch.nn.functional.pad(sequence_NL, (0, max_length - length)))
        lengths.append(torch.full((len(sequence_NL),), length))
        n_remaining -= len(sequence_NL)
    lengths_B = torch.cat(lengths)
    return HeldOutSet(make_batch(task, torch.cat(parts), lengths_B), lengths_B, num_available)


def _distinct_held_out(
    task: Task, length: int, n: int, generator: torch.Generator, stratified: bool
) -> tuple[Tensor, int | None]:
    """Return up to `n` held-out sequences of a length in random order, and how many there are."""
    if task.num_sources(length) <= max(task.max_enumerated, 2 * n / HELD_OUT_FRACTION):
        held_out_NL = torch.cat([*list_sources(task, length, held_out=True)])
        held_out_NL = held_out_NL[torch.randperm(len(held_out_NL), generator=generator)]
        chosen_NL = _balance_strata(task, held_out_NL) if stratified else held_out_NL
        return chosen_NL[:n], len(held_out_NL)
    if stratified and task.all_strata:
        return _sample_stratified(task, length, n, generator), None
    chunk_size = min(max(1, MAX_SYMBOLS_PER_CHUNK // length), 64 * n)
    held_out_NL = torch.empty(0, length, dtype=torch.long)
    while len(held_out_NL) < n:  # there are more than 2 n, so the loop ends
        parts, n_sequences = [held_out_NL], len(held_out_NL)
        while n_sequences < n:
            lengths_N = torch.full((chunk_size,), length)
            sample_NL = task.sample_with_lengths(lengths_N, length, generator)
            parts.append(select_side(task, sample_NL, held_out=True))
            n_sequences += len(parts[-1])
        held_out_NL = torch.cat(parts).unique(dim=0)
    return held_out_NL[torch.randperm(len(held_out_NL), generator=generator)[:n]], None


def _sample_stratified(task: Task, length: int, n: int, generator: torch.Generator) -> Tensor:
    """Sample distinct held-out sequences, equally many of each stratum, at most `n`."""
    chunk_size = min(max(1, MAX_SYMBOLS_PER_CHUNK // length), max(4096, 64 * n))
    held_out_NL = chosen_NL = torch.empty(0, length, dtype=torch.long)
    while True:
        sample_NL = task.sample_with_lengths(torch.full((chunk_size,), length), length, generator)
        held_out_NL = torch.cat((held_out_NL, select_side(task, sample_NL, held_out=True))).unique(
            dim=0
        )
        before = len(chosen_NL)
        chosen_NL = _balance_strata(
            task, held_out_NL[torch.randperm(len(held_out_NL), generator=generator)]
        )
        if len(chosen_NL) >= n or len(chosen_NL) == before:
            return chosen_NL[:n]


def _balance_strata(task: Task, sequence_NL: Tensor) -> Tensor:
    """Return equally many sequences of each stratum, alternating; all of them without strata."""
    strata_N = task.strata(sequence_NL)
    if strata_N is None:
        return sequence_NL
    rarest = min(int((strata_N == stratum).sum()) for stratum in task.all_strata)
    return interleave_strata(task, sequence_NL)[: len(task.all_strata) * rarest]


def interleave_strata(
    task: Task, sequence_NL: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Order sequences so that the strata alternate as long as all last.

    The `generator` chooses the stratum that begins; without it, the order of the sequences does.
    """
    strata_N, n_strata = task.strata(sequence_NL), len(task.all_strata)
    if strata_N is None:
        return sequence_NL
    begin = torch.randperm(n_strata, generator=generator) if generator else [0] * n_strata
    rank_N = torch.empty_like(strata_N)
    for at, stratum in zip(begin, task.all_strata, strict=True):
        in_stratum_N = strata_N == stratum
        rank_N[in_stratum_N] = torch.arange(int(in_stratum_N.sum())) * n_strata + at
    return sequence_NL[rank_N.argsort(stable=True)]


def list_sources(task: Task, length: int, *, held_out: bool) -> Iterator[Tensor]:
    """Yield all held-out or all training sequences (NL) of a length in parts."""
    index_N = torch.arange(task.num_sources(length))
    for part_N in index_N.split(max(1, MAX_SYMBOLS_PER_CHUNK // length)):
        yield select_side(task, task.enumerate_sources(part_N, length), held_out=held_out)


def select_side(task: Task, sequence_NL: Tensor, *, held_out: bool) -> Tensor:
    """Return those of these sequences of full length that are held out, or the others."""
    lengths_N = torch.full((len(sequence_NL),), sequence_NL.shape[1])
    is_held_out_N = is_held_out(task.hash_ids(sequence_NL), lengths_N, task.held_out_one_in)
    return sequence_NL[is_held_out_N == held_out]
