"""Compute the live snapshot of a model: attention weights on a probe, and sample predictions.

It runs in the inspection process. The server process only forwards the numbers.
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
PROBE_LENGTH = 10  # long enough to show a diagonal, short enough to read every cell
LONGEST_PROBE = 48
MOST_WEIGHTS = 100_000  # attention weights in a snapshot, whatever the number of heads
KINDS = ("encoder", "decoder", "cross")


class View:
    """The fixed sequences of a live view: a probe for attention, and held-out samples."""

    def __init__(self, task: Task, config: RunConfig, device: torch.device) -> None:
        self.task, self.config, self.device = task, config.task, device
        low, high = config.task.min_length, config.task.max_length
        # An upper bound: some architectures have fewer kinds of attention.
        heads = len(KINDS) * config.model.n_layers * config.model.n_heads
        fits = max(3, min(LONGEST_PROBE, int((MOST_WEIGHTS / heads) ** 0.5) - 1))
        length = min(high, max(low, PROBE_LENGTH), fits)
        self._wanted = length

    @cached_property
    def probe(self) -> Batch:
        """One held-out sequence, for the attention weights."""
        return _held_out_near(self.task, self._wanted, self.config.max_length).to(self.device)

    @cached_property
    def samples(self) -> Batch:
        """Held-out sequences for the predictions, long ones if they exist."""
        low, high = self.config.min_length, self.config.max_length
        long = held_out_set(self.task, SAMPLES, max(low, high // 2), high)
        return (
            long if len(long.lengths_B) else held_out_set(self.task, SAMPLES, low, high)
        ).batch.to(self.device)

    def stage(self, family: Family) -> dict[str, Any]:
        """Return the part of the live view that does not change during training.

        It contains the size of the model, and the labels of rows and columns of each kind of
        attention. The rows of a decoder are labelled with the target tokens.
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
        """Return an example input in the model's symbols, no longer than its training inputs."""
        question = self.task.question()
        if len(self.task.vocabulary.encode(question)) <= self.config.max_length:
            return question
        return " ".join(self.task.vocabulary.decode(self.probe.source_BS[0].tolist()))

    def snapshot(self, family: Family, step: int) -> dict[str, Any]:
        """Return the attention weights on the probe and the predictions for the samples.

        The weights are in thousandths, `[kind][layer][head]`, each matrix row by row.
        """
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
        """Return the model's prediction for a sequence, and the target.

        The result has only `error` if the sequence is invalid for this model.
        """
        longest = family.config.max_positions - 1
        try:
            tokens = self.task.vocabulary.encode(text)
            if not tokens:
                raise ValueError(
                    f"type a sequence of {self.task.vocabulary.describe()}, "
                    f"as in {self.task.question()}"
                )
            if problem := self.task.problem(tokens):
                raise ValueError(problem)
            if len(tokens) > longest:
                raise ValueError(
                    f"the sequence has {len(tokens)} symbols; this model has positions for "
                    f"{longest}; type a shorter sequence"
                )
            if self.task.answer_length(len(tokens)) > longest:
                needed = self.task.answer_length(len(tokens))
                raise ValueError(
                    f"the target of {len(tokens)} symbols may have {needed}; this model has "
                    f"positions for {longest}; type a shorter sequence"
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
            notes.append("the target is unknown: no stored example has this source")
        return {
            "given": given,
            "answer": answer,
            "right": None if answer is None else given == answer,
            "note": "; ".join(notes),
        }


def _held_out_near(task: Task, length: int, longest: int) -> Batch:
    """Return a held-out sequence of this length, else of a longer one, else of a shorter one.

    With few symbols, short lengths have no held-out sequences.

    Raises:
        ValueError: if there is none of any length.
    """
    for candidate in (*range(length, longest + 1), *range(length - 1, 0, -1)):
        found = held_out_set(task, 1, candidate, candidate)
        if len(found.lengths_B):
            return found.batch
    raise ValueError(
        f"no held-out sequence of up to {longest} symbols exists; "
        "use longer sequences or more symbols"
    )
