"""Attention views: all heads on one sequence, and decoding step by step.

Shapes: L layers, H heads, Q queries, M keys.
"""

import base64
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from playground.inspection.attention_recording import (
    AttentionRecording,
    record_free_running,
    record_teacher_forced,
)
from playground.inspection.generation_steps import (
    GenerationStep,
    free_running_steps,
    teacher_forced_steps,
)
from playground.inspection.hooks import ATTENTION_KINDS
from playground.inspection.inspected_model import (
    Example,
    InspectedModel,
    InspectionError,
    NotApplicableError,
)
from playground.models.transformer import Transformer
from playground.tasks import EOS, SOS
from playground.tasks.task import Batch

from .common import answer_fields, attention_labels
from .request import choice_field, source_text

DECODING_MODES = {
    "free-running": "free-running, greedy",
    "teacher-forced": "teacher-forced",
    "sampled": "free-running, sampled",
}
MAX_TEMPERATURE = 5.0  # maximum temperature
WEIGHT_SCALE = 1000


def attention(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the weights of every head of one type of attention.

    `weights` is LHQM in thousandths, as little-endian 16-bit integers in base64, because many heads
    on a long sequence can have a million weights.
    """
    kind = choice_field(request, "kind", ATTENTION_KINDS, "cross")
    mode = choice_field(request, "mode", tuple(DECODING_MODES), "free-running")
    if not isinstance(subject.model, Transformer):
        return _attention_of_any_model(subject, request, kind, mode)
    batch = subject.encode_text(source_text(request))
    recording, output_names, prediction = _record_answer(subject, batch, request, mode)
    rows, columns = attention_labels(subject, recording, kind, output_names)
    weights_LHQM = recording.attention_weights[kind][:, 0]
    return {
        "kind": kind,
        "kinds": list(ATTENTION_KINDS),
        **_map_fields(rows, columns, weights_LHQM, recording.attn_mask[kind][0]),
        "architecture": subject.config.architecture,
        **answer_fields(subject, batch, prediction),
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


def _attention_of_any_model(
    subject: InspectedModel, request: dict[str, Any], kind: str, mode: str
) -> dict[str, Any]:
    """Return `attention` for an architecture that records only its attention weights.

    The weights are those of one pass over the model's output or over the target.
    """
    if mode == "sampled":
        raise InspectionError(
            "only the encoder-decoder transformer from scratch supports sampling here; choose "
            "free-running or teacher-forced"
        )
    example = subject.encode_text(source_text(request))
    generated_BT = subject.model.generate(example.source_BS, subject.max_new_tokens(example))
    n = min(int((generated_BT[0] == EOS).cumsum(0).eq(0).sum()) + 1, generated_BT.shape[1])
    own = Batch(
        example.source_BS, F.pad(generated_BT[:, :n], (1, 0), value=SOS), example.loss_weight_B
    )
    batch = own if mode == "free-running" else _require_target(example)
    record, axes = subject.model.attention_weights(batch), subject.model.attention_tokens(batch)
    layers = {each: getattr(record, each) for each in ATTENTION_KINDS}
    kinds = [each for each in ("cross", "encoder", "decoder") if layers[each]]
    if not kinds:
        raise NotApplicableError(
            "this model has no attention; it passes the input on as one vector. Its gates and "
            "states are under Forward pass"
        )
    kind = kind if kind in kinds else kinds[0]
    weights_LHQM = torch.stack([weights_BHQM[0] for weights_BHQM in layers[kind]])
    rows, columns = (subject.token_names(tokens[0].tolist()) for tokens in axes[kind])
    attn_mask_QM = torch.ones(len(rows), len(columns), dtype=torch.bool)
    if kind == "cross":
        rows = subject.token_names(batch.labels_BT[0].tolist())
    if kind == "decoder":
        attn_mask_QM = attn_mask_QM.tril()
    generated = subject.token_names(generated_BT[0, :n].tolist())
    return {
        "kind": kind,
        "kinds": kinds,
        **_map_fields(rows, columns, weights_LHQM, attn_mask_QM),
        "architecture": subject.config.architecture,
        **answer_fields(subject, example, generated, of_own_layers=True),
    }


def steps(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the decoding steps.

    Each has the prefix, the most likely next tokens, and the weights of every head (LHM).
    """
    mode = choice_field(request, "mode", tuple(DECODING_MODES), "free-running")
    batch = subject.encode_text(source_text(request))
    generation_steps: list[GenerationStep]
    if mode == "teacher-forced":
        generation_steps = teacher_forced_steps(subject.transformer, _require_target(batch))
    else:
        generation_steps = free_running_steps(
            subject.transformer,
            batch,
            subject.max_new_tokens(batch),
            **_sampling_options(request, mode),
        )
    name = subject.task.vocabulary.token_name
    step_fields: list[dict[str, Any]] = [
        {
            "prefix": subject.token_names(step.prefix),
            "candidates": [
                [name(token), round(probability, 6)] for token, probability in step.top_tokens
            ],
            "token": name(step.token),
            "probability": round(step.probability, 6),
            "target": name(step.target) if batch.has_target and step.target is not None else None,
            "cross": _quantize(step.cross_LHS.flatten(0, 1)),
            "decoder": _quantize(step.decoder_LHM.flatten(0, 1)),
        }
        for step in generation_steps
    ]
    config = subject.transformer.config
    heads = [
        f"{layer + 1}.{head + 1}"
        for layer in range(config.n_layers)
        for head in range(config.n_heads)
    ]
    prediction = (
        subject.generated_tokens(batch)
        if mode == "teacher-forced"
        else [step["token"] for step in step_fields]
    )
    return {
        "source": subject.token_names(batch.source_BS[0].tolist()),
        "heads": heads,
        "steps": step_fields,
        **answer_fields(subject, batch, prediction),
    }


def _record_answer(
    subject: InspectedModel, batch: Example, request: dict[str, Any], mode: str
) -> tuple[AttentionRecording, list[str], list[str]]:
    """Record a pass.

    Returns the recording, the token names of the output positions, and those of the model's output.
    Both are the same unless the pass is teacher-forced.
    """
    if mode == "teacher-forced":
        return (
            record_teacher_forced(subject.transformer, _require_target(batch)),
            subject.token_names(batch.labels_BT[0].tolist()),
            subject.generated_tokens(batch),
        )
    recording, generated_BT = record_free_running(
        subject.transformer,
        batch.source_BS,
        subject.max_new_tokens(batch),
        **_sampling_options(request, mode),
    )
    generated = subject.token_names(generated_BT[0].tolist())
    return recording, generated, generated


def _require_target(batch: Example) -> Example:
    """Return the batch.

    Raises:
        InspectionError: if its target is unknown.
    """
    if not batch.has_target:
        raise InspectionError(
            "the target is unknown: the dataset has no pair with this source; choose free-running"
        )
    return batch


def _sampling_options(request: dict[str, Any], mode: str) -> dict[str, Any]:
    if mode != "sampled":
        return {}
    temperature, seed = request.get("temperature", 1.0), request.get("seed", 0)
    if (
        isinstance(temperature, bool)
        or not isinstance(temperature, int | float)
        or not 0 < temperature <= MAX_TEMPERATURE
    ):
        raise InspectionError(
            f"temperature is {str(temperature)[:20]}; it must be a number above 0 and at most "
            f"{MAX_TEMPERATURE:g}"
        )
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise InspectionError(f"seed is {str(seed)[:20]}; it must be a whole number, at least 0")
    return {"temperature": float(temperature), "seed": seed}


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


VIEWS = {"attention": attention, "steps": steps}
