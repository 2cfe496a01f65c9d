"""The requests of views, which are untrusted input, and the fields that several views share."""

import math
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from playground.common import messages
from playground.inspection.attention_recording import AttentionRecording
from playground.inspection.hooks import Component
from playground.inspection.inspected_model import Example, InspectedModel
from playground.models.recurrent import Recurrent
from playground.models.transformer import Transformer
from playground.tasks.task import Batch

MAX_ROWS, MAX_COLUMNS = 80, 128  # of a displayed tensor
MAX_TEXT_LENGTH = 2000  # characters

Name = Annotated[str, Field(max_length=100)]
LayerOrHead = Annotated[int, Field(ge=0, le=63)]
Index = Annotated[int, Field(ge=0, le=1_000_000)]
# The views of an encoder-decoder transformer; other architectures have some of the rest.
TRANSFORMER_VIEWS = (
    "attention",
    "heads",
    "ablation",
    "patch",
    "contributions",
    "trace",
    "lens",
    "embeddings",
    "parameters",
)
SAME_WEIGHTS = (
    "this model has PyTorch's layers; the view computes with the transformer from scratch and the "
    "same weights"
)


class ViewRequest(BaseModel):
    """The options of a view; unknown ones are ignored, because pages of other versions send them.

    Layers, heads and positions count from 0.
    """

    model_config = ConfigDict(strict=True, frozen=True)


class SequenceRequest(ViewRequest):
    """A request about a sequence that the user entered."""

    text: Annotated[
        str,
        Field(
            max_length=MAX_TEXT_LENGTH,
            json_schema_extra={"accepts": messages.sequence_accepts(MAX_TEXT_LENGTH)},
        ),
    ]

    def example(self, subject: InspectedModel) -> Example:
        """Return the sequence with its target; the views of a sequence share its activations."""
        return _encode_text(subject, self.text)


@lru_cache(maxsize=1)
def _encode_text(subject: InspectedModel, text: str) -> Example:
    return subject.encode_text(text)


def json_number(number: float | None, digits: int = 6) -> float | None:
    """Round a number for JSON; None if it is None, infinite or NaN, which JSON does not have."""
    if number is None or not math.isfinite(number):
        return None
    return float(f"{number:.{digits}g}")


def json_array(values: Tensor, digits: int = 6) -> Any:
    """Convert a tensor to nested lists of such numbers."""
    if values.dim() > 1:
        return [json_array(row, digits) for row in values]
    return [json_number(value, digits) for value in values.tolist()]


def answer_fields(
    example: Example, output: list[str] | None = None, of_own_layers: bool = False
) -> dict[str, Any]:
    """Return the fields that every view has: output, target, a note, and the views that exist.

    The default `output` is the greedy one. The target is None if it is unknown. `of_own_layers`:
    the view reads the layers of the model itself, not those of `subject.transformer`.
    """
    subject = example.subject
    length_note = messages.length_note(example.source_BS.shape[1] - 1, *length_range(subject))
    notes = [length_note] if length_note else []
    if not example.has_target:
        unknown = "the target is unknown: the dataset has no pair with this source"
        notes.append(messages.HIDDEN_TARGET if subject.hides_targets else unknown)
    if subject.is_equivalent and not of_own_layers:
        notes.append(SAME_WEIGHTS)
    return {
        "prediction": subject.token_names(example.output) if output is None else output,
        "target": subject.token_names(example.labels_BT[0].tolist())
        if example.has_target
        else None,
        "note": "; ".join(notes),
        "views": list_views(subject, example),
    }


def list_views(subject: InspectedModel, batch: Batch) -> list[str]:
    """Return the views that exist for the architecture of the model."""
    if subject.is_equivalent or isinstance(subject.model, Transformer):
        return [*TRANSFORMER_VIEWS]
    views = ["attention"] if subject.model.attention_tokens(batch) else []
    if isinstance(subject.model, Recurrent):
        views.append("gates")
    return [*views, "parameters"]


def attention_labels(
    subject: InspectedModel, recording: AttentionRecording, kind: str, output_names: list[str]
) -> tuple[list[str], list[str]]:
    """Return the names of the queries and of the keys of one kind of attention.

    `output_names` are the tokens that the queries of cross-attention predict: the generated ones or
    the targets. The queries of decoder self-attention are the decoder input.
    """
    source = subject.token_names(recording.source_BS[0].tolist())
    if kind == "cross":
        return output_names, source
    if kind == "encoder":
        return source, source
    decoder_input = subject.token_names(recording.decoder_input_BT[0].tolist())
    return decoder_input, decoder_input


def head_id(head: Component) -> dict[str, Any]:
    """Return the fields that identify a head; layers and heads count from 1, as in its name."""
    return {
        "name": head.name,
        "kind": head.kind,
        "layer": (head.layer or 0) + 1,
        "head": (head.head or 0) + 1,
    }


def length_range(subject: InspectedModel) -> list[int]:
    """Return the minimum and maximum length of the held-out sequences."""
    return [subject.config.task.min_length, subject.config.task.max_length]
