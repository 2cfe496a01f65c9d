"""The figure of an experiment: the median and the range of each variant over its seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from .style import (
    add_legend,
    label_axis,
    new_figure,
    set_caption,
    set_percent_axis,
    set_step_axis,
    style_chart,
)

# Okabe and Ito's colors, distinguishable without color vision, and a second dash pattern.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
DASHES = ("-", (0, (4, 2)))
MAX_MARKERS = 30  # points of a curve that are drawn with markers
MAX_LINES = len(COLORS) * len(DASHES)


def experiment_figure(report: Mapping[str, Any]) -> Figure:
    """Draw exact match by step, or by length, from `ExperimentService.details`.

    Raises ValueError when no run has a result yet.
    """
    lengths = report.get("lengths")
    variants = report["results"]["variants"]
    curves = {each["label"]: each["curve"] for each in variants}
    lines: list[tuple[str, Sequence[float], Mapping[str, Any]]]
    if lengths:
        lines = [(row["label"], row["lengths"], row) for row in lengths["rows"] if row["lengths"]]
        lines.sort(key=lambda line: -sum(line[2]["median"]) / len(line[1]))
    else:
        drawn = [(label, curves[label]) for label in report["results"]["drawn"]]
        lines = [(label, curve["steps"], curve) for label, curve in drawn if curve["steps"]]
    if not lines:
        raise ValueError("no run has a result yet; draw the figure later")
    figure = new_figure(3.4)
    axes = style_chart(figure.subplots(), report["question"] or report["name"])
    for i, (label, places, values) in enumerate(lines[:MAX_LINES]):
        style: dict[str, Any] = {"color": COLORS[i % len(COLORS)], "label": label}
        style |= {"linestyle": DASHES[i // len(COLORS)], "markersize": 3.5}
        axes.plot(
            places, values["median"], marker="o" if len(places) < MAX_MARKERS else "", **style
        )
        band: dict[str, Any] = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
        axes.fill_between(places, values["low"], values["high"], **band)
    set_percent_axis(axes.yaxis, (0, 0.25, 0.5, 0.75, 1))
    if lengths:
        label_axis(axes.xaxis, f"length in tokens; trained up to {lengths['trained'][1]}")
    else:
        axes.set_xlim(0, 1.02 * max(line[1][-1] for line in lines))
        set_step_axis(axes.xaxis)
        label_axis(axes.xaxis, "step")
    add_legend(axes, loc="lower right")
    notes = ["exact match on held-out sequences: median and range over seeds"]
    if len(variants) > len(axes.lines):
        notes.append(f"the best {len(axes.lines)} of {len(variants)} variants")
    set_caption(figure, *notes)
    return figure
