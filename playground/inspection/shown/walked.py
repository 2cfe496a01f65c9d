"""The view of a trace: all stages of a forward pass, the tensor of one, and any of its numbers.

Shapes: S source, T target, H heads, Q queries, M memory, K head size, D d_model, F d_ff,
V vocabulary.
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
    "S": "source tokens",
    "T": "target tokens",
    "Q": "queries",
    "M": "keys",
    "H": "heads",
    "K": "dimensions of a head",
    "D": "dimensions",
    "F": "hidden dimensions",
    "V": "tokens of the vocabulary",
}
# The six chapters, and the prefixes of the names of their blocks.
STEPS = {
    "Token and position embedding": ("source embedding",),
    "Encoder self-attention": ("encoder self-attention",),
    "Encoder feed-forward network": ("encoder feed-forward", "encoder final norm"),
    "Masked decoder self-attention": ("target embedding", "decoder self-attention"),
    "Cross-attention": ("cross-attention", "decoder feed-forward"),
    "Output tokens": ("decoder final norm", "output"),
}


@torch.no_grad()
def walk(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return all stages, and the tensor of one of them.

    `stage` is "block/name" and `head` counts from 0. If the page selected them for another model
    and this one does not have them, the first stage and the last head are used.
    """
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
    """Return the computation of one number of a stage, from the numbers of earlier stages.

    The result has the `value` and a `kind`:

    product   a dot product, with a term for each pair of numbers
    mixed     a row as the sum of rows
    parts     any other equation, with the values of its variables

    Raises:
        NotInspectable: for a stage, head or cell that does not exist.
    """
    wanted, head = typed(request, "stage", 100, ""), whole(request, "head", 0, 63)
    row, column = whole(request, "row", 0, 1_000_000), whole(request, "column", 0, 1_000_000)
    path = Walk(subject.family, subject.read(text(request)))
    at = next((i for i, stage in enumerate(path.stages) if _key(stage) == wanted), None)
    if at is None:
        raise NotInspectable(f"this model has no stage {wanted!r}; choose one of the list")
    stage = path.stages[at]
    if head >= subject.family.config.n_heads:
        raise NotInspectable(
            f"there is no head {head + 1}; this model has {subject.family.config.n_heads} in each "
            "layer"
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
    """Return the tensor of a stage as a table with labels; one head if it has heads."""
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
        "T": "decoder input",
        "V": "tokens",
        "K": "dimensions of this head",
        "F": "dimensions of the hidden layer",
    }
    if letter == "Q":
        return f"queries ({'source' if asks_source(block) else 'decoder input'})"
    if letter == "M":
        return f"keys ({'decoder input' if block.startswith('decoder') else 'source'})"
    return names.get(letter, "dimensions of the vector")


def _steps(subject: Subject, path: Walk, batch: Question, head: int) -> list[dict[str, Any]]:
    """Return the six chapters.

    Each has the most informative stage and head, and a sentence about this sequence.
    """
    source, given, wanted = (
        subject.names(tokens) for tokens in (path.source, path.given, batch.labels_BT[0].tolist())
    )
    config, number, writes = (
        subject.family.config,
        head + 1,
        "target" if batch.known else "generated tokens",
    )
    own_M = path.stage("encoder self-attention, layer 1", "softmax").tensor[head, 0]
    mix = sorted(zip(own_M.tolist(), source, strict=True), key=lambda pair: -pair[0])
    crossing, walker = _follower(subject, path, len(source) - 1)
    places = path.stage(crossing, "softmax").tensor[walker].argmax(-1) + 1
    written = path.stage("output", "logits").tensor.argmax(-1).tolist()
    last, parts = (
        ("sum", "each a token embedding plus a position vector")
        if config.places
        else ("symbols", "each a token embedding; the model adds no position vectors")
    )
    told = [
        (
            0,
            f"source embedding/{last}",
            f"{_row(source)}: {len(source)} vectors of size {config.d_model}, {parts}.",
        ),
        (
            head,
            "encoder self-attention, layer 1/softmax",
            f"Every token attends to all tokens. In head {number}, {source[0]} attends most to "
            f"{mix[0][1]}.",
        ),
        (
            head,
            "encoder feed-forward, layer 1/residual",
            f"For {source[0]}, head {number} sums the values "
            f"{', '.join(f'{weight:.2f} of {name}' for weight, name in mix[:3])}; the residual "
            "connection adds the input; the feed-forward network maps "
            f"{config.d_model} → {config.d_ff} → {config.d_model}.",
        ),
        (
            head,
            "decoder self-attention, layer 1/softmax",
            f"Decoder input {_row(given)}, {writes} {_row(wanted)}: the input is shifted right. "
            "No position attends to later positions.",
        ),
        (
            walker,
            f"{crossing}/softmax",
            f"{crossing[0].upper() + crossing[1:]}, head {walker + 1}: the output tokens in order "
            "attend most to the source positions "
            f"{_row([str(place) for place in places.tolist()])}.",
        ),
        (
            0,
            "output/probabilities",
            f"The most likely of {config.target_vocabulary} tokens at each position: "
            f"{_row(subject.names(written))}.",
        ),
    ]
    names = [_key(stage) for stage in path.stages]
    return [
        {"title": title, "stage": names.index(key), "head": at, "sentence": sentence}
        for title, (at, key, sentence) in zip(STEPS, told, strict=True)
    ]


def _follower(subject: Subject, path: Walk, length: int) -> tuple[str, int]:
    """Return the cross-attention block and head with the most attention on the task's alignment.

    For a task without a known alignment, it is the first head of the first block.
    """
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
