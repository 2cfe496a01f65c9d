"""The view of a trace: all stages of a forward pass, the tensor of one, and any of its numbers.

Shapes: S source, T target, H heads, Q queries, M memory, K head size, D d_model, F d_ff,
V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from playground.compat import stage_id
from playground.inspection.hooks import Component
from playground.inspection.inspected_model import Example, InspectedModel, InspectionError
from playground.inspection.trace import ForwardTrace, TraceStage

from . import embeddings_and_masks
from .origin import MAX_COLUMNS, MAX_ROWS, Origin, labels, queries_are_source
from .request import int_field, json_array, json_number, source_text, text_field

AXIS_WORDS = {
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
CHAPTERS = {
    "Token and position embedding": ("source embedding",),
    "Encoder self-attention": ("encoder self-attention",),
    "Encoder feed-forward network": ("encoder feed-forward", "encoder final norm"),
    "Masked decoder self-attention": ("target embedding", "decoder self-attention"),
    "Cross-attention": ("cross-attention", "decoder feed-forward"),
    "Output tokens": ("decoder final norm", "output"),
}


@torch.no_grad()
def trace(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return all stages, and the tensor of one of them.

    `stage` is "block/name" and `head` counts from 0. If the page selected them for another model
    and this one does not have them, the first stage and the last head are used.
    """
    stage_name = stage_id(text_field(request, "stage", 100, ""))
    head = min(int_field(request, "head", 0, 63), subject.transformer.config.n_heads - 1)
    batch = subject.encode_text(source_text(request))
    path = ForwardTrace(subject.transformer, batch)
    at = next((i for i, stage in enumerate(path.stages) if _stage_id(stage) == stage_name), 0)
    return {
        "steps": _chapter_fields(subject, path, batch, head),
        "stages": [_stage_fields(stage) for stage in path.stages],
        "chosen": {
            "stage": at,
            "head": head,
            **_tensor_fields(subject, path, path.stages[at], head),
        },
        "source": subject.token_names(path.source),
        "decoder_input": subject.token_names(path.decoder_input),
        **embeddings_and_masks.with_answer(subject, request),
    }


@torch.no_grad()
def trace_cell(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the computation of one number of a stage, from the numbers of earlier stages.

    The result has the `value` and a `kind`:

    product   a dot product, with a term for each pair of numbers
    mixed     a row as the sum of rows
    parts     any other equation, with the values of its variables

    Raises:
        InspectionError: for a stage, head or cell that does not exist.
    """
    stage_name = stage_id(text_field(request, "stage", 100, ""))
    head = int_field(request, "head", 0, 63)
    row, column = (
        int_field(request, "row", 0, 1_000_000),
        int_field(request, "column", 0, 1_000_000),
    )
    path = ForwardTrace(subject.transformer, subject.encode_text(source_text(request)))
    at = next((i for i, stage in enumerate(path.stages) if _stage_id(stage) == stage_name), None)
    if at is None:
        raise InspectionError(f"this model has no stage {stage_name!r}; choose one of the list")
    stage = path.stages[at]
    if head >= subject.transformer.config.n_heads:
        raise InspectionError(
            f"there is no head {head + 1}; this model has {subject.transformer.config.n_heads} in "
            "each layer"
        )
    if row >= stage.tensor.shape[-2] or column >= stage.tensor.shape[-1]:
        shape = " x ".join(map(str, stage.tensor.shape[-2:]))
        raise InspectionError(
            f"there is no cell in row {row + 1}, column {column + 1}; {stage.name} is {shape}"
        )
    return {"row": row, "column": column, **Origin(subject, path, at).of(head, row, column)}


def _stage_fields(stage: TraceStage) -> dict[str, Any]:
    low, high = (float(end) for end in stage.tensor.float().aminmax())
    if not math.isfinite(low):  # masked scores
        finite = stage.tensor[stage.tensor.isfinite()]
        low, high = (
            (float(end) for end in finite.aminmax()) if len(finite) else (math.nan, math.nan)
        )
    return {
        "step": next(
            i for i, blocks in enumerate(CHAPTERS.values()) if stage.block.startswith(blocks)
        ),
        "block": stage.block,
        "name": stage.name,
        "formula": stage.formula,
        "shape": stage.size,
        "words": " × ".join(
            f"{n} {AXIS_WORDS[letter]}"
            for letter, n in zip(stage.shape, stage.tensor.shape, strict=True)
        ),
        "file": stage.code.file,
        "line": stage.code.line,
        "text": stage.code.text,
        "low": json_number(low),
        "high": json_number(high),
    }


def _tensor_fields(
    subject: InspectedModel, path: ForwardTrace, stage: TraceStage, head: int
) -> dict[str, Any]:
    """Return the tensor of a stage as a table with labels; one head if it has heads."""
    table = (stage.tensor[head] if stage.shape.startswith("H") else stage.tensor).float()
    n_rows, n_columns = table.shape
    visible = table[:MAX_ROWS, :MAX_COLUMNS]
    letters = stage.shape[-2:]
    rows, columns = (
        labels(subject, path, stage.block, letter, n)
        for letter, n in zip(letters, table.shape, strict=True)
    )
    finite = table[table.isfinite()]
    max_abs = float(finite.abs().max()) if len(finite) else 0.0
    possible = None
    if stage.name in ("masked scores", "softmax"):
        possible = path.stage(stage.block, "mask").tensor[:MAX_ROWS, :MAX_COLUMNS].int().tolist()
    return {
        "heads": subject.transformer.config.n_heads if stage.shape.startswith("H") else 0,
        "rows": rows[:MAX_ROWS],
        "columns": columns[:MAX_COLUMNS],
        "axes": [_axis_title(stage.block, letter) for letter in letters],
        "weights": json_array(visible, 4),
        "possible": possible,
        "signed": bool(len(finite) and finite.min() < 0),
        "max": 1.0 if stage.name in ("softmax", "probabilities", "mask") else json_number(max_abs),
        "cut": f"the first {len(visible)} of {n_rows} rows, {visible.shape[1]} of {n_columns} "
        "columns"
        if visible.shape != table.shape
        else "",
        "likeliest": subject.token_names(table.argmax(-1).tolist())
        if stage.block == "output"
        else None,
    }


def _axis_title(block: str, letter: str) -> str:
    names = {
        "S": "source tokens",
        "T": "decoder input",
        "V": "tokens",
        "K": "dimensions of this head",
        "F": "dimensions of the hidden layer",
    }
    if letter == "Q":
        return f"queries ({'source' if queries_are_source(block) else 'decoder input'})"
    if letter == "M":
        return f"keys ({'decoder input' if block.startswith('decoder') else 'source'})"
    return names.get(letter, "dimensions of the vector")


def _chapter_fields(
    subject: InspectedModel, path: ForwardTrace, batch: Example, head: int
) -> list[dict[str, Any]]:
    """Return the six chapters.

    Each has the most informative stage and head, and a text about this sequence.
    """
    source, decoder_input, target = (
        subject.token_names(tokens)
        for tokens in (path.source, path.decoder_input, batch.labels_BT[0].tolist())
    )
    config, number, writes = (
        subject.transformer.config,
        head + 1,
        "target" if batch.has_target else "generated tokens",
    )
    own_M = path.stage("encoder self-attention, layer 1", "softmax").tensor[head, 0]
    mix = sorted(zip(own_M.tolist(), source, strict=True), key=lambda pair: -pair[0])
    crossing, walker = _best_aligned_head(subject, path, len(source) - 1)
    places = path.stage(crossing, "softmax").tensor[walker].argmax(-1) + 1
    written = path.stage("output", "logits").tensor.argmax(-1).tolist()
    last, parts = (
        ("sum", "each a token embedding plus a position vector")
        if config.n_position_vectors
        else ("token embeddings", "each a token embedding; the model adds no position vectors")
    )
    result = [
        (
            0,
            f"source embedding/{last}",
            f"{_join_tokens(source)}: {len(source)} vectors of size {config.d_model}, {parts}.",
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
            f"Decoder input {_join_tokens(decoder_input)}, {writes} {_join_tokens(target)}: the "
            "input is shifted right. No position attends to later positions.",
        ),
        (
            walker,
            f"{crossing}/softmax",
            f"{crossing[0].upper() + crossing[1:]}, head {walker + 1}: the output tokens in order "
            "attend most to the source positions "
            f"{_join_tokens([str(place) for place in places.tolist()])}.",
        ),
        (
            0,
            "output/probabilities",
            f"The most likely of {config.target_vocab_size} tokens at each position: "
            f"{_join_tokens(subject.token_names(written))}.",
        ),
    ]
    names = [_stage_id(stage) for stage in path.stages]
    return [
        {"title": title, "stage": names.index(key), "head": at, "description": text}
        for title, (at, key, text) in zip(CHAPTERS, result, strict=True)
    ]


def _best_aligned_head(subject: InspectedModel, path: ForwardTrace, length: int) -> tuple[str, int]:
    """Return the cross-attention block and head with the most attention on the task's alignment.

    For a task without a known alignment, it is the first head of the first block.
    """
    blocks = [
        Component("cross", layer).name for layer in range(subject.transformer.config.n_layers)
    ]
    places = subject.task.alignment(length)
    if not places:
        return blocks[0], 0
    weights_LHQM = torch.stack([path.stage(block, "softmax").tensor for block in blocks])
    share_LH = weights_LHQM[:, :, range(len(places)), places].mean(-1)
    layer, head = divmod(int(share_LH.argmax()), subject.transformer.config.n_heads)
    return blocks[layer], head


def _stage_id(stage: TraceStage) -> str:
    return f"{stage.block}/{stage.name}"


def _join_tokens(names: list[str]) -> str:
    return " ".join(names[:8]) + (" …" if len(names) > 8 else "")


VIEWS: dict[str, Callable[[InspectedModel, dict[str, Any]], dict[str, Any]]] = {
    "walk": trace,
    "walk-cell": trace_cell,
    **embeddings_and_masks.VIEWS,
}
