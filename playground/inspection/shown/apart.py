"""Views of embeddings, masks, parameter counts and the memory of attention.

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

# The numbers of positions and d_model in the figures of tutorials.
WAVES = {"50 x 64": (50, 64), "200 x 64": (200, 64), "100 x 128": (100, 128)}
SENTENCES = ("The dog bit the man", "The man bit the dog")
MOST_TOKENS = 32  # of a heatmap, if several are displayed side by side
MOST_HEADS = 8
PADDED_BY = 3


def answered(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the model's output for the sequence, and the target; every view has both."""
    batch = subject.read(text(request))
    return said(subject, batch, subject.written(batch))


@torch.no_grad()
def symbols(subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
    """Return the token embeddings and position vectors of the model, and sinusoidal positions."""
    side, picture = (
        one_of(request, "side", ("source", "target")),
        one_of(request, "waves", tuple(WAVES)),
    )
    names, _ = symbol_vectors(subject, side)
    wanted = typed(request, "symbol", 20, "")
    # The page may have selected the token for another model.
    symbol = wanted if wanted in names else subject.names([3])[0]
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
    """Describe the position encoding of one side."""
    inside = "The model adds no position vectors: "
    return {
        "learned": "learned in training",
        "sinusoidal": "sinusoidal",
        "from-the-end": "learned in training, and counted from the end (0 is EOS)"
        if side == "source"
        else "learned in training",
        "randomised": "learned in training at randomly sampled positions; these are the evenly "
        "spaced ones used at inference",
        "rope": f"{inside}self-attention rotates queries and keys by their positions (RoPE). "
        "Activations shows this as the stage “turned queries”.",
        "alibi": f"{inside}self-attention subtracts a multiple of the distance from the scores "
        "(ALiBi). Activations shows this as the stage “distance”.",
        "t5": f"{inside}self-attention adds a learned bias for the distance to the scores (T5). "
        "Activations shows this as the stage “distance”.",
        "none": f"{inside}it has no position encoding. The encoder processes a set. The decoder "
        "can still infer positions from its causal mask.",
    }[subject.family.config.positions]


def _word_order(request: dict[str, Any]) -> dict[str, Any]:
    """Compare two sentences; an invalid sentence gives an error for this field only."""
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
    """Return masks and four types of attention on the sequence, and the sizes of the model."""
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
    """Return the sequence with padding, as in a batch with a longer one.

    The result has its tokens, the padding mask, and the change of the logits by padding.
    """
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
    """Return the softmax of the rows of scores that the user entered, one row per line.

    Invalid scores give an error for this field only.
    """
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
            f"{word[:20]!r} is not a number; type rows of scores such as 7 6 0 0 0"
        ) from None


def _kinds(subject: Subject, batch: Batch, layer: int) -> list[dict[str, Any]]:
    """Return four types of attention, cut to the first tokens and heads."""
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
    """Measure bytes and seconds once per process; None for a length that is too long."""
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
