"""Figures of a trained model: curves over training, and exact match by length."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from playground.common.stats import exact_match_interval

from .style import (
    ACCENT,
    SECONDARY,
    add_legend,
    label_axis,
    new_figure,
    set_percent_axis,
    set_step_axis,
    style_chart,
)

MAX_MARKERS = 60  # points of a curve that are drawn with markers
CURVES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("exact_match", "exact match", {"color": ACCENT, "linewidth": 1.6, "zorder": 3}),
    (
        "token_accuracy",
        "token accuracy",
        {"color": SECONDARY, "linewidth": 1.2, "linestyle": (0, (4, 2))},
    ),
)


def training_curve(
    lines: Sequence[Mapping[str, Any]], evaluated: Sequence[Mapping[str, Any]] | None = None
) -> Figure:
    """Draw the loss over the steps, and exact match and token accuracy at the evaluated steps.

    `lines` are those of metrics.jsonl. `evaluated` are the lines with accuracies, if they are not
    among `lines`; not every run has a held-out loss.

    Raises:
        ValueError: for no lines.
    """
    if not lines:
        raise ValueError(
            "there are no metrics to draw; give the lines of a run of one step or more"
        )
    if evaluated is None:
        evaluated = [line for line in lines if line.get("exact_match") is not None]
    n_panels = 2 if evaluated else 1
    figure = new_figure(4.4 if evaluated else 2.65)
    panels = figure.subplots(
        n_panels, 1, sharex=True, squeeze=False, height_ratios=(1.75, 1.3)[:n_panels]
    ).flat
    _draw_loss(panels[0], lines, evaluated)
    if evaluated:
        _draw_accuracy(panels[1], evaluated)
    bottom = panels[n_panels - 1]
    bottom.set_xlim(0, 1.01 * max(1, *(line["step"] for line in lines)))
    set_step_axis(bottom.xaxis)
    label_axis(bottom.xaxis, "step")
    return figure


def _draw_loss(
    axes: Axes, lines: Sequence[Mapping[str, Any]], evaluated: Sequence[Mapping[str, Any]]
) -> None:
    held_out = [
        (line["step"], line["held_out_loss"])
        for line in evaluated
        if line.get("held_out_loss") is not None
    ]
    style_chart(axes, f"{'Loss' if held_out else 'Training loss'}, on a log scale")
    losses = [line["loss"] for line in lines]
    axes.plot(
        [line["step"] for line in lines],
        losses,
        color=ACCENT,
        linewidth=1.3,
        marker="o" if len(lines) == 1 else "",
        markersize=4,
        label="training",
    )
    if held_out:
        axes.plot(
            *zip(*held_out, strict=True),
            color=ACCENT,
            linewidth=1.2,
            linestyle=(0, (4, 2)),
            marker="o" if len(held_out) == 1 else "",
            markersize=3,
            label="held-out",
        )
        add_legend(axes, loc="lower right", bbox_to_anchor=(1.01, 1.0), ncols=2, borderaxespad=0.1)
    positive = [loss for loss in (*losses, *(loss for _, loss in held_out)) if loss > 0]
    if not positive:
        return
    axes.set_yscale("log")
    ratio = max(positive) / min(positive)
    axes.yaxis.set_major_locator(
        MaxNLocator(4, prune="both")
        if ratio < 4
        else LogLocator(subs=(1, 2, 5) if ratio < 100 else (1,))
    )
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_accuracy(axes: Axes, evaluated: Sequence[Mapping[str, Any]]) -> None:
    sizes = {line.get("eval_size") for line in evaluated} - {None}
    size = f"{sizes.pop():,} " if len(sizes) == 1 else ""
    style_chart(axes, f"Accuracy on {size}held-out sequences")
    for name, label, style in CURVES:
        points = [(line["step"], line[name]) for line in evaluated if line.get(name) is not None]
        axes.plot(
            *zip(*points, strict=True),
            marker="o" if len(points) <= MAX_MARKERS else "",
            markersize=3,
            label=label,
            **style,
        )
    set_percent_axis(axes.yaxis)
    add_legend(axes, loc="lower right", bbox_to_anchor=(1.01, 1.0), ncols=2, borderaxespad=0.1)


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
    figure = new_figure(2.95, width)
    axes = style_chart(figure.subplots(), "Exact match by length, with 95 % intervals")
    for line in lines:
        interval = exact_match_interval(line)
        if interval is None:
            continue
        length = line["length"]
        axes.plot(
            [length] * 2, interval, color=ACCENT, linewidth=4, alpha=0.35, solid_capstyle="butt"
        )
        axes.plot([length], [line["exact_match"]], color=ACCENT, marker="o", markersize=4.5)
    set_percent_axis(axes.yaxis, (0, 0.25, 0.5, 0.75, 1))
    labeled = lines[:: math.ceil(0.42 * len(lines) / (width - 0.9))]
    axes.set_xticks(
        [line["length"] for line in labeled],
        [f"{line['length']}\n{line['n']:,}" for line in labeled],
    )
    axes.set_xlim(lines[0]["length"] - 0.6, lines[-1]["length"] + 0.6)
    label_axis(axes.xaxis, "length, and the number of held-out sequences")
    return figure
