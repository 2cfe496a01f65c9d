"""The model under inspection, with the task that defines its vocabulary and its targets.

Shapes: B batch, S source, T target.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from playground.architectures import ARCHITECTURES
from playground.architectures.encoder_decoder import TransformerModel, copy_weights
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.checkpoints.checkpoint import load_model
from playground.errors import UserError
from playground.models.config import TransformerConfig
from playground.models.torch_transformer import TorchTransformer
from playground.models.transformer import Transformer
from playground.tasks import EOS, UnknownSymbolError
from playground.tasks.held_out import HeldOutSet, build_held_out_set
from playground.tasks.task import Batch, Task, batch_of_targets
from playground.training.run_config import RunConfig
from playground.training.task_config import TaskConfig

from .attention_recording import AttentionRecording, record_free_running
from .hooks import Activations, run_with_cache

MAX_HELD_OUT_SETS = 8
# A cache, because every view needs a held-out set and building one takes 0.15 s.
_held_out_sets: dict[tuple[type[Task], TaskConfig, int], HeldOutSet] = {}


class InspectionError(UserError):
    """An inspection that is not possible for this model or input; the message states what is."""


class NotApplicableError(InspectionError):
    """A view that does not exist for the architecture of the model."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="not-applicable")


@dataclass(frozen=True, eq=False)
class Example(Batch):
    """A sequence entered by the user, as a batch of one example (source 1S, target 1T).

    subject     the model, whose output and activations are computed once for all views
    has_target  whether the target is known. If it is not, for example because the user's dataset
                has no pair with this source, the target holds the model's generated tokens, so that
                there is a decoder input
    """

    subject: InspectedModel = field(repr=False)
    has_target: bool

    @cached_property
    def output(self) -> list[int]:
        """Return the tokens that the model generates, with EOS if it generates one."""
        return self.subject.generate(self.source_BS, self.subject.max_new_tokens(self))

    @cached_property
    def activations(self) -> Activations:
        """Return the calls of all modules of `subject.transformer` in a teacher-forced pass."""
        return run_with_cache(self.subject.transformer, self)[1]

    @cached_property
    def free_running(self) -> tuple[AttentionRecording, Tensor]:
        """Return the attention weights of greedy decoding, and the generated tokens (1T)."""
        max_tokens = self.subject.max_new_tokens(self)
        return record_free_running(self.subject.transformer, self.source_BS, max_tokens)


@dataclass(frozen=True, eq=False)
class InspectedModel:
    """A model in evaluation mode, its training configuration, and its task."""

    config: RunConfig
    model: Seq2SeqModel
    task: Task
    hides_targets: bool = False  # as if the dataset had no pair with the user's source

    @classmethod
    def from_model(
        cls, config: RunConfig, model: Seq2SeqModel, hides_targets: bool = False
    ) -> InspectedModel:
        """Wrap a model; it is switched to evaluation mode, without dropout, and stays in it."""
        return cls(config, model.eval(), config.task.load(), hides_targets)

    @cached_property
    def transformer(self) -> TransformerModel:
        """Return the encoder-decoder from scratch, whose components can be ablated.

        For a model from PyTorch's layers it is the transformer from scratch with the same weights,
        which computes the same outputs (`is_equivalent`). Raises NotApplicableError for any other.
        """
        if isinstance(self.model, TorchTransformer):
            with torch.device("meta"):  # copy_weights sets every weight
                equivalent = TransformerModel(TransformerConfig(**asdict(self.model.config)))
            copy_weights(self.model, equivalent.to_empty(device=self.device))
            return equivalent.eval()
        if not isinstance(self.model, Transformer):
            title = ARCHITECTURES[self.config.architecture].title
            raise NotApplicableError(
                "this view needs the encoder-decoder transformer from scratch; this model has the "
                f"architecture {title!r}"
            )
        return cast(TransformerModel, self.model)

    @property
    def is_equivalent(self) -> bool:
        """Return whether `transformer` is another model with the same weights."""
        return isinstance(self.model, TorchTransformer)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def encode_text(self, text: str) -> Example:
        """Encode a sequence entered by the user, with its target.

        Raises UnknownSymbolError for an unknown symbol, InspectionError for an invalid sequence.
        """
        vocabulary = self.task.vocabulary
        try:
            tokens = vocabulary.encode(text)
        except UnknownSymbolError as unknown:
            unknown.field = "text"
            raise
        if not tokens:
            raise InspectionError(
                f"there is no token in {text[:20]!r}; type a sequence of "
                f"{vocabulary.describe()}, as in {self.task.example_source()}",
                field="text",
            )
        if error := self.task.validate_source(tokens):
            raise InspectionError(error, field="text")
        if error := self.task.validate_length(len(tokens), self.model.config.max_positions - 1):
            raise InspectionError(error, field="text")
        target = None if self.hides_targets else self.task.target_for(tokens)
        if target is None:
            source_BS = torch.tensor([[*tokens, EOS]], device=self.device)
            generated = self.generate(source_BS, self.max_target_tokens)
            answer = generated[:-1]  # drops EOS, or the last token, so that EOS fits below
        else:
            answer = target
        batch = batch_of_targets(self.task, tokens, [answer]).to(self.device)
        return Example(**vars(batch), subject=self, has_target=target is not None)

    def held_out(self, n: int) -> HeldOutSet:
        """Return `n` held-out sequences of the training lengths, the same at every call."""
        key = (type(self.task), self.config.task, n)
        cached = _held_out_sets.get(key)
        if cached is None:
            task = self.config.task
            cached = _held_out_sets[key] = build_held_out_set(
                self.task, n, task.min_length, task.max_length
            )
            while len(_held_out_sets) > MAX_HELD_OUT_SETS:
                _held_out_sets.pop(next(iter(_held_out_sets)))
        return cached.to(self.device)

    @property
    def max_target_tokens(self) -> int:
        """Return the maximum target length for training lengths, with EOS, within the positions."""
        return min(
            self.task.max_target_length(self.config.task.max_length) + 1,
            self.model.config.max_positions,
        )

    def max_new_tokens(self, batch: Batch) -> int:
        """Return the maximum number of tokens to generate for a sequence.

        It is `max_target_tokens`, or the length of the target with EOS if that is longer. If no EOS
        ends an output, it has the length of the target.
        """
        n_labels = batch.labels_BT.shape[1]
        if not self.task.predict_eos:
            return n_labels
        return min(max(self.max_target_tokens, n_labels), self.model.config.max_positions)

    def generate(self, source_BS: Tensor, max_tokens: int) -> list[int]:
        """Generate the tokens of one output, up to its EOS."""
        tokens = self.model.generate(source_BS, max_tokens)[0].tolist()
        return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens

    def token_names(self, tokens: list[int]) -> list[str]:
        """Return the name of each token: a symbol, or the name of a special token."""
        return [self.task.vocabulary.token_name(token) for token in tokens]


def load_inspected_model(folder: Path) -> InspectedModel:
    """Load the model of a checkpoint for inspection. Raises CheckpointError."""
    manifest, model = load_model(folder)
    return InspectedModel.from_model(manifest.config, model)
