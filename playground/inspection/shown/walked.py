"""One sequence through the model stage by stage: every stage in words, the tensor of one of them, and any number of it in detail.

Shapes: S source, T target, H heads, Q queries, M memory, K numbers a head, D d_model, F d_ff, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from playground.inspection.components import Component
from playground.inspection.subject import NotInspectable, Question, Subject
from playground.inspection.walk import Stage, Walk

from . import apart
from .origin import MOST_COLUMNS, MOST_ROWS, Origin, asks_source, labels
from .request import numbers, plain, text, typed, whole

WORDS = {
    "S": "source tokens", "T": "target tokens", "Q": "queries", "M": "tokens looked at", "H": "heads", "K": "numbers a head",
    "D": "numbers", "F": "numbers", "V": "symbols",
}  # fmt: skip
STEPS = {  # the six steps, and how the names of the blocks that belong to them begin
    "Symbol plus position": ("source embedding",),
    "Encoder self-attention": ("encoder self-attention",),
    "The rest of the encoder block": ("encoder feed-forward", "encoder final norm"),
    "Masked decoder self-attention": ("target embedding", "decoder self-attention"),
    "Cross-attention": ("cross-attention", "decoder feed-forward"),
    "Symbols": ("decoder final norm", "output"),
}


@torch.no_grad()
def walk(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """All stages in words, and the tensor of one of them: `stage` is "block/name", `head` counts from 0. What this model does not
    have, because the page showed another one before, becomes the first stage, and the last head."""
    wanted, head = (
        typed(request, "stage", 100, ""),
        min(whole(request, "head", 0, 63), subject.family.config.n_heads - 1),
    )
    batch = subject.read(text(request))
    path = Walk(subject.family, batch)
    at = next((i for i, stage in enumerate(path.stages) if _key(stage) == wanted), 0)
    return {
        "steps": _steps(subject, path, batch, head),
        "stages": [_told(stage) for stage in path.stages],
        "chosen": {"stage": at, "head": head, **_tensor(subject, path, path.stages[at], head)},
        "source": subject.names(path.source),
        "given": subject.names(path.given),
        **apart.answered(subject, request),
    }


@torch.no_grad()
def walk_cell(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """How one number of a stage came about, from the numbers on show in the stages before it.

    "product": a dot product, a term for each pair of numbers; "mixed": a row as the sum of rows; "parts": anything else, its
    parts with the equation that joins them. Each says the `value` that comes out.

    Raises:
        NotInspectable: for a stage, head or cell that there is not.
    """
    wanted, head = typed(request, "stage", 100, ""), whole(request, "head", 0, 63)
    row, column = whole(request, "row", 0, 1_000_000), whole(request, "column", 0, 1_000_000)
    path = Walk(subject.family, subject.read(text(request)))
    at = next((i for i, stage in enumerate(path.stages) if _key(stage) == wanted), None)
    if at is None:
        raise NotInspectable(f"there is no stage {wanted!r} in this model; choose one of the list")
    stage = path.stages[at]
    if head >= subject.family.config.n_heads:
        raise NotInspectable(
            f"there is no head {head + 1}; this model has {subject.family.config.n_heads} in each layer"
        )
    if row >= stage.tensor.shape[-2] or column >= stage.tensor.shape[-1]:
        shape = " x ".join(map(str, stage.tensor.shape[-2:]))
        raise NotInspectable(
            f"there is no cell in row {row + 1}, column {column + 1}; {stage.name} is {shape}"
        )
    return {"row": row, "column": column, **Origin(subject, path, at).of(head, row, column)}


def _told(stage: Stage) -> dict[str, Any]:
    low, high = (float(end) for end in stage.tensor.float().aminmax())
    if not math.isfinite(low):  # masked scores
        finite = stage.tensor[stage.tensor.isfinite()]
        low, high = (
            (float(end) for end in finite.aminmax()) if len(finite) else (math.nan, math.nan)
        )
    return {
        "step": next(
            i for i, blocks in enumerate(STEPS.values()) if stage.block.startswith(blocks)
        ),
        "block": stage.block,
        "name": stage.name,
        "formula": stage.formula,
        "shape": stage.size,
        "words": " × ".join(
            f"{n} {WORDS[letter]}"
            for letter, n in zip(stage.shape, stage.tensor.shape, strict=True)
        ),
        "file": stage.code.file,
        "line": stage.code.line,
        "text": stage.code.text,
        "low": plain(low),
        "high": plain(high),
    }


def _tensor(subject: Subject, path: Walk, stage: Stage, head: int) -> dict[str, Any]:
    """The tensor of a stage as a table with labels, of one head where there are heads."""
    table = (stage.tensor[head] if stage.shape.startswith("H") else stage.tensor).float()
    n_rows, n_columns = table.shape
    shown = table[:MOST_ROWS, :MOST_COLUMNS]
    letters = stage.shape[-2:]
    rows, columns = (
        labels(subject, path, stage.block, letter, n)
        for letter, n in zip(letters, table.shape, strict=True)
    )
    finite = table[table.isfinite()]
    most = float(finite.abs().max()) if len(finite) else 0.0
    possible = None
    if stage.name in ("masked scores", "softmax"):
        possible = path.stage(stage.block, "mask").tensor[:MOST_ROWS, :MOST_COLUMNS].int().tolist()
    return {
        "heads": subject.family.config.n_heads if stage.shape.startswith("H") else 0,
        "rows": rows[:MOST_ROWS],
        "columns": columns[:MOST_COLUMNS],
        "axes": [_axis(stage.block, letter) for letter in letters],
        "weights": numbers(shown, 4),
        "possible": possible,
        "signed": bool(len(finite) and finite.min() < 0),
        "most": 1.0 if stage.name in ("softmax", "probabilities", "mask") else plain(most),
        "cut": f"the first {len(shown)} of {n_rows} rows, {shown.shape[1]} of {n_columns} columns"
        if shown.shape != table.shape
        else "",
        "likeliest": subject.names(table.argmax(-1).tolist()) if stage.block == "output" else None,
    }


def _axis(block: str, letter: str) -> str:
    names = {
        "S": "source tokens",
        "T": "what the decoder is given",
        "V": "symbols",
        "K": "numbers of this head",
        "F": "numbers inside",
    }
    if letter == "Q":
        return f"who looks ({'source' if asks_source(block) else 'what the decoder is given'})"
    if letter == "M":
        return f"who is looked at ({'what the decoder is given' if block.startswith('decoder') else 'source'})"
    return names.get(letter, "numbers of the vector")


def _steps(subject: Subject, path: Walk, batch: Question, head: int) -> list[dict[str, Any]]:
    """The six steps, each with the stage and head that tell most about it and a sentence about this very sequence."""
    source, given, wanted = (
        subject.names(tokens) for tokens in (path.source, path.given, batch.labels_BT[0].tolist())
    )
    config, number, writes = (
        subject.family.config,
        head + 1,
        "is to write" if batch.known else "wrote",
    )
    own_M = path.stage("encoder self-attention, layer 1", "softmax").tensor[head, 0]
    mix = sorted(zip(own_M.tolist(), source, strict=True), key=lambda pair: -pair[0])
    crossing, walker = _follower(subject, path, len(source) - 1)
    places = path.stage(crossing, "softmax").tensor[walker].argmax(-1) + 1
    written = path.stage("output", "logits").tensor.argmax(-1).tolist()
    last, parts = (
        ("sum", "the symbol's plus the place's")
        if config.places
        else ("symbols", "the symbol's alone: no place is added")
    )
    told = [
        (
            0,
            f"source embedding/{last}",
            f"{_row(source)}: {len(source)} vectors of {config.d_model} numbers, {parts}.",
        ),
        (
            head,
            "encoder self-attention, layer 1/softmax",
            f"Each looks at all. In head {number}, {source[0]} looks most at {mix[0][1]}.",
        ),
        (
            head,
            "encoder feed-forward, layer 1/residual",
            f"One token, {source[0]}: head {number} mixes {', '.join(f'{weight:.2f} of {name}' for weight, name in mix[:3])}; "
            f"the token itself is added; then {config.d_model} → {config.d_ff} → {config.d_model}.",
        ),
        (
            head,
            "decoder self-attention, layer 1/softmax",
            f"Given {_row(given)}, it {writes} {_row(wanted)}: the target shifted right. Nobody looks ahead.",
        ),
        (
            walker,
            f"{crossing}/softmax",
            f"{crossing[0].upper() + crossing[1:]}, head {walker + 1}: symbol by symbol it looks at the source's places "
            f"{_row([str(place) for place in places.tolist()])}.",
        ),
        (
            0,
            "output/probabilities",
            f"Of {config.target_vocabulary} symbols the likeliest each time: {_row(subject.names(written))}.",
        ),
    ]
    names = [_key(stage) for stage in path.stages]
    return [
        {"title": title, "stage": names.index(key), "head": at, "sentence": sentence}
        for title, (at, key, sentence) in zip(STEPS, told, strict=True)
    ]


def _follower(subject: Subject, path: Walk, length: int) -> tuple[str, int]:
    """The cross-attention block and the head in it that look most where the task says that one should look; the very first where
    the task does not say."""
    blocks = [Component("cross", layer).name for layer in range(subject.family.config.n_layers)]
    places = subject.task.alignment(length)
    if not places:
        return blocks[0], 0
    weights_LHQM = torch.stack([path.stage(block, "softmax").tensor for block in blocks])
    share_LH = weights_LHQM[:, :, range(len(places)), places].mean(-1)
    layer, head = divmod(int(share_LH.argmax()), subject.family.config.n_heads)
    return blocks[layer], head


def _key(stage: Stage) -> str:
    return f"{stage.block}/{stage.name}"


def _row(names: list[str]) -> str:
    return " ".join(names[:8]) + (" …" if len(names) > 8 else "")


VIEWS: dict[str, Callable[[Subject, dict[str, Any]], dict[str, Any]]] = {
    "walk": walk,
    "walk-cell": walk_cell,
    **apart.VIEWS,
}
