"""Data of figures, a figure of every kind, and the boxes of the text on a figure."""

import json

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from playground.experiments.analysis import summarize, summarize_variant
from playground.experiments.length_generalization import scores as length_scores
from playground.experiments.length_generalization import summarize_scheme
from playground.experiments.variant import Variant
from playground.figures.ablation import ablation_ranking, contributions
from playground.figures.attention import (
    attention_grid,
    cross_attention,
    cross_attention_by_step,
    single_head,
)
from playground.figures.catalog import FIGURES
from playground.figures.experiments import accuracy_by_length, experiment, lengths_heatmap
from playground.figures.heads import head_scores, head_scores_over_training
from playground.figures.logit_lens import logit_lens
from playground.figures.training import exact_match_by_length, training_curve
from playground.training.config import RunConfig

from .app_server import ROOT

REVERSE = ROOT / "checkpoints" / "reverse"
LINES = [json.loads(line) for line in (REVERSE / "metrics.jsonl").read_text().splitlines()]
SCORES = json.loads((REVERSE / "config.json").read_text())["scores"]
GENERATOR = np.random.default_rng(0)
TEN = [*"3141592653", "EOS"]
PATTERNS = ("diagonal", "anti-diagonal", "previous", "next", "first", "last", "uniform")


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


def step_data(layers, heads, source):
    names = [
        f"layer {layer + 1}, head {head + 1}" for layer in range(layers) for head in range(heads)
    ]
    prediction = [*source[-2::-1], "EOS"]
    steps = [
        {
            "prefix": ["SOS", *prediction[:t]],
            "token": symbol,
            "target": None if t == 2 else prediction[0],
            "probability": 0.999,
            "candidates": [[symbol, 0.999]],
            "weights": weights(len(names), len(source)).tolist(),
        }
        for t, symbol in enumerate(prediction)
    ]
    return {"columns": source, "heads": names, "steps": steps}


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
        for method in ("zero", "mean")
        for name, loss in zip(names, losses, strict=True)
    ]


def score_rows(layers, heads, step=None):
    kinds = {
        "encoder": "encoder self-attention",
        "decoder": "decoder self-attention",
        "cross": "cross-attention",
    }
    rows = []
    for kind, name in kinds.items():
        for layer, head in np.ndindex(layers, heads):
            fractions = {
                p: None
                if kind == "decoder" and p in ("next", "last")
                else float(GENERATOR.random())
                for p in PATTERNS
            }
            rows.append(
                {
                    "name": f"{name}, layer {layer + 1}, head {head + 1}",
                    "kind": kind,
                    "best": "previous",
                    **fractions,
                    "entropy": 1.234,
                    "max_entropy": 2.0,
                    "aligned": 0.7 if kind == "cross" else None,
                    "distance": 0.31 if kind == "cross" else None,
                }
            )
    return rows if step is None else [{"step": step, **row} for row in rows]


def lens_data(columns, layers):
    names = ["embedding", *(f"layer {i + 1}" for i in range(layers))]
    return {
        "layers": names,
        "has_target": True,
        "columns": columns,
        "tokens": [columns[::-1], *[columns] * layers],
        "probability": GENERATOR.random((layers + 1, len(columns))).tolist(),
        "target_probability": [],
    }


def contribution_rows(values):
    return [
        {
            "name": f"cross-attention, layer 1, head {i + 1}",
            "position": 2,
            "token": "4",
            "baseline_token": "1",
            "logit": v,
        }
        for i, v in values
    ]


COMPONENTS = [f"decoder self-attention, layer {i // 4 + 1}, head {i % 4 + 1}" for i in range(30)]
WAVES = [{"dimension": 0, "wavelength": 6.28}, {"dimension": 62, "wavelength": 47117.2}]


def length_score(n, exact_match=0.5, count=1000):
    return {
        "length": n,
        "n": count,
        "available": None,
        "exact_match": exact_match,
        "token_accuracy": exact_match,
    }


def experiment_results(n_variants=2, seeds=3):
    variants = []
    for i in range(n_variants):
        runs = [
            {
                "seed": seed,
                "done": True,
                "exact_match": 1.0,
                "steps": 200,
                "steps_to": None if (i, seed) == (1, 2) else 100 + 10 * seed,
                "seconds": 1.0,
                "curve": [[step, min(1.0, step / 150)] for step in range(10, 201, 10)],
                "loss": [[step, 100 / step] for step in range(10, 201, 10)],
            }
            for seed in range(seeds)
        ]
        variants.append(
            summarize_variant(Variant({"n_heads": i + 1, "norm_placement": "pre"}, {}), runs)
            | {"seeds": runs}
        )
    return {
        "fields": ["n_heads", "norm_placement"],
        "variants": variants,
        "summary": summarize(["n_heads", "norm_placement"], variants),
    }


def length_results(runs=2):
    config = RunConfig.from_flat({"max_length": 4, "max_positions": 13})
    counts = [
        {"length": length, "right": max(0, 100 - 20 * length), "n": 100 if length > 1 else 0}
        for length in range(1, 13)
    ]
    rows = [
        summarize_scheme(
            name, [{"seed": seed, "scores": length_scores(counts)} for seed in range(runs)], config
        )
        for name in ("learned", "alibi")
    ]
    return {
        "trained": [1, 4],
        "max_length": 12,
        "n_requested": 100,
        "rows": rows,
        "summary": "Trained on little.",
    }


def _long_labels(results, labels):
    return results | {"rows": [results["rows"][0] | {"label": label} for label in labels]}


LABELS = {
    "settings": [f"position_type learned-from-end, norm {norm}" for norm in ("pre", "post", "pre")],
    "a long label": ["a" * 130, "b", "c"],
}
CASES = {
    "grid": lambda: attention_grid(attention_data("decoder", 2, 4, TEN, TEN)),
    "one head in a grid": lambda: attention_grid(
        attention_data("cross", 1, 1, ["3", "EOS"], ["3", "EOS"])
    ),
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
    "a tiny head": lambda: single_head(head_data("cross", ["EOS"], ["3", "EOS"])),
    "a tiny decoder head": lambda: single_head(head_data("decoder", ["3", "EOS"], ["SOS", "3"])),
    "a wide head": lambda: single_head(
        head_data("encoder", [*"3141592653" * 4], [*"3141592653" * 4])
    ),
    "steps": lambda: cross_attention_by_step(step_data(2, 4, TEN)),
    "steps of one head": lambda: cross_attention_by_step(step_data(1, 1, ["3", "1", "EOS"])),
    "more steps than drawn": lambda: cross_attention_by_step(
        step_data(1, 2, [*"31415926535897932384626433832", "EOS"])
    ),
    "one step": lambda: cross_attention_by_step(step_data(1, 1, ["EOS"])),
    "thirty components": lambda: ablation_ranking(ablation_rows(COMPONENTS)),
    "one component": lambda: ablation_ranking(ablation_rows(["source positions"], losses=[0.0])),
    "a component that is better ablated": lambda: ablation_ranking(
        ablation_rows(COMPONENTS[:3], losses=[1.0, 0.0, -0.2])
    ),
    "components that are much better ablated": lambda: ablation_ranking(
        ablation_rows(COMPONENTS[:3], losses=[30.0, 0.0, -30.0])
    ),
    "keep only": lambda: ablation_ranking(ablation_rows(COMPONENTS[:5], keep_only=True)),
    "scores": lambda: head_scores(score_rows(2, 4)),
    "scores of one head": lambda: head_scores(score_rows(1, 1)),
    "more heads than drawn": lambda: head_scores(score_rows(4, 9)),
    "over training": lambda: head_scores_over_training(
        [row for step in (0, 10, 200) for row in score_rows(2, 4, step)]
    ),
    "many over training": lambda: head_scores_over_training(
        [row for step in (1, 200_000) for row in score_rows(4, 8, step)]
    ),
    "lens": lambda: logit_lens(lens_data(TEN, 2)),
    "lens of more positions than drawn": lambda: logit_lens(
        lens_data([*"3141592653" * 5, "EOS"], 6)
    ),
    "lens of one token": lambda: logit_lens(lens_data(["3", "EOS"], 1)),
    "lens without a target": lambda: logit_lens(lens_data(["3", "EOS"], 1) | {"has_target": False}),
    "contributions": lambda: contributions(
        contribution_rows(enumerate([-1.3, 0.001, 6.4, -0.001, 12.0]))
    ),
    "more contributions than drawn": lambda: contributions(
        contribution_rows(enumerate(GENERATOR.normal(size=100)))
    ),
    "no contribution": lambda: contributions(contribution_rows([(0, 0.0)])),
    "positions": lambda: FIGURES["positions"](
        {
            "kind": "learned",
            "source": GENERATOR.normal(size=(11, 64)),
            "target": GENERATOR.normal(size=(40, 64)),
        }
    ),
    "sine waves": lambda: FIGURES["sine-waves"](
        {"d_model": 64, "matrix": GENERATOR.random((100, 64)) * 2 - 1, "waves": WAVES}
    ),
    "training": lambda: training_curve(LINES),
    "one training step": lambda: training_curve(LINES[:1]),
    "ten steps": lambda: training_curve(LINES[:10]),
    "a million steps": lambda: training_curve(
        [line | {"step": 5000 * line["step"]} for line in LINES]
    ),
    "loss of zero": lambda: training_curve([{"step": 1, "loss": 0.0}, {"step": 2, "loss": 0.0}]),
    "untitled grid": lambda: cross_attention(weights(2, 4, 11, 11), TEN, TEN),
    "one cross-attention head": lambda: cross_attention(weights(1, 1, 11, 11), TEN, TEN),
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
    "experiment": lambda: experiment(experiment_results()),
    "experiment of twenty variants": lambda: experiment(experiment_results(20, 1)),
    "accuracy by length": lambda: accuracy_by_length(length_results()),
    "accuracy by length of one run": lambda: accuracy_by_length(length_results(1)),
    "lengths as a heat map": lambda: lengths_heatmap(length_results()),
} | {
    f"{draw.__name__} with {kind}": lambda draw=draw, labels=labels: draw(
        _long_labels(length_results(), labels)
    )
    for draw in (accuracy_by_length, lengths_heatmap)
    for kind, labels in LABELS.items()
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
