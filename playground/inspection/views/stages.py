"""The view of a trace: all stages of a forward pass, the tensor of one, and any of its numbers.

Shapes: S source, T target, H heads, Q queries, M memory, K head size, D d_model, F d_ff,
V vocabulary.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from playground.inspection.forward_trace import ForwardTrace
from playground.inspection.hooks import AttentionKind, Component
from playground.inspection.inspected_model import Example, InspectedModel, InspectionError
from playground.inspection.trace_stage import CellOrigin, DotProduct, TraceStage, WeightedSum

from .request import (
    MAX_COLUMNS,
    MAX_ROWS,
    Index,
    LayerOrHead,
    Name,
    SequenceRequest,
    json_array,
    json_number,
)
from .shared_fields import answer_fields

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


class CellRequest(TraceRequest):
    """One number of a stage."""

    row: Index = 0
    column: Index = 0


class ScoresRequest(SequenceRequest):
    """A query of a head."""

    kind: AttentionKind = "cross"
    layer: LayerOrHead = 0
    head: LayerOrHead = 0
    query: Index = 0


@lru_cache(maxsize=1)
def _trace_of(example: Example) -> ForwardTrace:
    """Trace a sequence; the requests for the numbers of a trace use the same one."""
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
def trace_cell(subject: InspectedModel, request: CellRequest) -> dict[str, Any]:
    """Return the computation of one number of a stage, from the numbers of earlier stages.

    The result has the `value` and a `kind`:

    product   a dot product, with a term for each pair of numbers
    mixed     a row as the sum of rows
    parts     any other equation, with the values of its variables
    """
    head, row, column = request.head, request.row, request.column
    forward_trace, n_heads = _trace_of(request.example(subject)), subject.transformer.config.n_heads
    stage = next((each for each in forward_trace.stages if each.key == request.stage), None)
    if stage is None:
        raise InspectionError(f"this model has no stage {request.stage!r}; choose one of the list")
    if head >= n_heads:
        raise InspectionError(
            f"there is no head {head + 1}; this model has {n_heads} in each layer"
        )
    if row >= stage.tensor.shape[-2] or column >= stage.tensor.shape[-1]:
        shape = " x ".join(map(str, stage.tensor.shape[-2:]))
        raise InspectionError(
            f"there is no cell in row {row + 1}, column {column + 1}; {stage.name} is {shape}"
        )
    origin = stage.explain(head, row, column)
    return {
        "row": row,
        "column": column,
        **_origin_fields(forward_trace, stage, origin, column),
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


def _origin_fields(
    trace: ForwardTrace, stage: TraceStage, origin: CellOrigin, column: int
) -> dict[str, Any]:
    """Return the computation of one number as JSON; see `trace_cell` for the kinds."""
    if isinstance(origin, DotProduct):
        return _dot_product_fields(trace, stage, origin)
    if isinstance(origin, WeightedSum):
        names = list(origin.names) or _labels(trace, stage.block, "M", 0)
        return _weighted_sum_fields(origin, names, column)
    fields: dict[str, Any] = {
        "kind": "parts",
        "equation": origin.formula,
        "parts": [[name, json_number(value)] for name, value in origin.variables.items()],
        "value": json_number(origin.value),
    }
    if origin.score is not None:
        fields["score"] = _dot_product_fields(trace, stage, origin.score)
    return fields


def _dot_product_fields(
    trace: ForwardTrace, stage: TraceStage, origin: DotProduct
) -> dict[str, Any]:
    """Return a dot product; only its largest terms if there are very many."""
    products = origin.left_K * origin.right_K
    keep = products.abs().argsort(descending=True)[:MAX_COLUMNS].sort().values
    names = list(origin.names)
    if origin.query is not None and origin.key is not None:
        queries, keys = (_labels(trace, stage.block, letter, 0) for letter in "QM")
        names = [f"query of {queries[origin.query]}", f"key of {keys[origin.key]}"]
    fields = {
        "kind": "product",
        "names": names,
        "at": keep.tolist(),
        "left": json_array(origin.left_K[keep]),
        "right": json_array(origin.right_K[keep]),
        "products": json_array(products[keep]),
        "terms": len(products),
        "sum": json_number(float(products.sum())),
        "root": json_number(origin.root) if origin.root is not None else None,
        "bias": json_number(origin.bias) if origin.bias is not None else None,
        "value": json_number(origin.value),
    }
    if origin.attended is not None:
        fields["attended"] = origin.attended
    return fields


def _weighted_sum_fields(origin: WeightedSum, names: list[str], column: int) -> dict[str, Any]:
    """Return rows and their sum; if there are very many rows, the last ones as one."""
    terms, weights = origin.terms_RN, origin.weights_R
    others = max(0, len(terms) - MAX_ROWS)
    if others:
        names = [*names[:MAX_ROWS], f"the other {others}"]
        terms = _merge_last_rows(terms)
        weights = None if weights is None else _merge_last_rows(weights)
    return {
        "kind": "mixed",
        "rows": names,
        "others": others,
        "weights": None if weights is None else json_array(weights),
        "terms": json_array(terms[:, :MAX_COLUMNS]),
        "result": json_array(origin.result_N[:MAX_COLUMNS]),
        "value": json_number(float(origin.result_N[column])),
    }


def _merge_last_rows(rows: Tensor) -> Tensor:
    return torch.cat([rows[:MAX_ROWS], rows[MAX_ROWS:].sum(0, keepdim=True)])


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
