"""A model to look into, together with the task that says what its symbols are and what would be right.

Shapes: B batch, S source, T target.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from playground.families import FAMILIES
from playground.families.encoder_decoder import EncoderDecoder
from playground.families.family import Family
from playground.models.transformer import Transformer
from playground.tasks import EOS, SOS
from playground.tasks.held_out import HeldOut, held_out_set
from playground.tasks.task import Batch, Task
from playground.training.checkpoint import load_model
from playground.training.config import RunConfig, TaskConfig

MAX_HELD_OUT_SETS = 8
_held_out_sets: dict[
    tuple[type[Task], TaskConfig, int], HeldOut
] = {}  # every view needs one, and it takes 0.15 s to make


class NotInspectable(ValueError):
    """A model or a sequence that cannot be looked into; the message says why and what can be."""


@dataclass(frozen=True)
class Question(Batch):
    """A visitor's sequence as a batch of one row (source 1S, target 1T).

    known    whether the target is the right answer. Where nobody knows that, as in a task of rows without this one, the model's own
             stands in its place, so that there is something to be given to a decoder
    """

    known: bool


@dataclass(frozen=True)
class Subject:
    """A family in evaluation mode, the settings it was trained with, and its task."""

    config: RunConfig
    model: Family
    task: Task

    @classmethod
    def of(cls, config: RunConfig, family: Family) -> Subject:
        """A family that is at hand; it is put into evaluation mode, without dropout, and stays there."""
        return cls(config, family.eval(), config.task.load())

    @property
    def family(self) -> EncoderDecoder:
        """The encoder-decoder from scratch, whose parts can be taken out one by one.

        Raises:
            NotInspectable: for another family; where it looks can be seen all the same.
        """
        if not isinstance(self.model, Transformer):
            title = FAMILIES[self.config.family].title
            raise NotInspectable(
                f"this view takes apart the transformer from scratch; of the family {title!r}, see the attention"
            )
        return cast(EncoderDecoder, self.model)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def read(self, text: str) -> Question:
        """A visitor's sequence with its right answer.

        Raises:
            UnknownSymbol: for what is no symbol of the task.
            NotInspectable: for no symbols at all, or more than the model has positions for.
        """
        vocabulary = self.task.vocabulary
        tokens = vocabulary.encode(text)
        if not tokens:
            raise NotInspectable(
                f"there is no symbol in {text[:20]!r}; type a sequence of {vocabulary.describe()}, as in {self.task.question()}"
            )
        if problem := self.task.problem(tokens):
            raise NotInspectable(problem)
        longest = self.model.config.max_positions - 1
        if max(len(tokens), self.task.answer_length(len(tokens))) > longest:
            raise NotInspectable(
                f"that is {len(tokens)} symbols; this model has positions for {longest}, so type at most as many"
            )
        source_BS = torch.tensor([[*tokens, EOS]], device=self.device)
        right = self.task.right(tokens)
        if right is None:
            written = self._solved(source_BS, self.longest_answer)
            answer = written[
                :-1
            ]  # without its EOS; where it wrote none, the last symbol makes room for one
        else:
            answer = right
        target_BT = torch.tensor([[SOS, *answer, EOS]], device=self.device)
        return Question(
            source_BS, target_BT, torch.ones(1, device=self.device), known=right is not None
        )

    def held_out(self, n: int) -> HeldOut:
        """`n` held-out sequences of the lengths that the model was trained on, the same at every call."""
        key = (type(self.task), self.config.task, n)
        found = _held_out_sets.get(key)
        if found is None:
            task = self.config.task
            found = _held_out_sets[key] = held_out_set(
                self.task, n, task.min_length, task.max_length
            )
            while len(_held_out_sets) > MAX_HELD_OUT_SETS:
                _held_out_sets.pop(next(iter(_held_out_sets)))
        return found.to(self.device)

    @property
    def longest_answer(self) -> int:
        """Tokens of the longest right answer to a sequence of training, EOS included, as far as there are positions."""
        return min(
            self.task.answer_length(self.config.task.max_length) + 1,
            self.model.config.max_positions,
        )

    def max_tokens(self, batch: Batch) -> int:
        """How many tokens the answer to a sequence may take: `longest_answer`, or its right one and EOS where that is longer."""
        return min(
            max(self.longest_answer, batch.labels_BT.shape[1]), self.model.config.max_positions
        )

    def written(self, batch: Batch) -> list[str]:
        """The model's own answer to one sequence, its EOS included where it comes to one."""
        return self.names(self._solved(batch.source_BS, self.max_tokens(batch)))

    def _solved(self, source_BS: Tensor, max_tokens: int) -> list[int]:
        tokens = self.model.solve(source_BS, max_tokens)[0].tolist()
        return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens

    def names(self, tokens: list[int]) -> list[str]:
        """Symbols, and the names of special tokens; one name for each token."""
        return [self.task.vocabulary.name(token) for token in tokens]


def open_subject(folder: Path) -> Subject:
    """The model of a checkpoint, ready to be looked into.

    Raises:
        CheckpointError: for a checkpoint that cannot be used.
    """
    manifest, family = load_model(folder)
    return Subject.of(manifest.config, family)
