"""Views that need no pass through the layers: positions and symbols, masks, and what the model and its attention weigh.

Shapes: B batch, S source, H heads, Q queries, M memory, D d_model, P positions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
from torch import nn

from playground.inspection.embeddings import (
    neighbours,
    position_table,
    symbol_map,
    symbol_vectors,
    wavelength,
    word_order,
)
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
from playground.models.config import ModelConfig
from playground.models.positions import Embedding, sinusoid
from playground.tasks import PAD
from playground.tasks.task import Batch

from .looking import said
from .origin import MOST_COLUMNS, MOST_ROWS
from .request import numbers, one_of, plain, text, typed, whole

WAVES = {
    "50 x 64": (50, 64),
    "200 x 64": (200, 64),
    "100 x 128": (100, 128),
}  # positions and d_model of the pictures of write-ups
SENTENCES = ("The dog bit the man", "The man bit the dog")
MOST_TOKENS = 32  # where several heatmaps stand side by side
MOST_HEADS = 8
PADDED_BY = 3


def answered(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """The model's own answer to the sequence and the right one, which the page shows beside it whatever the view."""
    batch = subject.read(text(request))
    return said(subject, batch, subject.written(batch))


@torch.no_grad()
def symbols(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """What the model at hand knows before any attention, and what sine waves are in general."""
    side, picture = (
        one_of(request, "side", ("source", "target")),
        one_of(request, "waves", tuple(WAVES)),
    )
    names, _ = symbol_vectors(subject, side)
    wanted = typed(request, "symbol", 20, "")
    symbol = (
        wanted if wanted in names else subject.names([3])[0]
    )  # the page may have shown another model before
    n, width = WAVES[picture]
    waves_PD = sinusoid(n, width)
    dimensions = [0, 14, whole(request, "dimension", 0, width - 1, usual=30)]
    embedding = cast(Embedding, subject.family.get_submodule(f"{side}_embedding"))
    positions_PD = position_table(subject, side)
    flat = symbol_map(subject, side)
    return {
        "side": side,
        "positions": {
            "kind": subject.family.config.positions,
            "weights": []
            if positions_PD is None
            else numbers(positions_PD[:MOST_ROWS, :MOST_COLUMNS], 3),
            "of": [0, subject.family.config.d_model]
            if positions_PD is None
            else list(positions_PD.shape),
            "loudness": None
            if positions_PD is None
            else plain(float(positions_PD.pow(2).mean().sqrt())),
            "symbols": plain(
                float((symbol_vectors(subject, side)[1] * embedding.scale).pow(2).mean().sqrt())
            ),
            "told": _told_positions(subject, side),
        },
        "waves": {
            "picture": picture,
            "pictures": list(WAVES),
            "weights": numbers(waves_PD.T, 3),
            "positions": n,
            "width": width,
        },
        "dimensions": [
            {
                "dimension": d,
                "wavelength": plain(wavelength(d, width)),
                "values": numbers(waves_PD[:, d], 4),
            }
            for d in dimensions
        ],
        "symbols": names,
        "symbol": symbol,
        "neighbours": [
            [name, plain(similarity)] for name, similarity in neighbours(subject, side, symbol)
        ],
        "map": {
            "names": flat.names,
            "places": [[plain(x), plain(y)] for x, y in flat.places],
            "explained": list(map(plain, flat.explained)),
        },
        "order": _word_order(request),
        **answered(subject, request),
    }


def _told_positions(subject: Subject, side: str) -> str:
    """How this side is told where its symbols stand, in a sentence."""
    inside = "No vector is added to a symbol: "
    return {
        "learned": "learned in training",
        "sinusoidal": "sine waves",
        "from-the-end": "learned in training, and counted from the end (0 is EOS)"
        if side == "source"
        else "learned in training",
        "randomised": "learned in training at places drawn at random; these are the ones taken now, evenly spread",
        "rope": f"{inside}self-attention turns queries and keys by their places (RoPE). The walk-through shows it (turned queries).",
        "alibi": f"{inside}self-attention lowers scores with the distance (ALiBi). The walk-through shows it (distance).",
        "t5": f"{inside}self-attention adds to a score a learned number for the distance (T5). The walk-through shows it (distance).",
        "none": f"{inside}this model is not told where symbols stand. The encoder reads a set; the decoder can still count what is "
        "before it, because it only looks back.",
    }[subject.family.config.positions]


def _word_order(request: dict[str, Any]) -> dict[str, Any]:
    """A mistake in what was typed stays with the field; the rest of the view does not depend on it."""
    sentences = [
        typed(request, "first", 2000, SENTENCES[0]),
        typed(request, "second", 2000, SENTENCES[1]),
    ]
    try:
        order = word_order(sentences[0], sentences[1])
    except NotInspectable as error:
        return {"sentences": sentences, "error": str(error)}
    return {
        "sentences": sentences,
        "words": [sorted(order.first), sorted(order.second)],
        "without": plain(order.without_positions),
        "with": plain(order.with_positions),
    }


def sizes(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Masks on this very sequence, four kinds of attention on it, and what the model and its attention weigh."""
    layer = min(whole(request, "layer", 0, 63), subject.family.config.n_layers - 1)
    which, measure = (
        one_of(request, "of", ("model", "base")),
        one_of(request, "measure", ("no", "yes")) == "yes",
    )
    batch = subject.read(text(request))
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
        "shapes": [
            [row.name, row.formula, list(row.shape)]
            for row in attention_shapes(subject.family.config, length)
        ],
        "length": length,
        "parameters": {
            "of": which,
            "rows": [[each.part, each.ours, each.torchs, each.why] for each in _parameters(config)],
            "published": PUBLISHED_BASE if which == "base" else None,
        },
        "quadratic": [
            [
                cost.length,
                cost.entries,
                cost.bytes,
                cost.published,
                _measured(cost.length) if measure else None,
            ]
            for cost in [*attention_costs([length]), *attention_costs()]
        ],
        "measured": measure,
        **answered(subject, request),
    }


@torch.no_grad()
def _padded(subject: Subject, batch: Batch) -> dict[str, Any]:
    """The sequence as it stands in a batch beside a longer one: its tokens, the mask, and what padding changes in the logits."""
    room = subject.family.config.max_positions - batch.source_BS.shape[1]
    source_BS = nn.functional.pad(batch.source_BS, (0, min(PADDED_BY, room)), value=PAD)
    tokens = source_BS[0].tolist()
    logits, padded = (
        subject.family(source, batch.decoder_input_BT) for source in (batch.source_BS, source_BS)
    )
    return {
        "tokens": tokens,
        "names": subject.names(tokens),
        "mask": padding(tokens),
        "added": source_BS.shape[1] - batch.source_BS.shape[1],
        "changed": plain(float((logits - padded).abs().max())),
        "published": [[87, 600, 0, 0, 0], padding([87, 600, 0, 0, 0])],
    }


def _typed_softmax(request: dict[str, Any]) -> dict[str, Any]:
    """Rows of scores as the visitor typed them, a row a line; what is wrong with them is said beside the field."""
    usual = "\n".join(" ".join(map(str, row)) for row in cast(list[list[int]], PUBLISHED["scores"]))
    scores = typed(request, "scores", 3000, usual)
    lines = [line.replace(",", " ").split() for line in scores.replace(";", "\n").splitlines()]
    try:
        rows = [[_number(word) for word in words] for words in lines if words]
        found = masked_softmax(rows)
    except NotInspectable as error:
        return {"typed": scores, "error": str(error)}
    return {
        "typed": scores,
        "scores": found.scores,
        "real": found.real,
        "plain": [[plain(x) for x in row] for row in found.plain],
        "masked": [[plain(x) for x in row] for row in found.masked],
        "published": {"plain": PUBLISHED["plain"], "masked": PUBLISHED["masked"]}
        if found.scores == PUBLISHED["scores"]
        else None,
    }


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise NotInspectable(
            f"{word[:20]!r} is no number; type rows of scores such as 7 6 0 0 0"
        ) from None


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
            "heads": [
                numbers(weights_QM, 4)
                for weights_QM in weights_HQM[:MOST_HEADS, :MOST_TOKENS, :MOST_TOKENS]
            ],
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


VIEWS: dict[str, Callable[[Subject, dict[str, Any]], dict[str, Any]]] = {
    "symbols": symbols,
    "sizes": sizes,
}
