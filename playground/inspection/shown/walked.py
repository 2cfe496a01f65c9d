"""One sequence stage by stage, down to any single number; and what positions, symbols, masks and sizes are for the model at hand.

Shapes: S source, T target, H heads, Q queries, M memory, K numbers a head, D d_model, F d_ff, V vocabulary, P positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from playground.inspection.components import ATTENTION, FEED_FORWARD, Component
from playground.inspection.embeddings import neighbours, symbol_map, symbol_vectors, wavelength, word_order
from playground.inspection.masks import PUBLISHED, four_kinds, look_ahead, masked_softmax, padding
from playground.inspection.sizes import (
    PUBLISHED_BASE,
    attention_costs,
    attention_shapes,
    compare_with_torch,
    measure_attention,
    story_base,
)
from playground.inspection.subject import NotInspectable, Subject
from playground.inspection.walk import Stage, Walk
from playground.models.config import ModelConfig
from playground.models.positions import Embedding, sinusoid
from playground.tasks import PAD
from playground.tasks.task import Batch

MOST_ROWS, MOST_COLUMNS = 80, 128  # of a tensor on show
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
WAVES = {"50 x 64": (50, 64), "200 x 64": (200, 64), "100 x 128": (100, 128)}  # positions and d_model of the pictures of write-ups
SENTENCES = ("The dog bit the man", "The man bit the dog")
MOST_TOKENS = 32  # where several heatmaps stand side by side
MOST_HEADS = 8
PADDED_BY = 3


# The walk-through.


def walk(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """All stages in words, and the tensor of one of them: `stage` is "block/name", `head` counts from 0. What this model does not
    have, because the page showed another one before, becomes the first stage, and the last head."""
    wanted, head = _typed(request, "stage", 100, ""), min(_whole(request, "head", 0, 63), subject.family.config.n_heads - 1)
    batch = subject.read(_text(request))
    path = Walk(subject.family, batch)
    at = next((i for i, stage in enumerate(path.stages) if f"{stage.block}/{stage.name}" == wanted), 0)
    return {
        "steps": _steps(subject, path, batch, head),
        "stages": [_told(stage) for stage in path.stages],
        "chosen": {"stage": at, "head": head, **_tensor(subject, path, path.stages[at], head)},
        "source": subject.names(path.source),
        "given": subject.names(path.given),
    }


def walk_cell(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """How one number of a stage came about, from the numbers on show in the stages before it.

    "product": a dot product, a term for each pair of numbers; "mixed": a row as the sum of rows; "parts": anything else, its
    parts with the equation that joins them. Each says the `value` that comes out.

    Raises:
        NotInspectable: for a stage, head or cell that there is not.
    """
    wanted, head = _typed(request, "stage", 100, ""), _whole(request, "head", 0, 63)
    row, column = _whole(request, "row", 0, 1_000_000), _whole(request, "column", 0, 1_000_000)
    path = Walk(subject.family, subject.read(_text(request)))
    at = next((i for i, stage in enumerate(path.stages) if f"{stage.block}/{stage.name}" == wanted), None)
    if at is None:
        raise NotInspectable(f"there is no stage {wanted!r} in this model; choose one of the list")
    stage = path.stages[at]
    if head >= subject.family.config.n_heads:
        raise NotInspectable(f"there is no head {head + 1}; this model has {subject.family.config.n_heads} in each layer")
    if row >= stage.tensor.shape[-2] or column >= stage.tensor.shape[-1]:
        shape = " x ".join(map(str, stage.tensor.shape[-2:]))
        raise NotInspectable(f"there is no cell in row {row + 1}, column {column + 1}; {stage.name} is {shape}")
    return {"row": row, "column": column, **Origin(subject, path, at).of(head, row, column)}


def _told(stage: Stage) -> dict[str, Any]:
    finite = stage.tensor[stage.tensor.isfinite()].float()
    return {
        "step": next(i for i, blocks in enumerate(STEPS.values()) if stage.block.startswith(blocks)),
        "block": stage.block,
        "name": stage.name,
        "formula": stage.formula,
        "shape": stage.size,
        "words": " × ".join(f"{n} {WORDS[letter]}" for letter, n in zip(stage.shape, stage.tensor.shape, strict=True)),
        "file": stage.code.file,
        "line": stage.code.line,
        "text": stage.code.text,
        "low": _plain(float(finite.min())) if len(finite) else None,
        "high": _plain(float(finite.max())) if len(finite) else None,
    }


def _tensor(subject: Subject, path: Walk, stage: Stage, head: int) -> dict[str, Any]:
    """The tensor of a stage as a table with labels, of one head where there are heads."""
    table = (stage.tensor[head] if stage.shape.startswith("H") else stage.tensor).float()
    n_rows, n_columns = table.shape
    shown = table[:MOST_ROWS, :MOST_COLUMNS]
    letters = stage.shape[-2:]
    rows, columns = (_labels(subject, path, stage.block, letter, n) for letter, n in zip(letters, table.shape, strict=True))
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
        "weights": _numbers(shown, 4),
        "possible": possible,
        "signed": bool(len(finite) and finite.min() < 0),
        "most": 1.0 if stage.name in ("softmax", "probabilities", "mask") else _plain(most),
        "cut": f"the first {len(shown)} of {n_rows} rows and {shown.shape[1]} of {n_columns} columns" if shown.numel() < table.numel() else "",
        "likeliest": subject.names(table.argmax(-1).tolist()) if stage.block == "output" else None,
    }


def _asks_source(block: str) -> bool:
    return block.startswith(("encoder", "source"))


def _labels(subject: Subject, path: Walk, block: str, letter: str, n: int) -> list[str]:
    if letter == "V":
        return subject.names(list(range(n)))
    if letter in "KDF":
        return [str(i) for i in range(n)]
    source = letter == "S" or (letter == "Q" and _asks_source(block)) or (letter == "M" and not block.startswith("decoder"))
    return subject.names(path.source if source else path.given)


def _axis(block: str, letter: str) -> str:
    names = {"S": "source tokens", "T": "what the decoder is given", "V": "symbols", "K": "numbers of this head", "F": "numbers inside"}
    if letter == "Q":
        return f"who looks ({'source' if _asks_source(block) else 'what the decoder is given'})"
    if letter == "M":
        return f"who is looked at ({'what the decoder is given' if block.startswith('decoder') else 'source'})"
    return names.get(letter, "numbers of the vector")


def _steps(subject: Subject, path: Walk, batch: Batch, head: int) -> list[dict[str, Any]]:
    """The six steps, each with its first stage and a sentence about this very sequence; heads are those of layer 1."""
    source, given, wanted = (subject.names(tokens) for tokens in (path.source, path.given, batch.labels_BT[0].tolist()))
    config, number = subject.family.config, head + 1
    own_QM, across_QM = (path.stage(f"{kind}, layer 1", "softmax").tensor[head] for kind in ("encoder self-attention", "cross-attention"))
    parts = sorted(zip(own_QM[0].tolist(), source, strict=True), key=lambda pair: -pair[0])[:3]
    mix = ", ".join(f"{weight:.2f} of {name}" for weight, name in parts)
    places = across_QM.argmax(-1).tolist()
    written = path.stage("output", "logits").tensor.argmax(-1).tolist()
    sentences = [
        f"{_row(source)}: {len(source)} vectors of {config.d_model} numbers, what each token is plus where it stands.",
        f"Every source token looks at every source token. In layer 1, head {number}, {source[0]} looks most at {parts[0][1]}.",
        f"For one token, {source[0]}: head {number} mixes {mix}; itself is added, then {config.d_model} → {config.d_ff} → {config.d_model}.",
        f"Given {_row(given)}, it is to write {_row(wanted)}: the target shifted right. Nobody looks ahead.",
        f"In layer 1, head {number}, the written look at source positions {_row([str(place + 1) for place in places])}.",
        f"A logit for each of {config.target_vocabulary} symbols; the largest: {_row(subject.names(written))}.",
    ]
    first = {}
    for i, stage in enumerate(path.stages):
        first.setdefault(next(title for title, blocks in STEPS.items() if stage.block.startswith(blocks)), i)
    return [{"title": title, "first": first[title], "sentence": sentence} for title, sentence in zip(STEPS, sentences, strict=True)]


def _row(names: list[str]) -> str:
    return " ".join(names[:8]) + (" …" if len(names) > 8 else "")


class Origin:
    """Where the numbers of one stage come from: weights of the model, and tensors of earlier stages of the walk."""

    def __init__(self, subject: Subject, path: Walk, at: int) -> None:
        self.subject, self.path, self.at = subject, path, at
        self.family, self.config = subject.family, subject.family.config
        self.stage = path.stages[at]
        self.begins = next(i for i, stage in enumerate(path.stages) if stage.block == self.stage.block)
        kinds = [Component(kind, layer) for kind in (*ATTENTION, *FEED_FORWARD) for layer in range(self.config.n_layers)]
        self.part = next((part for part in kinds if part.name == self.stage.block), None)

    def of(self, head: int, row: int, column: int) -> dict[str, Any]:
        name, table = self.stage.name, self.stage.tensor
        value = float((table[head] if self.stage.shape.startswith("H") else table)[row, column])
        if name in ("scores", "masked scores"):
            return self._score(head, row, column, masked=name == "masked scores")
        if name == "softmax":
            scores_M = self._same("masked scores")[head, row]
            exp_M = (scores_M - scores_M.max()).exp()
            exponents = [["exp(score − largest of the row)", float(exp_M[column])], ["sum of those over the row", float(exp_M.sum())]]
            return _parts("first / second", exponents, value) | {"score": self._score(head, row, column, masked=True)}
        if name == "weighted sum":
            mix = self.path.mix(self._head(head), row)
            looked_at = _labels(self.subject, self.path, self.stage.block, "M", len(mix.weights_M))
            return _mixed(mix.terms_MK, mix.result_K, column, looked_at, mix.weights_M)
        if name == "output projection":
            return self._joined(row, column)
        if name in ("queries", "keys", "values", "widen", "narrow", "logits"):
            return self._projected(head, row, column, value)
        if name == "norm":
            return self._normed(row, column, value)
        return self._pointwise(row, column, value)

    def _head(self, head: int) -> Component:
        assert self.part is not None
        return Component(self.part.kind, self.part.layer, head)

    def _same(self, name: str) -> Tensor:
        """Another stage's tensor of the same block."""
        return self.path.stage(self.stage.block, name).tensor

    def _given(self) -> Tensor:
        """What the block was given: the last tensor before it."""
        return self.path.stages[self.begins - 1].tensor

    def _asked(self) -> Tensor:
        """What the sublayer was given, after its norm if that stands first."""
        return self._same("norm") if self.config.norm == "pre" else self._given()

    def _memory(self) -> Tensor:
        """What the encoder ends with: the tensor before the target comes in."""
        begins = next(i for i, stage in enumerate(self.path.stages) if stage.block == "target embedding")
        return self.path.stages[begins - 1].tensor

    def _around(self) -> str:
        assert self.part is not None
        layer, module = self.part.module.rsplit(".", 1)
        return f"{layer}.around_{module}"

    def _score(self, head: int, row: int, column: int, masked: bool) -> dict[str, Any]:
        found = self.path.score(self._head(head), row, column)
        query, key = (_labels(self.subject, self.path, self.stage.block, letter, 0)[i] for letter, i in (("Q", row), ("M", column)))
        names = [f"query of {query}", f"key of {key}"]
        value = found.score if found.may_look or not masked else -math.inf
        told = _product(found.query_K, found.key_K, names, value, root=found.root)
        return told | {"may_look": found.may_look}

    def _projected(self, head: int, row: int, column: int, value: float) -> dict[str, Any]:
        """A number of a linear layer: the vector that came in times the layer's row for that number."""
        width, name = self.config.d_model // self.config.n_heads, self.stage.name
        if name == "logits":
            layer, given_XD, out = self.family.output, self.path.stages[self.at - 1].tensor, column
        elif name in ("widen", "narrow"):
            layer = self._layer(f".{name}")
            given_XD, out = self._asked() if name == "widen" else self._same("ReLU"), column
        else:
            layer = self._layer(".query" if name == "queries" else ".key_value")
            given_XD = self._memory() if self.part and self.part.kind == "cross" and name != "queries" else self._asked()
            out = head * width + column + (self.config.d_model if name == "values" else 0)
        bias = None if layer.bias is None else float(layer.bias[out])
        return _product(given_XD[row], layer.weight[out], ["what came in", "weights"], value, bias=bias)

    def _layer(self, inside: str) -> nn.Linear:
        assert self.part is not None
        return cast(nn.Linear, self.family.get_submodule(self.part.module + inside))

    def _joined(self, row: int, column: int) -> dict[str, Any]:
        """The heads' mixes, each through its own columns of the output projection, and the bias, which is nobody's."""
        layer, mix_HK = self._layer(".output"), self._same("weighted sum")[:, row]
        weight_HDK = layer.weight.unflatten(1, (self.config.n_heads, -1)).transpose(0, 1)
        terms_XD = torch.einsum("hk,hdk->hd", mix_HK, weight_HDK)
        names = [f"head {i + 1}" for i in range(self.config.n_heads)]
        if layer.bias is not None:
            terms_XD, names = torch.cat([terms_XD, layer.bias[None]]), [*names, "bias"]
        return _mixed(terms_XD, self.stage.tensor[row], column, names)

    def _normed(self, row: int, column: int, value: float) -> dict[str, Any]:
        if self.part is None:  # a final norm
            norm, given_D = self.family.get_submodule(self.stage.block.replace(" final norm", "_norm")), self._given()[row]
        else:
            norm = self.family.get_submodule(f"{self._around()}.norm")
            given_D = (self._given() if self.config.norm == "pre" else self._same("residual"))[row]
        norm = cast(nn.LayerNorm, norm)
        parts = [
            ["x", float(given_D[column])],
            ["mean of the vector", float(given_D.mean())],
            ["its standard deviation", float((given_D.var(unbiased=False) + norm.eps).sqrt())],
            ["gain, learned", float(norm.weight[column])],
            ["shift, learned", float(norm.bias[column])],
        ]
        return _parts("(x − mean) / deviation · gain + shift", parts, value)

    def _pointwise(self, row: int, column: int, value: float) -> dict[str, Any]:
        """Stages in which a number is made of a few others."""
        name, block = self.stage.name, self.stage.block
        if name == "residual":
            result = self._same("narrow" if "feed-forward" in block else "output projection")
            return _parts("x + result", [["x", float(self._given()[row, column])], ["result", float(result[row, column])]], value)
        if name == "ReLU":
            return _parts("max(0, a)", [["a", float(self._same("widen")[row, column])]], value)
        if name == "probabilities":
            logits_V = self.path.stage("output", "logits").tensor[row]
            exp_V = (logits_V - logits_V.max()).exp()
            parts = [["exp(logit − largest of the row)", float(exp_V[column])], ["sum of those over all symbols", float(exp_V.sum())]]
            return _parts("first / second", parts, value)
        if name == "mask":
            if block.startswith("decoder"):
                return _parts("1 where column ≤ row", [["row", row + 1], ["column", column + 1]], value)
            return _parts("1 where the token is not PAD, which is 0", [["token number", self.path.source[column]]], value)
        embedding = cast(Embedding, self.family.get_submodule(block.replace(" ", "_")))
        token = (self.path.source if block.startswith("source") else self.path.given)[row]
        if name == "sum":
            parts = [[each, float(self._same(each)[row, column])] for each in ("symbols", "positions")]
            return _parts("symbol + position", parts, value)
        if name == "symbols":
            return _parts("E · root", [["E, learned", float(embedding.tokens.weight[token, column])], ["root of d_model", embedding.scale]], value)
        if self.config.positions == "learned":
            return _parts("learned, read from the table of positions", [["position, from 0", row]], value)
        wave = "cos" if column % 2 else "sin"
        period = wavelength(column, self.config.d_model)
        parts = [["factor", self.config.position_scale], ["position, from 0", row], ["wavelength of this dimension", period]]
        return _parts(f"factor · {wave}(2π · position / wavelength)", parts, value)


def _product(
    left: Tensor, right: Tensor, names: list[str], value: float, *, root: float | None = None, bias: float | None = None
) -> dict[str, Any]:
    """A dot product, its largest terms first to stay if there are very many."""
    products = left * right
    keep = products.abs().argsort(descending=True)[:MOST_COLUMNS].sort().values
    return {
        "kind": "product",
        "names": names,
        "at": keep.tolist(),
        "left": _numbers(left[keep]),
        "right": _numbers(right[keep]),
        "products": _numbers(products[keep]),
        "terms": len(products),
        "sum": _plain(float(products.sum())),
        "root": _plain(root) if root is not None else None,
        "bias": _plain(bias) if bias is not None else None,
        "value": _plain(value),
    }


def _mixed(terms: Tensor, result: Tensor, column: int, names: list[str], weights: Tensor | None = None) -> dict[str, Any]:
    return {
        "kind": "mixed",
        "rows": names[:MOST_ROWS],
        "weights": None if weights is None else _numbers(weights[:MOST_ROWS]),
        "terms": _numbers(terms[:MOST_ROWS, :MOST_COLUMNS]),
        "result": _numbers(result[:MOST_COLUMNS]),
        "value": _plain(float(result[column])),
    }


def _parts(equation: str, parts: list[list[Any]], value: float) -> dict[str, Any]:
    return {"kind": "parts", "equation": equation, "parts": [[name, _plain(part)] for name, part in parts], "value": _plain(value)}


# Positions and symbols.


def symbols(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """What the model at hand knows before any attention, and what sine waves are in general."""
    side, picture = _one_of(request, "side", ("source", "target")), _one_of(request, "waves", tuple(WAVES))
    names, _ = symbol_vectors(subject, side)
    wanted = _typed(request, "symbol", 20, "")
    symbol = wanted if wanted in names else subject.names([3])[0]  # the page may have shown another model before
    n, width = WAVES[picture]
    waves_PD = sinusoid(n, width)
    dimensions = [0, 14, _whole(request, "dimension", 0, width - 1, usual=30)]
    embedding = cast(Embedding, subject.family.get_submodule(f"{side}_embedding"))
    positions_PD = embedding.positions.detach()
    shown = positions_PD[:MOST_ROWS, :MOST_COLUMNS]
    flat = symbol_map(subject, side)
    return {
        "side": side,
        "positions": {
            "kind": subject.family.config.positions,
            "weights": _numbers(shown, 3),
            "of": list(positions_PD.shape),
            "loudness": _plain(float(positions_PD.pow(2).mean().sqrt())),
            "symbols": _plain(float((symbol_vectors(subject, side)[1] * embedding.scale).pow(2).mean().sqrt())),
        },
        "waves": {"picture": picture, "pictures": list(WAVES), "weights": _numbers(waves_PD.T, 3), "positions": n, "width": width},
        "dimensions": [
            {"dimension": d, "wavelength": _plain(wavelength(d, width)), "values": _numbers(waves_PD[:, d], 4)} for d in dimensions
        ],
        "symbols": names,
        "symbol": symbol,
        "neighbours": [[name, _plain(similarity)] for name, similarity in neighbours(subject, side, symbol)],
        "map": {"names": flat.names, "places": [[_plain(x), _plain(y)] for x, y in flat.places], "explained": list(map(_plain, flat.explained))},
        "order": _word_order(request),
    }


def _word_order(request: dict[str, Any]) -> dict[str, Any]:
    """A mistake in what was typed stays with the field; the rest of the view does not depend on it."""
    sentences = [_typed(request, name, 2000, usual) for name, usual in zip(("first", "second"), SENTENCES, strict=True)]
    try:
        order = word_order(*sentences)
    except NotInspectable as error:
        return {"sentences": sentences, "error": str(error)}
    return {
        "sentences": sentences,
        "words": [sorted(order.first), sorted(order.second)],
        "without": _plain(order.without_positions),
        "with": _plain(order.with_positions),
    }


# Masks and sizes.


def sizes(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Masks on this very sequence, four kinds of attention on it, and what the model and its attention weigh."""
    layer = min(_whole(request, "layer", 0, 63), subject.family.config.n_layers - 1)
    which, measure = _one_of(request, "of", ("model", "base")), _one_of(request, "measure", ("no", "yes")) == "yes"
    batch = subject.read(_text(request))
    length = batch.source_BS.shape[1]
    config = story_base() if which == "base" else subject.family.config
    given = subject.names(batch.decoder_input_BT[0, :MOST_TOKENS].tolist())
    return {
        "padding": _padded(subject, batch),
        "look_ahead": {"names": given, "mask": look_ahead(len(given))},
        "softmax": _typed_softmax(request),
        "kinds": _kinds(subject, batch, layer),
        "layer": layer,
        "layers": subject.family.config.n_layers,
        "shapes": [[row.name, row.formula, list(row.shape)] for row in attention_shapes(subject.family.config, length)],
        "length": length,
        "parameters": {
            "of": which,
            "rows": [[each.part, each.ours, each.torchs, each.why] for each in _parameters(config)],
            "published": PUBLISHED_BASE if which == "base" else None,
        },
        "quadratic": [
            [cost.length, cost.entries, cost.bytes, cost.published, _measured(cost.length) if measure else None]
            for cost in [*attention_costs([length]), *attention_costs()]
        ],
        "measured": measure,
    }


@torch.no_grad()
def _padded(subject: Subject, batch: Batch) -> dict[str, Any]:
    """The sequence as it stands in a batch beside a longer one: its tokens, the mask, and what padding changes in the logits."""
    room = subject.family.config.max_positions - batch.source_BS.shape[1]
    source_BS = nn.functional.pad(batch.source_BS, (0, min(PADDED_BY, room)), value=PAD)
    tokens = source_BS[0].tolist()
    logits, padded = (subject.family(source, batch.decoder_input_BT) for source in (batch.source_BS, source_BS))
    return {
        "tokens": tokens,
        "names": subject.names(tokens),
        "mask": padding(tokens),
        "added": source_BS.shape[1] - batch.source_BS.shape[1],
        "changed": _plain(float((logits - padded).abs().max())),
        "published": [[87, 600, 0, 0, 0], padding([87, 600, 0, 0, 0])],
    }


def _typed_softmax(request: dict[str, Any]) -> dict[str, Any]:
    """Rows of scores as the visitor typed them, a row a line; what is wrong with them is said beside the field."""
    usual = "\n".join(" ".join(map(str, row)) for row in cast(list[list[int]], PUBLISHED["scores"]))
    typed = _typed(request, "scores", 3000, usual)
    try:
        rows = [[_number(word) for word in line.replace(",", " ").split()] for line in typed.replace(";", "\n").splitlines() if line.strip()]
        found = masked_softmax(rows)
    except NotInspectable as error:
        return {"typed": typed, "error": str(error)}
    return {
        "typed": typed,
        "scores": found.scores,
        "real": found.real,
        "plain": [[_plain(x) for x in row] for row in found.plain],
        "masked": [[_plain(x) for x in row] for row in found.masked],
        "published": {"plain": PUBLISHED["plain"], "masked": PUBLISHED["masked"]} if found.scores == PUBLISHED["scores"] else None,
    }


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise NotInspectable(f"{word[:20]!r} is no number; type rows of scores such as 7 6 0 0 0") from None


def _kinds(subject: Subject, batch: Batch, layer: int) -> list[dict[str, Any]]:
    """Four kinds of attention, of the first tokens and heads where there are many."""
    source = subject.names(batch.source_BS[0, :MOST_TOKENS].tolist())
    given = subject.names(batch.decoder_input_BT[0, :MOST_TOKENS].tolist())
    return [
        {
            "name": name,
            "rows": given if name == "cross" else source,
            "columns": source,
            "possible": look_ahead(len(source)) if name == "causal" else None,
            "heads": [_numbers(weights_QM, 4) for weights_QM in weights_HQM[:MOST_HEADS, :MOST_TOKENS, :MOST_TOKENS]],
            "of": list(weights_HQM.shape),
        }
        for name, weights_HQM in four_kinds(subject, batch, layer).items()
    ]


@cache
def _measured(length: int) -> list[float] | None:
    """Bytes and seconds, measured once in this process; None where that is too much to measure."""
    try:
        measured, seconds = measure_attention(length)
    except NotInspectable:
        return None
    return [measured, float(f"{seconds:.3g}")]


@cache
def _parameters(config: ModelConfig) -> list[Any]:
    return compare_with_torch(config)


# What a request may hold, and numbers for the page.


def _text(request: dict[str, Any]) -> str:
    text = request.get("text")
    if not isinstance(text, str) or len(text) > 2000:
        raise NotInspectable("type a sequence of at most 2,000 characters")
    return text


def _typed(request: dict[str, Any], name: str, longest: int, usual: str) -> str:
    value = request.get(name, usual)
    if not isinstance(value, str) or len(value) > longest:
        raise NotInspectable(f"{name} is {str(value)[:20]!r}; it must be text of at most {longest:,} characters")
    return value


def _whole(request: dict[str, Any], name: str, low: int, high: int, usual: int = 0) -> int:
    value = request.get(name, usual)
    if type(value) is not int or not low <= value <= high:
        raise NotInspectable(f"{name} is {str(value)[:20]}; it must be a whole number from {low:,} to {high:,}")
    return value


def _one_of(request: dict[str, Any], name: str, choices: tuple[str, ...]) -> str:
    """The first choice is the usual one."""
    value = request.get(name, choices[0])
    if value not in choices:
        raise NotInspectable(f"{name} is {str(value)[:20]!r}; choose one of {', '.join(choices)}")
    return str(value)


def _plain(number: float, digits: int = 6) -> float | None:
    """A number for JSON, which knows no infinity: None."""
    return float(f"{number:.{digits}g}") if math.isfinite(number) else None


def _numbers(values: Tensor, digits: int = 6) -> Any:
    """A tensor as nested lists of such numbers."""
    if values.dim() > 1:
        return [_numbers(row, digits) for row in values]
    return [_plain(value, digits) for value in values.tolist()]


VIEWS: dict[str, Callable[[Subject, dict[str, Any]], dict[str, Any]]] = {
    "walk": walk, "walk-cell": walk_cell, "symbols": symbols, "sizes": sizes,
}  # fmt: skip
