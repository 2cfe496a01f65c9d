"""A fixed training set: distinct sequences that a run repeats.

Letters of shapes: L symbols of the longest sequence, N sequences, B sequences of a batch.
"""

import torch
from torch import Tensor

from .held_out import is_held_out
from .task import Batch, Task, make_batch

MAX_ROUNDS = 100  # rounds of sampling, which end earlier unless few sequences exist


class TrainingSet:
    """Distinct training sequences, in a new random order in every epoch.

    The order depends on the seed and the epoch only, so a resumed run continues with the same
    batches.
    """

    def __init__(self, task: Task, n: int, min_length: int, max_length: int, seed: int) -> None:
        """Choose `n` training sequences, or all of them if there are fewer."""
        self.task, self.seed = task, seed
        generator = torch.Generator().manual_seed(seed)
        lengths = range(max(min_length, task.spec.min_length), max_length + 1)
        if sum(map(task.num_sources, lengths)) <= task.max_enumerated:
            sequence_NL, lengths_N = _enumerate(task, lengths)
        else:
            sequence_NL, lengths_N = _sample(task, n, lengths, generator)
        order_N = torch.randperm(len(lengths_N), generator=generator)[:n]
        self.sequence_NL, self.lengths_N = sequence_NL[order_N], lengths_N[order_N]
        self._epoch, self._order_N = -1, order_N

    def __len__(self) -> int:
        return len(self.lengths_N)

    def batch(self, index: int, batch_size: int) -> Batch:
        """Return batch `index` of the run; a batch can contain the end of one epoch and the next.

        With a batch size of at least `len(self)`, every batch is the whole set.
        """
        if batch_size >= len(self):
            return make_batch(self.task, self.sequence_NL, self.lengths_N)
        start, rows, parts = index * batch_size, batch_size, []
        while rows:
            epoch, offset = divmod(start, len(self))
            parts.append(self._order(epoch)[offset : offset + rows])
            start, rows = start + len(parts[-1]), rows - len(parts[-1])
        row_B = torch.cat(parts)
        return make_batch(self.task, self.sequence_NL[row_B], self.lengths_N[row_B])

    def _order(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed((self.seed << 32) + epoch + 1)
            self._epoch, self._order_N = epoch, torch.randperm(len(self), generator=generator)
        return self._order_N


def _enumerate(task: Task, lengths: range) -> tuple[Tensor, Tensor]:
    """Return all training sequences (NL) of these lengths, and their lengths (N)."""
    parts, width = [], lengths[-1]
    for length in lengths:
        sequence_NL = task.enumerate_sources(torch.arange(task.num_sources(length)), length)
        parts.append(torch.nn.functional.pad(sequence_NL, (0, width - length)))
    lengths_N = torch.cat([torch.full((len(p),), n) for p, n in zip(parts, lengths, strict=True)])
    return _training_only(task, torch.cat(parts), lengths_N)


def _sample(
    task: Task, n: int, lengths: range, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Sample at least `n` distinct training sequences (NL) with their lengths, if so many exist."""
    distinct_NL = torch.empty(0, lengths[-1] + 1, dtype=torch.long)
    for _ in range(MAX_ROUNDS):
        sample_NL, lengths_N = task.sample(2 * n, lengths[0], lengths[-1], generator)
        column_L = torch.arange(sample_NL.shape[1])
        sample_NL = sample_NL.masked_fill(column_L >= lengths_N[:, None], 0)
        sample_NL, lengths_N = _training_only(task, sample_NL, lengths_N)
        with_length_NL = torch.cat([sample_NL, lengths_N[:, None]], dim=1)
        distinct_NL = torch.cat([distinct_NL, with_length_NL]).unique(dim=0)
        if len(distinct_NL) >= n:
            break
    return distinct_NL[:, :-1], distinct_NL[:, -1]


def _training_only(task: Task, sequence_NL: Tensor, lengths_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sequences that are not held out, with their lengths."""
    is_training_N = ~is_held_out(task.hash_ids(sequence_NL), lengths_N, task.held_out_one_in)
    return sequence_NL[is_training_N], lengths_N[is_training_N]
