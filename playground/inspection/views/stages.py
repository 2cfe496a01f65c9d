"""The view of a trace: all stages of a forward pass, and the tensor of one.

Shapes: S source, T target, H heads, Q queries, M memory, K head size, D d_model, F d_ff,
V vocabulary.
"""

import math
from functools import lru_cache
from typing import Any

import torch

from playground.inspection.forward_trace import ForwardTrace, TraceStage
from playground.inspection.hooks import AttentionKind, Component
from playground.inspection.inspected_model import Example, InspectedModel, InspectionError

from .fields import (
    MAX_COLUMNS,
    MAX_ROWS,
    Index,
    LayerOrHead,
    Name,
    SequenceRequest,
    answer_fields,
    json_array,
    json_number,
)

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


class TraceRequest(SequenceRequest):
    """A stage, as "block/name", and a head."""

    stage: Name = ""
    head: LayerOrHead = 0


class ScoresRequest(SequenceRequest):
    """A query of a head."""

    kind: AttentionKind = "cross"
    layer: LayerOrHead = 0
    head: LayerOrHead = 0
    query: Index = 0


@lru_cache(maxsize=1)
def _trace_of(example: Example) -> ForwardTrace:
    """Trace a sequence; the requests for the stages of a trace use the same one."""
    return ForwardTrace(example)


@torch.no_grad()
def trace(subject: InspectedModel, request: TraceRequest) -> dict[str, Any]:
    """Return all stages, and the tensor of one of them.

    If the page selected stage and head for another model and this one does not have them, the first
    stage and the last head are used.
    """
    example = request.example(subject)
    head = min(request.head, subject.transformer.config.n_heads - 1)
    forward_trace = _trace_of(example)
    keys = [stage.key for stage in forward_trace.stages]
    index = keys.index(request.stage) if request.stage in keys else 0
    return {
        "stages": [_stage_fields(stage) for stage in forward_trace.stages],
        "chosen": {
            "stage": index,
            "head": head,
            **_tensor_fields(forward_trace, forward_trace.stages[index], head),
        },
        **answer_fields(example),
    }


@torch.no_grad()
def attention_scores(subject: InspectedModel, request: ScoresRequest) -> dict[str, Any]:
    """Return how one query of a head gets its attention weights, from the vectors on.

    Each of `scores` is the product of query and key, divided by `root`, plus the bias of the
    position encoding, if there is one. Masked scores are None. With RoPE, both vectors are already
    rotated.
    """
    layer, head, query = request.layer, request.head, request.query
    config = subject.transformer.config
    if layer >= config.n_layers or head >= config.n_heads:
        raise InspectionError(
            f"there is no layer {layer + 1} with a head {head + 1}; this model has "
            f"{config.n_layers} layers with {config.n_heads} heads each"
        )
    of_block = {
        stage.name: stage.tensor
        for stage in _trace_of(request.example(subject)).stages
        if stage.block == Component(request.kind, layer).name
    }
    query_QK, key_MK = (
        of_block.get(f"rotated {name}", of_block[name])[head] for name in ("queries", "keys")
    )
    if query >= len(query_QK):
        raise InspectionError(f"there is no query {query + 1}; the sequence has {len(query_QK)}")
    bias_HQM = of_block.get("position bias")
    return {
        "query": json_array(query_QK[query]),
        "keys": json_array(key_MK),
        "products": json_array(key_MK @ query_QK[query]),
        "root": json_number(math.sqrt(query_QK.shape[1])),
        "bias": None if bias_HQM is None else json_array(bias_HQM[head, query]),
        "scores": json_array(of_block["masked scores"][head, query]),
        "weights": json_array(of_block["softmax"][head, query]),
    }


def _stage_fields(stage: TraceStage) -> dict[str, Any]:
    finite = stage.tensor[stage.tensor.isfinite()].float()  # masked scores are not
    low, high = map(float, finite.aminmax()) if len(finite) else (None, None)
    return {
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
        "contribution": None if stage.contribution is None else json_number(stage.contribution),
        "low": json_number(low),
        "high": json_number(high),
    }


def _tensor_fields(trace: ForwardTrace, stage: TraceStage, head: int) -> dict[str, Any]:
    """Return the tensor of a stage as a table with labels; one head if it has heads."""
    table = (stage.tensor[head] if stage.has_heads else stage.tensor).float()
    n_rows, n_columns = table.shape
    visible = table[:MAX_ROWS, :MAX_COLUMNS]
    letters = stage.shape[-2:]
    rows, columns = (
        _labels(trace, stage.block, letter, n)
        for letter, n in zip(letters, table.shape, strict=True)
    )
    finite = table[table.isfinite()]
    max_abs = float(finite.abs().max()) if len(finite) else 0.0
    possible = None
    if stage.name in ("masked scores", "softmax"):
        possible = trace.stage(stage.block, "mask").tensor[:MAX_ROWS, :MAX_COLUMNS].int().tolist()
    return {
        "heads": trace.model.config.n_heads if stage.has_heads else 0,
        "rows": rows[:MAX_ROWS],
        "columns": columns[:MAX_COLUMNS],
        "axes": [_axis_title(stage.block, letter) for letter in letters],
        "weights": json_array(visible, 4),
        "possible": possible,
        "signed": bool(len(finite) and finite.min() < 0),
        "max": 1.0 if stage.name in ("softmax", "probabilities", "mask") else json_number(max_abs),
        "truncation": f"the first {len(visible)} of {n_rows} rows, {visible.shape[1]} of "
        f"{n_columns} columns"
        if visible.shape != table.shape
        else "",
        "most_likely": trace.example.subject.token_names(table.argmax(-1).tolist())
        if stage.block == "output"
        else None,
    }


def _queries_are_source(block: str) -> bool:
    return block.startswith(("encoder", "source"))


def _labels(trace: ForwardTrace, block: str, letter: str, n: int) -> list[str]:
    """Return the labels of a tensor dimension of size `n`, which `letter` names."""
    if letter == "V":
        return trace.example.subject.token_names(list(range(n)))
    if letter in "KDF":
        return [str(i) for i in range(n)]
    is_source = (
        letter == "S"
        or (letter == "Q" and _queries_are_source(block))
        or (letter == "M" and not block.startswith("decoder"))
    )
    return trace.source if is_source else trace.decoder_input


def _axis_title(block: str, letter: str) -> str:
    names = {
        "S": "source tokens",
        "T": "decoder input",
        "V": "tokens",
        "K": "dimensions of this head",
        "F": "dimensions of the hidden layer",
    }
    if letter == "Q":
        return f"queries ({'source' if _queries_are_source(block) else 'decoder input'})"
    if letter == "M":
        return f"keys ({'decoder input' if block.startswith('decoder') else 'source'})"
    return names.get(letter, "dimensions of the vector")
