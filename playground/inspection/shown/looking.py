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
from playground.inspection.subject import NotInspectable, Subject
from playground.models.transformer import Transformer
from playground.tasks import EOS, SOS
from playground.tasks.task import Batch

WAYS = {"own": "the model's own answer", "right": "the right answer, given", "drawn": "an answer drawn by chance"}
HOTTEST = 5.0  # temperature
THOUSANDTHS = 1000


def attention(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Every head of one kind of attention. `weights` holds LHQM thousandths as 16-bit numbers, little end first, in base64: many
    heads on a long sequence are a million numbers."""
    kind, way = _one_of(request, "kind", ATTENTION, "cross"), _one_of(request, "way", tuple(WAYS), "own")
    if not isinstance(subject.model, Transformer):
        return _of_any_family(subject, request, kind, way)
    recording, written = _recorded(subject, request, way)
    source, given = subject.names(recording.source_BS[0].tolist()), subject.names(recording.given_BT[0].tolist())
    rows, columns = {"encoder": (source, source), "decoder": (written, given), "cross": (written, source)}[kind]
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
        **said(subject, request, written),
    }


def _of_any_family(subject: Subject, request: dict[str, Any], kind: str, way: str) -> dict[str, Any]:
    """The same for a family whose parts we do not know: what it tells of one pass over its own answer, or over the right one."""
    if way == "drawn":
        raise NotInspectable("answers are drawn by chance with the transformer from scratch only; choose its own answer or the right one")
    batch = subject.read(_text(request))
    if way == "own":
        written_BT = subject.model.solve(batch.source_BS, subject.max_tokens)
        n = min(int((written_BT[0] == EOS).cumsum(0).eq(0).sum()) + 1, written_BT.shape[1])
        batch = Batch(batch.source_BS, F.pad(written_BT[:, :n], (1, 0), value=SOS), batch.weight_B)
    written = subject.names(batch.labels_BT[0].tolist())
    record, axes = subject.model.record(batch), subject.model.axes(batch)
    layers = {each: getattr(record, f"{each}_attention") for each in ATTENTION}
    kinds = [each for each in ("cross", "encoder", "decoder") if layers[each]]
    if not kinds:
        raise NotInspectable("this family attends to nothing: it carries what it has read in one vector")
    kind = kind if kind in kinds else kinds[0]
    weights_LHQM = torch.stack([weights_BHQM[0] for weights_BHQM in layers[kind]])
    rows, columns = (subject.names(tokens[0].tolist()) for tokens in axes[kind])
    may_look_QM = torch.ones(len(rows), len(columns), dtype=torch.int)
    return {
        "kind": kind,
        "kinds": kinds,
        "layers": weights_LHQM.shape[0],
        "heads": weights_LHQM.shape[1],
        "rows": written if torch.equal(axes[kind][0], batch.decoder_input_BT) else rows,
        "columns": columns,
        "weights": packed(weights_LHQM),
        "possible": (may_look_QM.tril() if kind == "decoder" else may_look_QM).tolist(),
        **said(subject, request, written),
    }


def steps(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """An answer position by position: what was there, what could come next, and where every head looks then (LHM, by step)."""
    way, batch = _one_of(request, "way", tuple(WAYS), "own"), subject.read(_text(request))
    found: list[Step]
    if way == "right":
        found = forced_steps(subject.family, batch)
    else:
        found = free_steps(subject.family, batch, subject.max_tokens, **_chance(request, way))
    name = subject.task.vocabulary.name
    told: list[dict[str, Any]] = [
        {
            "given": subject.names(step.given),
            "candidates": [[name(token), round(probability, 6)] for token, probability in step.candidates],
            "chosen": name(step.chosen),
            "probability": round(step.probability, 6),
            "right": None if step.right is None else name(step.right),
            "cross": _thousandths(step.cross_LHS.flatten(0, 1)),
            "decoder": _thousandths(step.decoder_LHM.flatten(0, 1)),
        }
        for step in found
    ]
    config = subject.family.config
    heads = [f"{layer + 1}.{head + 1}" for layer in range(config.n_layers) for head in range(config.n_heads)]
    return {"source": subject.names(batch.source_BS[0].tolist()), "heads": heads, "steps": told,
            **said(subject, request, [step["chosen"] for step in told])}  # fmt: skip


def _recorded(subject: Subject, request: dict[str, Any], way: str) -> tuple[Recording, list[str]]:
    """A pass, and the names of what stands at each output position."""
    batch = subject.read(_text(request))
    if way == "right":
        return record_forced(subject.family, batch), subject.names(batch.labels_BT[0].tolist())
    recording, written_BT = record_free(subject.family, batch.source_BS, subject.max_tokens, **_chance(request, way))
    return recording, subject.names(written_BT[0].tolist())


def said(subject: Subject, request: dict[str, Any], written: list[str]) -> dict[str, Any]:
    """What stands beside the sequence in every view: what was written, and what would be right."""
    batch = subject.read(_text(request))
    right = subject.names(batch.labels_BT[0].tolist())
    source = subject.names(batch.source_BS[0].tolist())
    low, high = subject.config.task.min_length, subject.config.task.max_length
    n = len(source) - 1
    note = "" if low <= n <= high else f"{n} symbols: it was trained on {low if low == high else f'{low} to {high}'} only"
    return {"written": written, "answer": right, "note": note}


def _chance(request: dict[str, Any], way: str) -> dict[str, Any]:
    if way != "drawn":
        return {}
    temperature, seed = request.get("temperature", 1.0), request.get("seed", 0)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 < temperature <= HOTTEST:
        raise NotInspectable(f"temperature is {str(temperature)[:20]}; it must be a number above 0 and up to {HOTTEST:g}")
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
    return base64.b64encode((THOUSANDTHS * weights).round().to(torch.int16).numpy().astype("<i2").tobytes()).decode()


def _thousandths(weights: Tensor) -> list[list[int]]:
    return (THOUSANDTHS * weights).round().int().tolist()


VIEWS: dict[str, Callable[[Subject, dict[str, Any]], dict[str, Any]]] = {"attention": attention, "steps": steps}
