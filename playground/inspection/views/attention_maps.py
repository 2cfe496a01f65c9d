"""Attention views: all heads on one sequence.

Shapes: L layers, H heads, Q queries, M keys.
"""

import base64
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from playground.inspection.attention_recording import AttentionRecording, recording_of
from playground.inspection.hooks import ATTENTION_KINDS, AttentionKind
from playground.inspection.inspected_model import (
    Example,
    InspectedModel,
    InspectionError,
    NotApplicableError,
)
from playground.models.transformer import Transformer
from playground.tasks import SOS
from playground.tasks.task import Batch

from .fields import SequenceRequest, answer_fields, attention_labels

WEIGHT_SCALE = 1000


class AttentionRequest(SequenceRequest):
    """One type of attention, and the decoder input.

    teacher-forced  the decoder input is the target, shifted right, as in training
    free-running    it is the greedy output
    """

    kind: AttentionKind = "cross"
    mode: Literal["free-running", "teacher-forced"] = "free-running"

    def record(self, example: Example) -> tuple[AttentionRecording, list[int]]:
        """Record a pass; return it, and the token of each output position."""
        model = example.subject.transformer
        if self.mode == "teacher-forced":
            labels_BT = _require_target(example).labels_BT
            return recording_of(model, example.activations), labels_BT[0].tolist()
        recording, generated_BT = example.free_running
        return recording, generated_BT[0].tolist()

    def output(self, names: list[str]) -> list[str] | None:
        """Return the model's output, given the names of the output positions; None: the default."""
        return None if self.mode == "teacher-forced" else names


def attention(subject: InspectedModel, request: AttentionRequest) -> dict[str, Any]:
    """Return the weights of every head of one type of attention.

    `weights` is LHQM in thousandths, as little-endian 16-bit integers in base64, because many heads
    on a long sequence can have a million weights.
    """
    example = request.example(subject)
    if not isinstance(subject.model, Transformer):
        return _attention_of_any_model(example, request)
    recording, tokens = request.record(example)
    names = subject.token_names(tokens)
    rows, columns = attention_labels(subject, recording, request.kind, names)
    weights_LHQM = recording.attention_weights[request.kind][:, 0]
    return {
        "kind": request.kind,
        "kinds": list(ATTENTION_KINDS),
        **_map_fields(rows, columns, weights_LHQM, recording.attn_mask[request.kind][0]),
        "architecture": subject.config.architecture,
        **answer_fields(example, request.output(names)),
    }


def _map_fields(
    rows: list[str], columns: list[str], weights_LHQM: Tensor, attn_mask_QM: Tensor
) -> dict[str, Any]:
    return {
        "layers": weights_LHQM.shape[0],
        "heads": weights_LHQM.shape[1],
        "rows": rows,
        "columns": columns,
        "weights": pack_uint16(weights_LHQM),
        "possible": attn_mask_QM.int().tolist(),
    }


def _attention_of_any_model(example: Example, request: AttentionRequest) -> dict[str, Any]:
    """Return `attention` for an architecture that records only its attention weights.

    The weights are those of one pass over the model's output or over the target.
    """
    subject = example.subject
    batch: Batch = example
    if request.mode == "free-running":
        target_BT = torch.tensor([[SOS, *example.output]], device=subject.device)
        batch = Batch(example.source_BS, target_BT, example.loss_weight_B)
    else:
        _require_target(example)
    record, axes = subject.model.attention_weights(batch), subject.model.attention_tokens(batch)
    layers: dict[str, list[Tensor]] = {each: getattr(record, each) for each in ATTENTION_KINDS}
    kinds = [each for each in ("cross", "encoder", "decoder") if layers[each]]
    if not kinds:
        raise NotApplicableError(
            "this model has no attention; it passes the input on as one vector. Its gates and "
            "states are under Every number"
        )
    kind = request.kind if request.kind in kinds else kinds[0]
    weights_LHQM = torch.stack([weights_BHQM[0] for weights_BHQM in layers[kind]])
    rows, columns = (subject.token_names(tokens[0].tolist()) for tokens in axes[kind])
    attn_mask_QM = torch.ones(len(rows), len(columns), dtype=torch.bool)
    if kind == "cross":
        rows = subject.token_names(batch.labels_BT[0].tolist())
    if kind == "decoder":
        attn_mask_QM = attn_mask_QM.tril()
    return {
        "kind": kind,
        "kinds": kinds,
        **_map_fields(rows, columns, weights_LHQM, attn_mask_QM),
        "architecture": subject.config.architecture,
        **answer_fields(example, of_own_layers=True),
    }


def output(subject: InspectedModel, request: SequenceRequest) -> dict[str, Any]:
    """Return the output for a sequence, its tokens, and the symbols of the task."""
    _ = subject.transformer  # raises for an architecture that lacks the views beside it
    example = request.example(subject)
    return {
        "source": subject.token_names(example.source_BS[0].tolist()),
        "vocabulary": list(subject.task.vocabulary.symbols),
        **answer_fields(example),
    }


def _require_target(batch: Example) -> Example:
    """Return the batch. Raises InspectionError if its target is unknown."""
    if not batch.has_target:
        raise InspectionError(
            "the target is unknown: the dataset has no pair with this source; choose free-running"
        )
    return batch


def pack_uint16(weights: Tensor) -> str:
    """Encode weights from 0 to 1 as thousandths, two bytes each, in base64."""
    return base64.b64encode(
        (WEIGHT_SCALE * weights).round().to(torch.int16).numpy().astype("<i2").tobytes()
    ).decode()


def unpack_uint16(packed: str, *shape: int) -> Tensor:
    """Decode the weights of `pack_uint16`."""
    thousandths = np.frombuffer(base64.b64decode(packed), "<i2").astype(np.float32)
    return torch.from_numpy(thousandths / WEIGHT_SCALE).reshape(shape)
