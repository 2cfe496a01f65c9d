"""A task: sequences of symbols and the target of each.

Letters of shapes: in this package L is the number of symbols of the longest sequence, N counts
sequences, and W is L + 1. S and T include EOS; T includes SOS, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .specs import DEFAULT_SPEC, TASKS
from .vocabulary import EOS, FIRST_SYMBOL_ID, PAD, SOS, Vocabulary


class Task:
    """A rule that maps sequences to sequences.

    To add a task, write a subclass with a name and `target`, and add it to `TASKS` (specs.py).
    `target` processes a whole padded batch at once. An example is the rule "drop the first symbol":

        class Tail(Task):
            name, example = "tail", ("3 1 4", "1 4")

            def target(self, sequence_BL, lengths_B):
                return sequence_BL.roll(-1, dims=1), lengths_B - 1
    """

    name: str
    example: tuple[str, str]
    all_strata: tuple[int, ...] = ()  # every value of `strata`; empty if the task has no strata
    # Set by the configuration of a run; see `TaskConfig`.
    held_out_one_in = 16
    predict_eos = True
    max_enumerated = 200_000  # up to this many sources of a length are listed instead of sampled

    def __init__(self, n_symbols: int = 10) -> None:
        self.spec = TASKS.get(self.name, DEFAULT_SPEC)
        if self.name in TASKS:
            self.example = self.spec.example
        self.n_symbols = n_symbols
        self.vocabulary = Vocabulary(self.spec.alphabet(n_symbols))

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the target of each sequence and its length; padding may hold any token."""
        raise NotImplementedError

    def max_target_length(self, length: int) -> int:
        """Return the maximum target length for a source of `length` symbols.

        If a target is longer than its source, `max_positions` must be larger.
        """
        return self.spec.max_target_length(length)

    def alignment(self, length: int) -> list[int] | None:
        """Return the source position that determines each target position; None if not unique."""
        return None

    # The set of sources, and how they are sampled

    def check_lengths(self, min_length: int, max_length: int) -> None:
        """Raise DatasetError if no sources of these lengths exist, as in a dataset."""

    def sample(
        self, n: int, min_length: int, max_length: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Sample `n` sources with equally probable lengths, padded, on the generator's device."""
        shortest = max(min_length, self.spec.min_length)
        lengths_B = torch.randint(
            shortest, max_length + 1, (n,), generator=generator, device=generator.device
        )
        return self.sample_with_lengths(lengths_B, max_length, generator), lengths_B

    def sample_with_lengths(
        self, lengths_B: Tensor, width: int, generator: torch.Generator
    ) -> Tensor:
        """Sample a source of each length, padded to `width`; here symbols are uniform."""
        shape, ends = (len(lengths_B), width), (FIRST_SYMBOL_ID, FIRST_SYMBOL_ID + self.n_symbols)
        return torch.randint(*ends, shape, generator=generator, device=generator.device)

    def num_sources(self, length: int) -> int:
        """Return the number of distinct sources of this length."""
        if length < self.spec.min_length:
            return 0
        return self.spec.num_sources(self.n_symbols, length)

    def enumerate_sources(self, index_N: Tensor, length: int) -> Tensor:
        """Return the sources (NL) of this length with these indices, below `num_sources`."""
        symbol_NL = index_N[:, None] // self.n_symbols ** torch.arange(length) % self.n_symbols
        return symbol_NL + FIRST_SYMBOL_ID

    def hash_ids(self, sequence_BL: Tensor) -> Tensor:
        """Return a number for each symbol (BL, int64), which the hash of the split uses."""
        return sequence_BL

    def strata(self, sequence_NL: Tensor) -> Tensor | None:
        """Return the stratum of each source of full length, one of `all_strata`, or None.

        The evaluation uses equally many sources of each stratum, although some may be rare.
        """
        return None

    # Single sources, as a user types them

    def example_source(self) -> str:
        """Return a short valid source: the task's example, if the vocabulary has its symbols."""
        example = getattr(self, "example", ("", ""))[0]
        is_known = example and set(example.split()) <= set(self.vocabulary.symbols)
        return example if is_known else self.vocabulary.example()

    def validate_source(self, tokens: list[int]) -> str:
        """Return why these symbols are not a source of this task; empty if they are one."""
        return ""

    def validate_length(self, n: int, max_tokens: int) -> str:
        """Return why `max_tokens` are too few for `n` symbols and their target; empty if enough."""
        needed = self.max_target_length(n)
        if max(n, needed) <= max_tokens:
            return ""
        accepted = next(
            each for each in range(max_tokens, -1, -1) if self.max_target_length(each) <= max_tokens
        )
        target = f", its target up to {needed}" if needed > n else ""
        return (
            f"the sequence has {n} tokens{target}; this model has positions for {max_tokens}, so "
            f"type at most {accepted}"
        )

    def target_for(self, tokens: list[int]) -> list[int] | None:
        """Return the target of one source; None if it is unknown."""
        target_BL, lengths_B = self.target(torch.tensor([tokens]), torch.tensor([len(tokens)]))
        return target_BL[0, : int(lengths_B[0])].tolist()


@dataclass(frozen=True)
class Batch:
    """Examples for a model, padded with PAD.

    source_BS      the sequence and EOS
    target_BT      SOS, the target sequence and EOS, unless `Task.predict_eos` is False
    loss_weight_B  1.0 for training examples, 0.0 for held-out ones
    """

    source_BS: Tensor
    target_BT: Tensor
    loss_weight_B: Tensor

    @property
    def decoder_input_BT(self) -> Tensor:
        """Return the target shifted right: the input of the decoder."""
        return self.target_BT[:, :-1]

    @property
    def labels_BT(self) -> Tensor:
        """Return the tokens that the decoder should predict."""
        return self.target_BT[:, 1:]

    def select(self, index: Tensor) -> Batch:
        """Select examples by a boolean mask or by indices."""
        return Batch(self.source_BS[index], self.target_BT[index], self.loss_weight_B[index])

    def to(self, device: torch.device) -> Batch:
        return Batch(
            self.source_BS.to(device), self.target_BT.to(device), self.loss_weight_B.to(device)
        )


def append_eos(sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
    """Append EOS to each sequence; the result is one token wider, padded with PAD."""
    column_W = torch.arange(sequence_BL.shape[1] + 1, device=sequence_BL.device)
    lengths_B1 = lengths_B[:, None]
    wider_BW = torch.nn.functional.pad(sequence_BL, (0, 1))
    ended_BW = torch.where(column_W == lengths_B1, EOS, wider_BW)
    return torch.where(column_W > lengths_B1, PAD, ended_BW)


def make_batch(
    task: Task, sequence_BL: Tensor, lengths_B: Tensor, loss_weight_B: Tensor | None = None
) -> Batch:
    """Build a batch of sequences and their targets, whose widths depend only on L."""
    target_BL, target_lengths_B = task.target(sequence_BL, lengths_B)
    ended_BT = append_eos(target_BL, target_lengths_B)
    if not task.predict_eos:
        ended_BT = ended_BT.masked_fill(ended_BT == EOS, PAD)
    target_BT = torch.nn.functional.pad(ended_BT, (1, 0), value=SOS)
    if loss_weight_B is None:
        loss_weight_B = torch.ones(len(sequence_BL), device=sequence_BL.device)
    return Batch(append_eos(sequence_BL, lengths_B), target_BT, loss_weight_B)


def batch_of_targets(task: Task, source: list[int], targets: Sequence[Sequence[int]]) -> Batch:
    """Build a batch of one source with each of these targets, as wide as the longest."""
    end = [EOS] * task.predict_eos
    targets_BT = [torch.tensor([SOS, *target, *end]) for target in targets]
    return Batch(
        torch.tensor([[*source, EOS]]).expand(len(targets), -1),
        torch.nn.utils.rnn.pad_sequence(targets_BT, batch_first=True, padding_value=PAD),
        torch.ones(len(targets)),
    )


def output_rows(task: Task, tokens_BT: Tensor, labels_BT: Tensor) -> list[list[int]]:
    """Return outputs or targets as rows; where no EOS ends one, the end of its target does."""
    ends = (labels_BT != PAD).sum(1).tolist()
    rows = zip(tokens_BT.tolist(), ends, strict=True)
    return [row if task.predict_eos else row[:end] for row, end in rows]
