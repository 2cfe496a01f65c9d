"""What a page draws of a model at one moment: where its heads look on a probe, and what it answers. Plain numbers, measured.

Runs in worker processes; the page's process only passes it on.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch

from playground.families.family import Family
from playground.tasks import EOS, UnknownSymbol
from playground.tasks.held_out import held_out_set
from playground.tasks.task import Batch, Task
from playground.training.config import RunConfig

SAMPLES = 8
PROBE_LENGTH = 10  # long enough to see a diagonal, short enough to read every cell
LONGEST_PROBE = 48
MOST_WEIGHTS = (
    100_000  # numbers in a snapshot, so that many heads on a long probe do not drown the page
)
KINDS = ("encoder", "decoder", "cross")


class View:
    """Looks at one family on fixed sequences: a probe for the attention, held-out samples for the answers."""

    def __init__(self, task: Task, config: RunConfig, device: torch.device) -> None:
        self.task, self.config, self.device = task, config.task, device
        low, high = config.task.min_length, config.task.max_length
        heads = (
            len(KINDS) * config.model.n_layers * config.model.n_heads
        )  # at most; families may have fewer
        fits = max(3, min(LONGEST_PROBE, int((MOST_WEIGHTS / heads) ** 0.5) - 1))
        length = min(high, max(low, PROBE_LENGTH), fits)
        self._wanted = length

    @cached_property
    def probe(self) -> Batch:
        return _held_out_near(self.task, self._wanted, self.config.max_length).to(self.device)

    @cached_property
    def samples(self) -> Batch:
        low, high = self.config.min_length, self.config.max_length
        long = held_out_set(self.task, SAMPLES, max(low, high // 2), high)
        return (
            long if len(long.lengths_B) else held_out_set(self.task, SAMPLES, low, high)
        ).batch.to(self.device)

    def stage(self, family: Family) -> dict[str, Any]:
        """What does not change while a model learns: its size, and for each kind of attention that it has the names along the
        rows and along the columns. Where a decoder's positions look, rows are labelled with the right symbol at that place.
        """
        names = self.task.vocabulary.name
        given_BT = self.probe.decoder_input_BT
        axes = {}
        for kind, (rows, columns) in family.axes(self.probe).items():
            shown = self.probe.labels_BT if torch.equal(rows, given_BT) else rows
            axes[kind] = [[names(t) for t in tokens[0].tolist()] for tokens in (shown, columns)]
        return {
            "source": [names(t) for t in self.probe.source_BS[0].tolist()],
            "axes": axes,
            "accepts": self.task.vocabulary.describe(),
            "question": self.question(),
            "parameters": family.config.parameter_count(),
        }

    def question(self) -> str:
        """A source that this model may be asked, in its own symbols and no longer than those that it learned from."""
        question = self.task.question()
        if len(self.task.vocabulary.encode(question)) <= self.config.max_length:
            return question
        return " ".join(self.task.vocabulary.decode(self.probe.source_BS[0].tolist()))

    def snapshot(self, family: Family, step: int) -> dict[str, Any]:
        """Attention on the probe in thousandths, `[kind][layer][head]` row by row, and the model's answers to the samples."""
        record = family.record(self.probe)
        layers = {
            "encoder": record.encoder_attention,
            "decoder": record.decoder_attention,
            "cross": record.cross_attention,
        }
        present = {kind: each for kind, each in layers.items() if each}
        attention = {
            kind: [(1000 * w_BHQM[0]).round().int().flatten(1).tolist() for w_BHQM in each]
            for kind, each in present.items()
        }
        given_BT = family.solve(self.samples.source_BS, self.samples.labels_BT.shape[1])
        names = self.task.vocabulary.decode
        samples = [
            {"source": names(source), "answer": names(answer), "given": names(given)}
            for source, answer, given in zip(
                self.samples.source_BS.tolist(),
                self.samples.labels_BT.tolist(),
                given_BT.tolist(),
                strict=True,
            )
        ]
        return {"step": step, "attention": attention, "samples": samples}

    def answer(self, family: Family, text: str) -> dict[str, Any]:
        """The model's answer to a visitor's sequence, beside the right one; `error` instead when it cannot be asked."""
        longest = family.config.max_positions - 1
        try:
            tokens = self.task.vocabulary.encode(text)
            if not tokens:
                raise ValueError(
                    f"type a sequence of {self.task.vocabulary.describe()}, as in {self.task.question()}"
                )
            if problem := self.task.problem(tokens):
                raise ValueError(problem)
            if len(tokens) > longest:
                raise ValueError(
                    f"that is {len(tokens)} symbols; this model has positions for {longest}"
                )
            if self.task.answer_length(len(tokens)) > longest:
                needed = self.task.answer_length(len(tokens))
                raise ValueError(
                    f"the answer to {len(tokens)} symbols may have {needed}; this model has positions for {longest}"
                )
        except (UnknownSymbol, ValueError) as error:
            return {"error": str(error)}
        source_BS = torch.tensor([[*tokens, EOS]], device=self.device)
        right = self.task.right(tokens)
        longest_answer = max(len(right or ()), self.task.answer_length(self.config.max_length)) + 1
        names = self.task.vocabulary.decode
        given = names(
            family.solve(source_BS, min(longest_answer, family.config.max_positions))[0].tolist()
        )
        answer = None if right is None else names(right)
        low, high = self.config.min_length, self.config.max_length
        notes = (
            []
            if low <= len(tokens) <= high
            else [f"trained on length {f'{low} to {high}' if low < high else high} only"]
        )
        if answer is None:
            notes.append(
                "whether this is right is not known: no row that is kept here has this source"
            )
        return {
            "given": given,
            "answer": answer,
            "right": None if answer is None else given == answer,
            "note": "; ".join(notes),
        }


def _held_out_near(task: Task, length: int, longest: int) -> Batch:
    """A held-out sequence of this length, else of a longer one, else of a shorter one (few symbols leave short lengths without)."""
    for candidate in (*range(length, longest + 1), *range(length - 1, 0, -1)):
        found = held_out_set(task, 1, candidate, candidate)
        if len(found.lengths_B):
            return found.batch
    raise ValueError(
        f"no held-out sequence of up to {longest} symbols exists; use longer sequences or more symbols"
    )
