"""The model under inspection, with the task that defines its vocabulary and its targets.

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
# A cache, because every view needs a held-out set and building one takes 0.15 s.
_held_out_sets: dict[tuple[type[Task], TaskConfig, int], HeldOut] = {}


class NotInspectable(ValueError):
    """An inspection that is not possible for this model or input; the message states what is."""


@dataclass(frozen=True)
class Question(Batch):
    """A sequence entered by the user, as a batch of one example (source 1S, target 1T).

    known   whether the target is known. If it is not, for example because the user's dataset has no
            pair with this source, the target holds the model's generated tokens, so that there is
            a decoder input
    """

    known: bool


@dataclass(frozen=True)
class Subject:
    """A model in evaluation mode, its training configuration, and its task."""

    config: RunConfig
    model: Family
    task: Task

    @classmethod
    def of(cls, config: RunConfig, family: Family) -> Subject:
        """Wrap a model; it is switched to evaluation mode, without dropout, and stays in it."""
        return cls(config, family.eval(), config.task.load())

    @property
    def family(self) -> EncoderDecoder:
        """Return the encoder-decoder from scratch, whose components can be ablated.

        Raises:
            NotInspectable: for another architecture, for which only attention weights are
                available.
        """
        if not isinstance(self.model, Transformer):
            title = FAMILIES[self.config.family].title
            raise NotInspectable(
                "this view needs the encoder-decoder transformer from scratch; for the "
                f"architecture {title!r}, open the attention view"
            )
        return cast(EncoderDecoder, self.model)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def read(self, text: str) -> Question:
        """Encode a sequence entered by the user, with its target.

        Raises:
            UnknownSymbol: for a symbol that is not in the task's vocabulary.
            NotInspectable: for an empty sequence, or one with more symbols than the model has
                positions.
        """
        vocabulary = self.task.vocabulary
        tokens = vocabulary.encode(text)
        if not tokens:
            raise NotInspectable(
                f"there is no symbol in {text[:20]!r}; type a sequence of "
                f"{vocabulary.describe()}, as in {self.task.question()}"
            )
        if problem := self.task.problem(tokens):
            raise NotInspectable(problem)
        longest = self.model.config.max_positions - 1
        if max(len(tokens), self.task.answer_length(len(tokens))) > longest:
            raise NotInspectable(
                f"the sequence has {len(tokens)} symbols; this model has positions for {longest}, "
                "so type at most as many"
            )
        source_BS = torch.tensor([[*tokens, EOS]], device=self.device)
        right = self.task.right(tokens)
        if right is None:
            written = self._solved(source_BS, self.longest_answer)
            answer = written[:-1]  # drops EOS, or the last token, so that EOS fits below
        else:
            answer = right
        target_BT = torch.tensor([[SOS, *answer, EOS]], device=self.device)
        return Question(
            source_BS, target_BT, torch.ones(1, device=self.device), known=right is not None
        )

    def held_out(self, n: int) -> HeldOut:
        """Return `n` held-out sequences of the training lengths, the same at every call."""
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
        """Return the maximum target length for training lengths, with EOS.

        It is at most `max_positions`.
        """
        return min(
            self.task.answer_length(self.config.task.max_length) + 1,
            self.model.config.max_positions,
        )

    def max_tokens(self, batch: Batch) -> int:
        """Return the maximum number of tokens to generate for a sequence.

        It is `longest_answer`, or the length of the target with EOS if that is longer.
        """
        return min(
            max(self.longest_answer, batch.labels_BT.shape[1]), self.model.config.max_positions
        )

    def written(self, batch: Batch) -> list[str]:
        """Generate the model's output for one sequence, with EOS if it generates one."""
        return self.names(self._solved(batch.source_BS, self.max_tokens(batch)))

    def _solved(self, source_BS: Tensor, max_tokens: int) -> list[int]:
        tokens = self.model.solve(source_BS, max_tokens)[0].tolist()
        return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens

    def names(self, tokens: list[int]) -> list[str]:
        """Return the name of each token: a symbol, or the name of a special token."""
        return [self.task.vocabulary.name(token) for token in tokens]


def open_subject(folder: Path) -> Subject:
    """Load the model of a checkpoint for inspection.

    Raises:
        CheckpointError: for a checkpoint that cannot be loaded.
    """
    manifest, family = load_model(folder)
    return Subject.of(manifest.config, family)
