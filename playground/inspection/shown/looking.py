"""Attention views: all heads on one sequence, and decoding step by step.

Shapes: L layers, H heads, Q queries, M memory.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.inspection.components import ATTENTION
from playground.inspection.recording import Recording, record_forced, record_free
from playground.inspection.steps import Step, forced_steps, free_steps
from playground.inspection.subject import NotInspectable, Question, Subject
from playground.models.transformer import Transformer
from playground.tasks import EOS, SOS
from playground.tasks.task import Batch

WAYS = {
    "own": "free-running, greedy",
    "right": "teacher-forced",
    "drawn": "free-running, sampled",
}
HOTTEST = 5.0  # maximum temperature
THOUSANDTHS = 1000


def attention(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the weights of every head of one type of attention.

    `weights` is LHQM in thousandths, as little-endian 16-bit integers in base64, because many heads
    on a long sequence can have a million weights.
    """
    kind, way = (
        _one_of(request, "kind", ATTENTION, "cross"),
        _one_of(request, "way", tuple(WAYS), "own"),
    )
    if not isinstance(subject.model, Transformer):
        return _of_any_family(subject, request, kind, way)
    batch = subject.read(_text(request))
    recording, at, written = _recorded(subject, batch, request, way)
    source, given = (
        subject.names(recording.source_BS[0].tolist()),
        subject.names(recording.given_BT[0].tolist()),
    )
    rows, columns = {"encoder": (source, source), "decoder": (at, given), "cross": (at, source)}[
        kind
    ]
    weights_LHQM = recording.attention[kind][:, 0]
    return {
        "kind": kind,
        "kinds": list(ATTENTION),
        "layers": weights_LHQM.shape[0],
        "heads": weights_LHQM.shape[1],
        "rows": rows,
        "columns": columns,
        "weights": packed(weights_LHQM),
        "possible": recording.possible[kind][0].int().tolist(),
        "family": subject.config.family,
        **said(subject, batch, written),
    }


def _of_any_family(
    subject: Subject, request: dict[str, Any], kind: str, way: str
) -> dict[str, Any]:
    """Return `attention` for an architecture that records only its attention weights.

    The weights are those of one pass over the model's output or over the target.
    """
    if way == "drawn":
        raise NotInspectable(
            "only the encoder-decoder transformer from scratch supports sampling here; choose "
            "free-running or teacher-forced"
        )
    question = subject.read(_text(request))
    written_BT = subject.model.solve(question.source_BS, subject.max_tokens(question))
    n = min(int((written_BT[0] == EOS).cumsum(0).eq(0).sum()) + 1, written_BT.shape[1])
    own = Batch(question.source_BS, F.pad(written_BT[:, :n], (1, 0), value=SOS), question.weight_B)
    batch = own if way == "own" else _known(question)
    record, axes = subject.model.record(batch), subject.model.axes(batch)
    layers = {each: getattr(record, f"{each}_attention") for each in ATTENTION}
    kinds = [each for each in ("cross", "encoder", "decoder") if layers[each]]
    if not kinds:
        raise NotInspectable(
            "this architecture has no attention; it passes the input on as one vector"
        )
    kind = kind if kind in kinds else kinds[0]
    weights_LHQM = torch.stack([weights_BHQM[0] for weights_BHQM in layers[kind]])
    rows, columns = (subject.names(tokens[0].tolist()) for tokens in axes[kind])
    may_look_QM = torch.ones(len(rows), len(columns), dtype=torch.int)
    return {
        "kind": kind,
        "kinds": kinds,
        "layers": weights_LHQM.shape[0],
        "heads": weights_LHQM.shape[1],
        "rows": subject.names(batch.labels_BT[0].tolist())
        if torch.equal(axes[kind][0], batch.decoder_input_BT)
        else rows,
        "columns": columns,
        "weights": packed(weights_LHQM),
        "possible": (may_look_QM.tril() if kind == "decoder" else may_look_QM).tolist(),
        "family": subject.config.family,
        **said(subject, question, subject.names(written_BT[0, :n].tolist())),
    }


def steps(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the decoding steps.

    Each has the prefix, the most likely next tokens, and the weights of every head (LHM).
    """
    way, batch = _one_of(request, "way", tuple(WAYS), "own"), subject.read(_text(request))
    found: list[Step]
    if way == "right":
        found = forced_steps(subject.family, _known(batch))
    else:
        found = free_steps(
            subject.family, batch, subject.max_tokens(batch), **_chance(request, way)
        )
    name = subject.task.vocabulary.name
    told: list[dict[str, Any]] = [
        {
            "given": subject.names(step.given),
            "candidates": [
                [name(token), round(probability, 6)] for token, probability in step.candidates
            ],
            "chosen": name(step.chosen),
            "probability": round(step.probability, 6),
            "right": name(step.right) if batch.known and step.right is not None else None,
            "cross": _thousandths(step.cross_LHS.flatten(0, 1)),
            "decoder": _thousandths(step.decoder_LHM.flatten(0, 1)),
        }
        for step in found
    ]
    config = subject.family.config
    heads = [
        f"{layer + 1}.{head + 1}"
        for layer in range(config.n_layers)
        for head in range(config.n_heads)
    ]
    written = subject.written(batch) if way == "right" else [step["chosen"] for step in told]
    return {
        "source": subject.names(batch.source_BS[0].tolist()),
        "heads": heads,
        "steps": told,
        **said(subject, batch, written),
    }


def _recorded(
    subject: Subject, batch: Question, request: dict[str, Any], way: str
) -> tuple[Recording, list[str], list[str]]:
    """Record a pass.

    Returns the recording, the token names of the output positions, and those of the model's output.
    Both are the same unless the pass is teacher-forced.
    """
    if way == "right":
        return (
            record_forced(subject.family, _known(batch)),
            subject.names(batch.labels_BT[0].tolist()),
            subject.written(batch),
        )
    recording, written_BT = record_free(
        subject.family, batch.source_BS, subject.max_tokens(batch), **_chance(request, way)
    )
    written = subject.names(written_BT[0].tolist())
    return recording, written, written


def _known(batch: Question) -> Question:
    """Return the batch.

    Raises:
        NotInspectable: if its target is unknown.
    """
    if not batch.known:
        raise NotInspectable(
            "the target is unknown: the dataset has no pair with this source; choose free-running"
        )
    return batch


def said(subject: Subject, batch: Question, written: list[str]) -> dict[str, Any]:
    """Return the fields that every view has: the model's output, the target, and a note.

    The target is None if it is unknown.
    """
    low, high = subject.config.task.min_length, subject.config.task.max_length
    n = batch.source_BS.shape[1] - 1
    notes = (
        []
        if low <= n <= high
        else [
            f"the sequence has {n} symbols; the model was trained on "
            f"{low if low == high else f'{low} to {high}'} only"
        ]
    )
    if not batch.known:
        notes.append("the target is unknown: the dataset has no pair with this source")
    return {
        "written": written,
        "answer": subject.names(batch.labels_BT[0].tolist()) if batch.known else None,
        "note": "; ".join(notes),
    }


def _chance(request: dict[str, Any], way: str) -> dict[str, Any]:
    if way != "drawn":
        return {}
    temperature, seed = request.get("temperature", 1.0), request.get("seed", 0)
    if (
        isinstance(temperature, bool)
        or not isinstance(temperature, int | float)
        or not 0 < temperature <= HOTTEST
    ):
        raise NotInspectable(
            f"temperature is {str(temperature)[:20]}; it must be a number above 0 and at most "
            f"{HOTTEST:g}"
        )
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise NotInspectable(f"seed is {str(seed)[:20]}; it must be a whole number, at least 0")
    return {"temperature": float(temperature), "seed": seed}


def _text(request: dict[str, Any]) -> str:
    text = request.get("text")
    if not isinstance(text, str) or len(text) > 2000:
        raise NotInspectable("type a sequence of at most 2,000 characters")
    return text


def _one_of(request: dict[str, Any], name: str, choices: tuple[str, ...], usual: str) -> str:
    value = request.get(name, usual)
    if value not in choices:
        raise NotInspectable(f"{name} is {str(value)[:20]!r}; choose one of {', '.join(choices)}")
    return str(value)


def packed(weights: Tensor) -> str:
    """Encode weights from 0 to 1 as thousandths, two bytes each, in base64."""
    return base64.b64encode(
        (THOUSANDTHS * weights).round().to(torch.int16).numpy().astype("<i2").tobytes()
    ).decode()


def _thousandths(weights: Tensor) -> list[list[int]]:
    return (THOUSANDTHS * weights).round().int().tolist()


VIEWS: dict[str, Callable[[Subject, dict[str, Any]], dict[str, Any]]] = {
    "attention": attention,
    "steps": steps,
}
