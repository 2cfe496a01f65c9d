"""Data of figures, a figure of every kind, and the boxes of the text on a figure."""

import json

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from playground.figures.figures import (
    MARKERS,
    ablation_ranking,
    attention_grid,
    cross_attention,
    exact_match_by_length,
    single_head,
    training_curve,
)

from .app_server import ROOT

REVERSE = ROOT / "checkpoints" / "reverse"
LINES = [json.loads(line) for line in (REVERSE / "metrics.jsonl").read_text().splitlines()]
SCORES = json.loads((REVERSE / "config.json").read_text())["scores"]
GENERATOR = np.random.default_rng(0)
TEN = [*"3141592653", "EOS"]


def weights(*shape):
    scores = np.exp(2 * GENERATOR.normal(size=shape))
    return scores / scores.sum(-1, keepdims=True)


def attention_data(kind, layers, heads, rows, columns):
    causal = np.tri(len(rows), len(columns), dtype=bool)
    possible = causal if kind == "decoder" else np.ones_like(causal)
    return {
        "kind": kind,
        "title": f"{kind} attention",
        "rows": rows,
        "columns": columns,
        "weights": weights(layers, heads, len(rows), len(columns)).tolist(),
        "possible": possible.tolist(),
    }


def head_data(kind, rows, columns):
    data = attention_data(kind, 1, 1, rows, columns)
    return data | {"title": f"{kind}, layer 1, head 1", "weights": data["weights"][0][0]}


def ablation_rows(names, keep_only=False, losses=None):
    losses = losses or [30 / (i + 1) ** 3 for i in range(len(names))]
    return [
        {
            "name": name,
            "method": method,
            "keep_only": keep_only,
            "n": 512,
            "exact_match_before": 1.0,
            "exact_match": 1 / (1 + loss),
            "log_probability_before": -0.01,
            "log_probability": -loss,
            "log_probability_drop": loss * (1 if method == "zero" else 0.7),
        }
        for method in MARKERS
        for name, loss in zip(names, losses, strict=True)
    ]


COMPONENTS = [f"decoder self-attention, layer {i // 4 + 1}, head {i % 4 + 1}" for i in range(30)]


def length_score(n, exact_match=0.5, count=1000):
    return {
        "length": n,
        "n": count,
        "available": None,
        "exact_match": exact_match,
        "token_accuracy": exact_match,
    }


CASES = {
    "grid": lambda: attention_grid(attention_data("decoder", 2, 4, TEN, TEN)),
    "one decoder head in a grid": lambda: attention_grid(
        attention_data("decoder", 1, 1, ["3", "EOS"], ["SOS", "3"])
    ),
    "eight heads": lambda: attention_grid(
        attention_data(
            "encoder", 3, 8, [*"31415926535897932384", "EOS"], [*"31415926535897932384", "EOS"]
        )
    ),
    "more layers and heads than drawn": lambda: attention_grid(
        attention_data("decoder", 9, 17, ["3", "EOS"], ["SOS", "3"])
    ),
    "a large head": lambda: single_head(head_data("decoder", TEN, TEN)),
    "a tiny decoder head": lambda: single_head(head_data("decoder", ["3", "EOS"], ["SOS", "3"])),
    "a wide head": lambda: single_head(
        head_data("encoder", [*"3141592653" * 4], [*"3141592653" * 4])
    ),
    "thirty components": lambda: ablation_ranking(ablation_rows(COMPONENTS)),
    "a component that is better ablated": lambda: ablation_ranking(
        ablation_rows(COMPONENTS[:3], losses=[1.0, 0.0, -0.2])
    ),
    "components that are much better ablated": lambda: ablation_ranking(
        ablation_rows(COMPONENTS[:3], losses=[30.0, 0.0, -30.0])
    ),
    "training": lambda: training_curve(LINES),
    "one training step": lambda: training_curve(LINES[:1]),
    "a million steps": lambda: training_curve(
        [line | {"step": 5000 * line["step"]} for line in LINES]
    ),
    "loss of zero": lambda: training_curve([{"step": 1, "loss": 0.0}, {"step": 2, "loss": 0.0}]),
    "untitled grid": lambda: cross_attention(weights(2, 4, 11, 11), TEN, TEN),
    "two tokens": lambda: cross_attention(weights(1, 1, 2, 2), ["3", "EOS"], ["3", "EOS"]),
    "eight cross-attention heads": lambda: cross_attention(
        weights(3, 8, 31, 21),
        [*"314159265358979323846264338327", "EOS"],
        [*"31415926535897932384", "EOS"],
    ),
    "words": lambda: cross_attention(
        weights(1, 2, 3, 3), ["abc", "defghij", "EOS"], ["$x$", "defghij", "EOS"]
    ),
    "lengths": lambda: exact_match_by_length(SCORES),
    "one length": lambda: exact_match_by_length({"by_length": [length_score(10)]}),
    "forty lengths": lambda: exact_match_by_length(
        {"by_length": [length_score(n, n / 40) for n in range(1, 41)]}
    ),
    "a length without sequences": lambda: exact_match_by_length(
        {"by_length": [length_score(1, None, 0), length_score(2, 0.0, 3)]}
    ),
}


def text_boxes(figure):
    """Return each text of a figure, with its box in pixels."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    outside = {
        label
        for axes in figure.findobj(Axes)
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    }
    return [
        (text, text.get_window_extent(canvas.get_renderer()))
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in outside
    ]
