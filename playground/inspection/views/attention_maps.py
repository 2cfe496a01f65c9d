"""Attention views: all heads on one sequence, and decoding step by step.

Shapes: L layers, H heads, Q queries, M keys.
"""

import base64
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from playground.generation import sampling_probabilities
from playground.inspection.attention_recording import (
    AttentionRecording,
    record_free_running,
    recording_of,
)
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

from .request import SequenceRequest
from .shared_fields import answer_fields, attention_labels

MAX_TEMPERATURE = 5.0
WEIGHT_SCALE = 1000
TOP_K = 5  # likely next tokens of a step


class DecodingRequest(SequenceRequest):
    """How the output tokens are chosen; a temperature and a seed are for samples only.

    teacher-forced  the decoder input is the target, shifted right, as in training
    free-running    it is the greedy output
    sampled         it is an output that is sampled from softmax(logits / temperature)
    """

    mode: Literal["free-running", "teacher-forced", "sampled"] = "free-running"
    temperature: Annotated[
        float,
        Field(
            gt=0,
            le=MAX_TEMPERATURE,
            json_schema_extra={"accepts": f"a number above 0 and at most {MAX_TEMPERATURE:g}"},
        ),
    ] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    def record(self, example: Example) -> tuple[AttentionRecording, list[int]]:
        """Record a pass; return it, and the token of each output position."""
        model = example.subject.transformer
        if self.mode == "teacher-forced":
            labels_BT = _require_target(example).labels_BT
            return recording_of(model, example.activations), labels_BT[0].tolist()
        if self.mode == "free-running":
            recording, generated_BT = example.free_running
        else:
            recording, generated_BT = record_free_running(
                model,
                example.source_BS,
                example.subject.max_new_tokens(example),
                temperature=self.temperature,
                seed=self.seed,
            )
        return recording, generated_BT[0].tolist()

    def output(self, names: list[str]) -> list[str] | None:
        """Return the model's output, given the names of the output positions; None: the default."""
        return None if self.mode == "teacher-forced" else names


class AttentionRequest(DecodingRequest):
    """One type of attention."""

    kind: AttentionKind = "cross"


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
    if request.mode == "sampled":
        raise InspectionError(
            "only the encoder-decoder transformer from scratch supports sampling here; choose "
            "free-running or teacher-forced"
        )
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


def steps(subject: InspectedModel, request: DecodingRequest) -> dict[str, Any]:
    """Return the decoding steps, up to EOS or the maximum length.

    Each has the prefix, the most likely next tokens with their probabilities, the token at this
    position with its probability and the target, and the weights of every head over the prefix and
    over the source, layer by layer, in thousandths. The probabilities of samples are those that
    they are sampled from.
    """
    example, name = request.example(subject), subject.task.vocabulary.token_name
    recording, tokens = request.record(example)
    temperature = request.temperature if request.mode == "sampled" else 1.0
    probabilities_TV = sampling_probabilities(recording.logits_BTV[0], temperature)
    best = probabilities_TV.topk(min(TOP_K, probabilities_TV.shape[1]))
    prefix = subject.token_names(recording.decoder_input_BT[0].tolist())
    names, targets = (subject.token_names(each) for each in (tokens, example.labels_BT[0].tolist()))
    cross_HTS = recording.attention_weights["cross"][:, 0].flatten(0, 1)
    decoder_HTM = recording.attention_weights["decoder"][:, 0].flatten(0, 1)
    step_fields = [
        {
            "prefix": prefix[: t + 1],
            "candidates": [
                [name(each), round(probability, 6)]
                for each, probability in zip(
                    best.indices[t].tolist(), best.values[t].tolist(), strict=True
                )
            ],
            "token": names[t],
            "probability": round(float(probabilities_TV[t, token]), 6),
            "target": targets[t] if example.has_target and t < len(targets) else None,
            "cross": _quantize(cross_HTS[:, t]),
            "decoder": _quantize(decoder_HTM[:, t, : t + 1]),
        }
        for t, token in enumerate(tokens)
    ]
    config = subject.transformer.config
    return {
        "source": subject.token_names(example.source_BS[0].tolist()),
        "heads": [
            f"{layer + 1}.{head + 1}"
            for layer in range(config.n_layers)
            for head in range(config.n_heads)
        ],
        "steps": step_fields,
        **answer_fields(example, request.output(names)),
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


def _quantize(weights: Tensor) -> list[list[int]]:
    return (WEIGHT_SCALE * weights).round().int().tolist()
