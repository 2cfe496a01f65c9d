"""A fixed training set: distinct sequences that a run repeats.

Letters of shapes: L symbols of the longest sequence, N sequences, B sequences of a batch.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from playground.models.config_fields import ConfigError

from .hashing import position_keys, sequence_hash
from .held_out import interleave_strata, list_sources, select_side
from .task import Batch, Task, make_batch


class TrainingSet:
    """Distinct training sequences, in a new random order in every epoch.

    Each length has an equal part, and within a length each stratum of the task. What has too few
    sequences is taken whole, and the others get more. The order depends on the seed and the epoch
    only, so a resumed run continues with the same batches.

    fingerprint  a number (int64, no dimension) that differs between different sets
    """

    def __init__(self, task: Task, n: int, min_length: int, max_length: int, seed: int) -> None:
        """Choose `n` training sequences. Raises ConfigError if fewer exist."""
        self.task, self.seed = task, seed
        generator = torch.Generator().manual_seed(seed)
        lengths = range(max(min_length, task.spec.min_length), max_length + 1)
        parts = _parts(task, n, lengths)
        sequences = (_choose(task, *part, n, generator) for part in parts.items())
        self.sequence_NL = torch.cat(
            [pad(each_NL, (0, max_length - each_NL.shape[1])) for each_NL in sequences]
        )
        self.lengths_N = torch.tensor(list(parts)).repeat_interleave(
            torch.tensor(list(parts.values()))
        )
        hash_N = sequence_hash(self.sequence_NL, self.lengths_N)
        self.fingerprint = (hash_N * position_keys(n, hash_N.device)).sum()
        self._epoch, self._order_N = -1, torch.empty(0)

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


def _parts(task: Task, n: int, lengths: range) -> dict[int, int]:
    """Return the number of sequences of each length, `n` in total, or raise ConfigError."""
    available = {
        length: sum(map(len, list_sources(task, length, held_out=False)))
        if _is_listed(task, length, n)
        else n
        for length in lengths
    }
    parts, n_remaining = dict.fromkeys(lengths, 0), n
    for i, length in enumerate(sorted(lengths, key=lambda each: available[each])):
        parts[length] = min(available[length], -(-n_remaining // (len(lengths) - i)))
        n_remaining -= parts[length]
    if n_remaining:
        raise ConfigError(
            "n_training_sources",
            f"n_training_sources is {n:,}, but of these lengths only {n - n_remaining:,} training "
            "sequences exist; use at most as many, or allow longer sequences",
        )
    return parts


def _choose(task: Task, length: int, part: int, n: int, generator: torch.Generator) -> Tensor:
    """Return `part` distinct training sequences (NL) of a length in random order."""
    if _is_listed(task, length, n):
        sequence_NL = torch.cat([*list_sources(task, length, held_out=False)])
    else:
        sequence_NL = torch.empty(0, length, dtype=torch.long)
        while len(sequence_NL) < part:  # at least 2 n exist, so the loop ends soon
            sample_NL, _ = task.sample(2 * part, length, length, generator)
            sequence_NL = torch.cat(
                [sequence_NL, select_side(task, sample_NL, held_out=False)]
            ).unique(dim=0)
    sequence_NL = sequence_NL[torch.randperm(len(sequence_NL), generator=generator)]
    return interleave_strata(task, sequence_NL, generator)[:part]


def _is_listed(task: Task, length: int, n: int) -> bool:
    """Return whether the sources of a length are so few that all are listed, not sampled."""
    training_fraction = 1 - 1 / task.held_out_one_in
    return task.num_sources(length) <= max(task.max_enumerated, 2 * n / training_fraction)
