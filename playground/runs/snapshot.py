"""Compute the live snapshot of a model: attention weights on a probe, and sample predictions."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.architectures.seq2seq_model import Seq2SeqModel, TeacherForcedModel, eval_mode
from playground.common import messages
from playground.errors import UserError
from playground.inspection.contributions import SUBLAYERS, record_contributions
from playground.tasks import EOS, PAD
from playground.tasks.held_out import build_held_out_set
from playground.tasks.task import Batch, Task, batch_of_targets, output_rows
from playground.training.run_config import RunConfig

from .browser_model import runs_in_browser

SAMPLE_COUNT = 8
# Of a probe that is not the default input: long enough to show a diagonal, short enough to read.
PROBE_LENGTH = 10
MAX_PROBE_LENGTH = 48
MAX_WEIGHTS = 100_000  # attention weights in a snapshot, over all heads together
ATTENTION_KINDS = ("encoder", "decoder", "cross")
UNKNOWN_TARGET = "the target is unknown: no stored example has this source"


class SnapshotBuilder:
    """The fixed sequences of a live view: a probe for attention, and held-out samples."""

    def __init__(self, config: RunConfig) -> None:
        self.task, self.config = config.task.load(), config.task
        self.architecture = config.architecture
        self.runs_in_browser = runs_in_browser(config)
        low, high = config.task.min_length, config.task.max_length
        # An upper bound: some architectures have fewer kinds of attention.
        model = config.model
        self._max_heads = len(ATTENTION_KINDS) * model.n_layers * model.attention_heads
        fits = max(3, min(MAX_PROBE_LENGTH, int((MAX_WEIGHTS / self._max_heads) ** 0.5) - 1))
        self._length = min(high, max(low, PROBE_LENGTH), fits)

    @cached_property
    def probe_batch(self) -> Batch:
        """The default input with its target, for the attention weights during training."""
        tokens = self.task.vocabulary.encode(self.task.example_source())
        target = self.task.target_for(tokens)
        is_usual = self.config.min_length <= len(tokens) <= self.config.max_length
        batch = batch_of_targets(self.task, tokens, [target]) if is_usual and target else None
        if batch is None or not self._is_displayable(batch):
            batch = _pick_held_out(self.task, self._length, self.config.max_length)
        return batch

    @cached_property
    def sample_batch(self) -> Batch:
        """Held-out sequences for the predictions, long ones if they exist."""
        low, high = self.config.min_length, self.config.max_length
        long = build_held_out_set(self.task, SAMPLE_COUNT, max(low, high // 2), high)
        return (
            long if len(long.lengths_B) else build_held_out_set(self.task, SAMPLE_COUNT, low, high)
        ).batch

    def _is_displayable(self, batch: Batch) -> bool:
        """Return whether a sequence has no more attention weights than a snapshot may have."""
        width = max(batch.source_BS.shape[1], batch.labels_BT.shape[1])
        return self._max_heads * width**2 <= MAX_WEIGHTS

    def describe(self, model: Seq2SeqModel) -> dict[str, Any]:
        """Return the part of the live view that does not change during training."""
        names = self.task.vocabulary.token_name
        return {
            "source": [names(t) for t in self.probe_batch.source_BS[0].tolist()],
            "axes": self._axes(model, self.probe_batch),
            "accepts": self.task.vocabulary.describe(),
            "default_input": self.default_input,
            "parameters": parameter_count(model.config),
            "architecture": ARCHITECTURES[self.architecture].title,
            "n_layers": model.config.n_layers,
            "in_browser": self.runs_in_browser,
            "component_parameters": {
                name: sum(parameter.numel() for parameter in module.parameters())
                for name, module in model.named_modules()
                if name.rpartition(".")[2] in SUBLAYERS
            },
        }

    def _axes(self, model: Seq2SeqModel, batch: Batch) -> dict[str, list[list[str]]]:
        """Return the labels of rows and columns of each kind of attention on a sequence.

        The rows of a decoder are labeled with the target tokens.
        """
        names = self.task.vocabulary.token_name
        axes = {}
        for kind, (rows, columns) in model.attention_tokens(batch).items():
            displayed = batch.labels_BT if kind == "cross" else rows
            axes[kind] = [[names(t) for t in tokens[0].tolist()] for tokens in (displayed, columns)]
        return axes

    @property
    def default_input(self) -> str:
        """The source of the probe, as a user would type it."""
        return " ".join(self.task.vocabulary.decode(self.probe_batch.source_BS[0].tolist()))

    def snapshot(self, model: Seq2SeqModel, step: int) -> dict[str, Any]:
        """Return the attention weights on the probe and the predictions for the samples.

        The weights are in thousandths, `[kind][layer][head]`, each matrix row by row. `probe` has
        the target tokens of the probe, and for each the predicted token with its probability.
        `contributions` has the mean contribution of each sublayer to the residual stream.
        """
        generated_BT = model.generate(
            self.sample_batch.source_BS, self.sample_batch.labels_BT.shape[1]
        )
        names = self.task.vocabulary.decode
        targets, outputs = (
            output_rows(self.task, tokens_BT, self.sample_batch.labels_BT)
            for tokens_BT in (self.sample_batch.labels_BT, generated_BT)
        )
        samples = [
            {"source": names(source), "target": names(target), "prediction": names(output)}
            for source, target, output in zip(
                self.sample_batch.source_BS.tolist(), targets, outputs, strict=True
            )
        ]
        return {"step": step, "samples": samples} | self._forward_pass(model, self.probe_batch)

    def _forward_pass(self, model: Seq2SeqModel, batch: Batch) -> dict[str, Any]:
        """Return what the diagram of the model draws of a teacher-forced pass over one sequence."""
        with record_contributions(model) as contributions:
            record = model.attention_weights(batch)
        attention = {
            kind: [(1000 * w_BHQM[0]).round().int().flatten(1).tolist() for w_BHQM in layers]
            for kind in ATTENTION_KINDS
            if (layers := getattr(record, kind))
        }
        return {
            "attention": attention,
            "probe": self._predict_tokens(model, batch),
            "contributions": {name: round(value, 3) for name, value in contributions.items()},
        }

    @torch.no_grad()
    def _predict_tokens(self, model: Seq2SeqModel, batch: Batch) -> dict[str, Any] | None:
        """Predict each target token of a sequence from the source and the tokens before it.

        Probabilities are in thousandths. The result is None for a model without such logits.
        """
        if not isinstance(model, TeacherForcedModel):
            return None
        with eval_mode(model):
            probabilities_TV = model.logits(batch)[0].softmax(-1)
        best_T = probabilities_TV.max(-1)
        names = self.task.vocabulary.token_name
        return {
            "target": [names(token) for token in batch.labels_BT[0].tolist()],
            "predicted": [names(token) for token in best_T.indices.tolist()],
            "probability": (1000 * best_T.values).round().int().tolist(),
        }

    def predict(self, model: Seq2SeqModel, text: str, hides_target: bool = False) -> dict[str, Any]:
        """Return the model's prediction for a sequence, and the target.

        A target of a dataset may be hidden: otherwise, viewers could look up every pair.
        `forward_pass` is what the diagram draws: None for an unknown target, and for a sequence
        with more attention weights than a snapshot may have. Raises UserError if it is invalid.
        """
        max_tokens = model.config.max_positions - 1
        tokens = self.task.vocabulary.encode(text)
        if not tokens:
            raise UserError(
                f"type a sequence of {self.task.vocabulary.describe()}, "
                f"as in {self.task.example_source()}"
            )
        if problem := self.task.validate_source(tokens):
            raise UserError(problem)
        if problem := self.task.validate_length(len(tokens), max_tokens):
            raise UserError(problem)
        source_BS = torch.tensor([[*tokens, EOS]])
        target = None if hides_target else self.task.target_for(tokens)
        n_output = max(len(target or ()), self.task.max_target_length(self.config.max_length)) + 1
        if not self.task.predict_eos:  # the output has the length of the target
            n_output = len(target or ())
        names = self.task.vocabulary.decode
        output_BT = model.generate(source_BS, min(n_output, model.config.max_positions))
        predicted = names(output_BT[0].tolist())
        answer = None if target is None else names(target)
        forward_pass = None if target is None else self._typed_pass(model, source_BS, target)
        low, high = self.config.min_length, self.config.max_length
        notes = [messages.length_note(len(tokens), low, high)]
        if answer is None:
            notes.append(messages.HIDDEN_TARGET if hides_target else UNKNOWN_TARGET)
        if forward_pass is None:
            reason = "" if answer is None else ", because this sequence is too long for it"
            notes.append("the diagram shows an example" + reason)
        return {
            "prediction": predicted,
            "target": answer,
            "correct": None if answer is None else predicted == answer,
            "note": "; ".join(filter(None, notes)),
            "forward_pass": forward_pass,
        }

    def _typed_pass(
        self, model: Seq2SeqModel, source_BS: torch.Tensor, target: list[int]
    ) -> dict[str, Any] | None:
        """Return the forward pass over a typed sequence with its axes, unless it is too long."""
        batch = batch_of_targets(self.task, source_BS[0].tolist()[:-1], [target])
        width = max(source_BS.shape[1], batch.labels_BT.shape[1])
        if not self._is_displayable(batch) or width > model.config.max_positions:
            return None
        source = self.task.vocabulary.decode(source_BS[0].tolist())
        return {"source": source, "axes": self._axes(model, batch)} | self._forward_pass(
            model, batch
        )


def _pick_held_out(task: Task, length: int, max_length: int) -> Batch:
    """Return a held-out sequence of this length without padding, else of the next best length.

    With few symbols, short lengths have no held-out sequences.
    """
    for candidate in (*range(length, max_length + 1), *range(length - 1, 0, -1)):
        batch = build_held_out_set(task, 1, candidate, candidate).batch
        if len(batch.target_BT):
            n_tokens = int((batch.target_BT[0] != PAD).sum())
            return replace(batch, target_BT=batch.target_BT[:, :n_tokens])
    raise ValueError(
        f"no held-out sequence of up to {max_length} tokens exists; "
        "use longer sequences or more symbols"
    )
