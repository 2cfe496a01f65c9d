"""Style and helpers of all figures, and the figures of a trained model.

The helpers are `blank`, `panel`, `heatmap`, `save` and the colors. A figure shows measured numbers
only, has its size in inches for 150 dots per inch, and labels its axes in words. Shapes of arrays:
L layers, H heads, T target positions, S source positions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from playground.common.stats import wilson_interval

FOREGROUND, MUTED, GRID = "#1c2530", "#565d69", "#dfe3e8"
ACCENT, SECONDARY = "#1f6fb2", "#b35c00"  # distinguishable without color vision, and by dashes
MONO = "DejaVu Sans Mono"  # part of matplotlib, so a figure looks the same on every machine
DPI = 150

# From paper to ink in equal steps of lightness (CIELAB L* decreases by 10.3 per step), so that
# equal differences look equal.
ATTENTION_CMAP = LinearSegmentedColormap.from_list(
    "paper to ink",
    [
        "#ffffff",
        "#d2e4f3",
        "#a1cbe5",
        "#76b0d7",
        "#4d94c8",
        "#3277b5",
        "#195ba1",
        "#10427e",
        "#082a5c",
    ],
)
UNIT_NORM = Normalize(0, 1)

ATTENTION_CAPTION = (
    "rows: generated tokens (queries)    columns: source tokens (keys)\n"
    "darker: more attention, from 0 to 1; every row sums to 1"
)
MAX_PANEL_IN, MIN_PANEL_IN, MAX_CELL_IN = 4.0, 1.25, 0.36  # inches
LABEL_WIDTH_IN = 0.145  # inches per label along an axis

# The salt of SVG ids is a global setting of matplotlib.
_save_lock = threading.Lock()


# Helpers of all figures


def new_figure(width: float, height: float) -> Figure:
    """Create an empty white figure; sizes are in inches."""
    return Figure(figsize=(width, height), dpi=DPI, facecolor="white")


def add_axes_inches(
    figure: Figure, left: float, bottom: float, width: float, height: float
) -> Axes:
    """Add axes with a thin frame; the position is in inches from the lower left corner."""
    whole_width, whole_height = figure.get_size_inches()
    axes = figure.add_axes(
        (left / whole_width, bottom / whole_height, width / whole_width, height / whole_height)
    )
    axes.tick_params(length=3, width=0.6, color=MUTED, labelcolor=FOREGROUND, labelsize=8.5)
    axes.spines[:].set(color=MUTED, linewidth=0.6)
    return axes


def style_axes(
    figure: Figure, left: float, bottom: float, width: float, height: float, title: str
) -> Axes:
    """Add a panel for curves, with a title, grid lines, and no frame at the top and right."""
    axes = add_axes_inches(figure, left, bottom, width, height)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=9.5, color=FOREGROUND, fontweight="bold", pad=7)
    return axes


def heatmap(
    axes: Axes,
    weights_TS: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label_rows: bool,
    label_columns: bool,
) -> None:
    """Draw fractions from 0 to 1 as cells.

    If not all labels fit, evenly spaced ones are drawn, always with the first.
    """
    axes.imshow(
        np.asarray(weights_TS, dtype=float),
        cmap=ATTENTION_CMAP,
        norm=UNIT_NORM,
        aspect="auto",
        interpolation="nearest",
    )
    inches = axes.figure.get_size_inches()  # type: ignore[union-attr]
    width, height = axes.get_position().size * inches
    for axis, labels, label_width, displayed in (
        (axes.xaxis, columns, width, label_columns),
        (axes.yaxis, rows, height, label_rows),
    ):
        every = math.ceil(LABEL_WIDTH_IN * len(labels) / label_width)
        if not displayed:
            axis.set_major_locator(NullLocator())
            continue
        axis.set_ticks(range(0, len(labels), every), labels[::every])
        for text in axis.get_ticklabels():
            text.set(fontfamily=MONO, fontsize=8, parse_math=False)
    axes.tick_params(length=0, pad=3)
    if max(map(len, columns)) > 3:
        axes.tick_params(axis="x", rotation=90)


def colorbar(figure: Figure, left: float, bottom: float, height: float) -> None:
    """Add the color scale of `heatmap`."""
    axes = add_axes_inches(figure, left, bottom, 0.11, height)
    bar = figure.colorbar(ScalarMappable(UNIT_NORM, ATTENTION_CMAP), cax=axes, ticks=[0, 0.5, 1])
    bar.outline.set(edgecolor=MUTED, linewidth=0.6)
    axes.tick_params(length=2, labelsize=8, labelcolor=FOREGROUND)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as .png (150 dots per inch), .svg or .pdf.

    The files have no date, so equal figures give equal bytes.

    Raises:
        ValueError: for any other file type.
    """
    dateless: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
    }
    kind = path.suffix.lower().removeprefix(".")
    if kind not in dateless:
        raise ValueError(
            f"{path.name} is not a supported file type for figures; choose a name that ends in "
            f"{', '.join('.' + k for k in dateless)}"
        )
    with _save_lock, matplotlib.rc_context({"svg.hashsalt": "transformer-playground"}):
        figure.savefig(path, format=kind, dpi=DPI, metadata=dateless[kind])


# The figures of a trained model


def training_curve(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the loss over the steps, and exact match and token accuracy at the evaluated steps.

    `lines` are those of metrics.jsonl.

    Raises:
        ValueError: for no lines.
    """
    if not lines:
        raise ValueError(
            "there are no metrics to draw; give the lines of a run of one step or more"
        )
    steps, losses = [line["step"] for line in lines], [line["loss"] for line in lines]
    scored = [line for line in lines if line.get("exact_match") is not None]
    width, last = 7.2, max(1, *steps)
    figure = new_figure(width, 4.4 if scored else 2.65)
    loss = style_axes(
        figure, 0.65, 2.3 if scored else 0.5, width - 0.9, 1.75, "Training loss, on a log scale"
    )
    loss.plot(
        steps,
        losses,
        color=ACCENT,
        linewidth=1.3,
        marker="o" if len(lines) == 1 else "",
        markersize=4,
    )
    positive = [value for value in losses if value > 0]
    if positive:
        loss.set_yscale("log")
        spread = max(positive) / min(positive)
        few: Any = (
            MaxNLocator(4, prune="both")
            if spread < 4
            else LogLocator(subs=(1, 2, 5) if spread < 100 else (1,))
        )
        loss.yaxis.set_major_locator(few)
        loss.yaxis.set_minor_locator(NullLocator())
        loss.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    bottom = loss
    if scored:
        planned = {line.get("eval_size") for line in scored} - {None}
        title = (
            f"Accuracy on {planned.pop():,} held-out sequences"
            if len(planned) == 1
            else "Accuracy on held-out sequences"
        )
        bottom = style_axes(figure, 0.65, 0.5, width - 0.9, 1.3, title)
        styles: list[tuple[str, str, dict[str, Any]]] = [
            ("exact_match", "exact match", {"color": ACCENT, "linewidth": 1.6, "zorder": 3}),
            (
                "token_accuracy",
                "token accuracy",
                {"color": SECONDARY, "linewidth": 1.2, "linestyle": (0, (4, 2))},
            ),
        ]
        for name, label, style in styles:
            points = [(line["step"], line[name]) for line in scored if line.get(name) is not None]
            bottom.plot(
                *zip(*points, strict=True),
                marker="o" if len(points) <= 60 else "",
                markersize=3,
                label=label,
                **style,
            )
        bottom.set_ylim(-0.03, 1.05)
        bottom.set_yticks([0, 0.5, 1])
        bottom.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        bottom.legend(
            loc="lower right",
            bbox_to_anchor=(1.01, 1.0),
            ncols=2,
            borderaxespad=0.1,
            frameon=False,
            fontsize=8.5,
            labelcolor=FOREGROUND,
        )
    for axes in figure.axes:
        axes.set_xlim(0, last * 1.01)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.0f}"))
    if scored:
        loss.tick_params(labelbottom=False)
    bottom.set_xlabel("step", fontsize=9, color=FOREGROUND)
    return figure


def cross_attention(weights_LHTS: Any, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Draw a heatmap for each head, with one row of heatmaps per layer.

    `rows` are the T generated tokens, `columns` the S source tokens.

    Raises:
        ValueError: if the labels do not fit the weights.
    """
    weights = np.asarray(weights_LHTS, dtype=float)
    if weights.ndim != 4 or weights.shape[2:] != (len(rows), len(columns)) or not weights.size:
        raise ValueError(
            f"weights of shape {weights.shape} do not fit {len(rows)} rows and {len(columns)} "
            "columns; give layers × heads × rows × columns"
        )
    layers, heads = weights.shape[:2]
    widest = max(MIN_PANEL_IN, min(MAX_PANEL_IN, 2 * MAX_PANEL_IN / heads))
    cell = min(MAX_CELL_IN, widest / max(len(rows), len(columns)))
    across, down = cell * len(columns), cell * len(rows)
    left = 0.55 + 0.075 * max(map(len, rows))
    below = 0.52 + (0.18 if max(map(len, columns)) <= 3 else 0.08 * max(map(len, columns)))
    gap, above, side = 0.2, 0.35, 0.6
    width = max(4.9, left + heads * across + (heads - 1) * gap + side)
    height = below + layers * down + (layers - 1) * gap + above
    figure = new_figure(width, height)
    for layer in range(layers):
        bottom = below + (layers - 1 - layer) * (down + gap)
        for head in range(heads):
            axes = add_axes_inches(figure, left + head * (across + gap), bottom, across, down)
            heatmap(
                axes,
                weights[layer, head],
                rows,
                columns,
                label_rows=head == 0,
                label_columns=layer == layers - 1,
            )
            if layer == 0:
                axes.set_title(f"head {head + 1}", fontsize=9, color=FOREGROUND, pad=5)
        figure.text(
            0.2 / width,
            (bottom + down / 2) / height,
            f"layer {layer + 1}",
            rotation=90,
            fontsize=9,
            color=FOREGROUND,
            ha="center",
            va="center",
        )
    tall = min(layers * down + (layers - 1) * gap, 2.4)
    colorbar(figure, left + heads * across + (heads - 1) * gap + 0.15, height - above - tall, tall)
    figure.text(
        left / width,
        0.1 / height,
        ATTENTION_CAPTION,
        fontsize=8,
        color=MUTED,
        ha="left",
        va="bottom",
        linespacing=1.4,
    )
    return figure


def exact_match_by_length(scores: Mapping[str, Any]) -> Figure:
    """Draw exact match by length with 95 % intervals and the number of held-out sequences.

    `scores` are those of a checkpoint's manifest, or `dataclasses.asdict` of an `EvalResult`.

    Raises:
        ValueError: for scores without lengths.
    """
    lines = scores["by_length"]
    if not lines:
        raise ValueError(
            "these scores have no lengths to draw; score the model with `evaluate` first"
        )
    width = max(5.2, min(10.0, 1.0 + 0.52 * len(lines)))
    figure = new_figure(width, 2.95)
    axes = style_axes(
        figure, 0.65, 0.7, width - 0.9, 1.85, "Exact match by length, with 95 % intervals"
    )
    axes.set_ylim(-0.03, 1.05)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for line in lines:
        if line["exact_match"] is not None:
            low, high = wilson_interval(round(line["exact_match"] * line["n"]), line["n"])
            axes.plot(
                [line["length"]] * 2,
                [low, high],
                color=ACCENT,
                linewidth=4,
                alpha=0.35,
                solid_capstyle="butt",
            )
            axes.plot(
                [line["length"]], [line["exact_match"]], color=ACCENT, marker="o", markersize=4.5
            )
    every = math.ceil(0.42 * len(lines) / (width - 0.9))
    plotted = lines[::every]
    axes.set_xticks(
        [line["length"] for line in plotted],
        [f"{line['length']}\n{line['n']:,}" for line in plotted],
    )
    axes.set_xlim(lines[0]["length"] - 0.6, lines[-1]["length"] + 0.6)
    axes.set_xlabel("length, and the number of held-out sequences", fontsize=9, color=FOREGROUND)
    return figure
