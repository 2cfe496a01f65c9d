"""Where heads look: all of them on one sequence, and step by step while an answer is written.

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
    "own": "the model's own answer",
    "right": "the right answer, given",
    "drawn": "an answer drawn by chance",
}
HOTTEST = 5.0  # temperature
THOUSANDTHS = 1000


def attention(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Every head of one kind of attention. `weights` holds LHQM thousandths as 16-bit numbers, little end first, in base64: many
    heads on a long sequence are a million numbers."""
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
    """The same for a family whose parts we do not know: what it tells of one pass over its own answer, or over the right one."""
    if way == "drawn":
        raise NotInspectable(
            "answers are drawn by chance with the transformer from scratch only; choose its own answer or the right one"
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
            "this family attends to nothing: it carries what it has read in one vector"
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
    """An answer position by position: what was there, what could come next, and where every head looks then (LHM, by step)."""
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
    """A pass, the names of what stands at each output position, and those of what the model wrote: the same, unless it was given the
    right answer."""
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
    """Raises NotInspectable where there is no right answer to be given."""
    if not batch.known:
        raise NotInspectable(
            "nobody knows the right answer: no row that is kept here has this source; choose the model's own answer"
        )
    return batch


def said(subject: Subject, batch: Question, written: list[str]) -> dict[str, Any]:
    """What stands beside the sequence in every view: what the model wrote, and what would be right; None where nobody knows that."""
    low, high = subject.config.task.min_length, subject.config.task.max_length
    n = batch.source_BS.shape[1] - 1
    notes = (
        []
        if low <= n <= high
        else [f"{n} symbols: it was trained on {low if low == high else f'{low} to {high}'} only"]
    )
    if not batch.known:
        notes.append("whether this is right is not known: no row that is kept here has this source")
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
            f"temperature is {str(temperature)[:20]}; it must be a number above 0 and up to {HOTTEST:g}"
        )
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise NotInspectable(f"seed is {str(seed)[:20]}; it must be a whole number from 0 on")
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
    """Weights from 0 to 1 in thousandths, two bytes each, as base64."""
    return base64.b64encode(
        (THOUSANDTHS * weights).round().to(torch.int16).numpy().astype("<i2").tobytes()
    ).decode()


def _thousandths(weights: Tensor) -> list[list[int]]:
    return (THOUSANDTHS * weights).round().int().tolist()


VIEWS: dict[str, Callable[[Subject, dict[str, Any]], dict[str, Any]]] = {
    "attention": attention,
    "steps": steps,
}
