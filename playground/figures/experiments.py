"""Figures of experiments: results over seeds, and exact match by length.

Each takes the plain data of `ExperimentService.results` or `ExperimentService.lengths`.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import (
    COLORS,
    DASHES,
    FOREGROUND,
    MUTED,
    add_colorbar,
    add_legend,
    draw_heatmap,
    label_axis,
    new_figure,
    save_formats,
    set_caption,
    set_percent_axis,
    set_step_axis,
    size_panels,
    style_chart,
)

Row = Mapping[str, Any]
MAX_CURVES = len(COLORS) * 2
CAPTION_WRAP = 112  # maximum characters per line of a caption
LABEL_WRAP = 60
LINE_IN = 0.16  # of small text
NOTHING_TO_DRAW = "no run has {} yet, so there is nothing to draw"


def experiment(results: Row) -> Figure:
    """Draw exact match over the steps, and the steps to 99 % exact match.

    Curves are the median and the full range over seeds. An open marker means that 99 % was not
    reached. `results`: fields, variants, summary.

    Raises:
        ValueError: if no run has finished.
    """
    variants = [variant for variant in results["variants"] if variant["n"]]
    if not variants:
        raise ValueError(NOTHING_TO_DRAW.format("finished"))
    caption = _wrap(results["summary"], CAPTION_WRAP)
    heights = [2.6, 0.24 * len(variants) + 0.9]
    figure = new_figure(sum(heights) + 0.1 + LINE_IN * len(caption))
    subfigures: Any = figure.subfigures(2, 1, height_ratios=heights)  # with margins of their own
    curves, times = (each.subplots() for each in subfigures)
    style_chart(curves, f"Exact match on held-out sequences: {_seeds_note(variants)}")
    style_chart(times, "Steps to 99 % exact match: each seed, and the median")
    for i, variant in enumerate(variants[:MAX_CURVES]):
        _draw_range(curves, "steps", variant["curve"], variant["curve"], _line_style(i))
    set_percent_axis(curves.yaxis)
    for i, variant in enumerate(variants):
        _draw_times(times, variant, len(variants) - 1 - i, _line_style(i)["color"])
    times.set_ylim(-0.6, len(variants) - 0.4)
    times.set_yticks(
        range(len(variants)), [_wrap_label(variant["label"]) for variant in reversed(variants)]
    )
    times.tick_params(axis="y", length=0)
    for i, label in enumerate(reversed(times.get_yticklabels())):
        label.set_color(_line_style(i)["color"] if i < MAX_CURVES else FOREGROUND)
    for axes in (curves, times):
        axes.set_xlim(0, 1.02 * max(variant["steps"] for variant in variants))
        set_step_axis(axes.xaxis)
    label_axis(times.xaxis, "step")
    set_caption(figure, *caption)
    return figure


def _draw_range(
    axes: Axes, x: str, row: Row, band: Row, style: Row, label: str | None = None
) -> None:
    """Draw the medians of a row in the range between `low` and `high` of `band`.

    `x` is the key of the horizontal coordinates.
    """
    axes.plot(row[x], row["median"], linewidth=1.5, label=label, **style)
    axes.fill_between(
        band[x], band["low"], band["high"], color=style["color"], alpha=0.14, linewidth=0
    )


def _draw_times(axes: Axes, variant: Row, y: int, color: str) -> None:
    """Draw the steps to 99 % of each seed, their median, and the number of seeds without them."""
    times = [run["steps_to"] for run in variant["seeds"] if run["done"]]
    reached = [time for time in times if time is not None]
    axes.plot(reached, [y] * len(reached), "o", color=color, markersize=4.5, alpha=0.75)
    median = variant["steps_to"]["median"]
    if median is not None:
        axes.plot([median] * 2, [y - 0.32, y + 0.32], color=color, linewidth=2.2)
    if len(reached) == len(times):
        return
    axes.plot(
        [variant["steps"]],
        [y],
        ">",
        color=color,
        markersize=5,
        markerfacecolor="white",
        clip_on=False,
    )
    axes.annotate(
        f"{len(times) - len(reached)} of {len(times)} not reached",
        (variant["steps"], y),
        (-7, 0),
        textcoords="offset points",
        fontsize=8,
        color=MUTED,
        ha="right",
        va="center",
    )


def accuracy_by_length(results: Row) -> Figure:
    """Draw exact match by length for every position encoding.

    Curves are the median with the full range over seeds, or a single run with its 95 % interval.
    `results`: trained, max_length, n_requested, rows, summary.

    Raises:
        ValueError: if no run has been evaluated.
    """
    rows = _evaluated_rows(results)
    caption = _wrap(f"{results['summary']} {_evaluation_note(results, rows)}", CAPTION_WRAP)
    labels = [_wrap_label(row["label"]) for row in rows]
    n_columns = 3 if max(map(len, labels)) < 24 else 1
    n_lines = sum(label.count("\n") + 1 for label in labels) / n_columns
    height = 3.6 + LINE_IN * (len(caption) + 1.25 * n_lines)
    figure = new_figure(height, title="Exact match by length")
    axes = style_chart(figure.subplots())
    first, last = results["trained"]
    axes.axvspan(first - 0.5, last + 0.5, color="#eef2f6", linewidth=0, zorder=0)
    axes.text(last, -0.015, "trained ", fontsize=8, color=MUTED, ha="right", va="bottom")
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        _draw_range(axes, "lengths", row, _band(row), _line_style(i), label)
    set_percent_axis(axes.yaxis, (0, 0.25, 0.5, 0.75, 1))
    axes.set_xlim(0.5, results["max_length"] + 0.5)
    set_step_axis(axes.xaxis, 10)
    label_axis(axes.xaxis, "length of the sequence")
    add_legend(
        axes,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=n_columns,
        borderaxespad=0.2,
        handlelength=2.6,
    )
    set_caption(figure, *caption)
    return figure


def _band(row: Row) -> Row:
    """Return the range over seeds, or the 95 % interval of a single run."""
    if row["n"] > 1:
        return row
    scores = next(run["scores"] for run in row["runs"] if run["scores"])
    lines = [line for line in scores if line["n"]]
    return {
        "lengths": [line["length"] for line in lines],
        "low": [line["low"] for line in lines],
        "high": [line["high"] for line in lines],
    }


def lengths_heatmap(results: Row) -> Figure:
    """Draw the same medians as a heat map: one row per position encoding, one column per length.

    Lengths without held-out sequences are hatched. `results` is as for `accuracy_by_length`.

    Raises:
        ValueError: if no run has been evaluated.
    """
    rows = _evaluated_rows(results)
    n = results["max_length"]
    medians = np.full((len(rows), n), np.nan)
    for y, row in enumerate(rows):
        medians[y, np.array(row["lengths"], dtype=int) - 1] = row["median"]
    note = f"darker: higher exact match, from 0 to 100 %. {_evaluation_note(results, rows)}"
    cell_size = 5.0 / n, 0.3
    width, height = cell_size[0] * n, cell_size[1] * len(rows)
    figure = new_figure(title="Exact match by length, median over seeds")
    panels = figure.subplots(1, 1, squeeze=False)
    axes = panels[0, 0]
    labels = [_wrap_label(row["label"]) for row in rows]
    draw_heatmap(axes, medians, labels, [str(length + 1) for length in range(n)], cell_size)
    axes.axvline(results["trained"][1] - 0.5, color=COLORS[1], linewidth=1.4)
    label_axis(axes.xaxis, "length of the sequence; the line marks the maximum training length")
    add_colorbar(axes, height)
    set_caption(figure, *_wrap(note, 100))
    size_panels(figure, panels, width, height)
    return figure


FIGURES: dict[str, Callable[[Row], Figure]] = {
    "experiment": experiment,
    "answers-by-length": accuracy_by_length,
    "lengths-heatmap": lengths_heatmap,
}


def write(folder: Path, name: str, results: Row) -> list[Path]:
    """Draw the figure of this name as .png, .svg and .pdf.

    Raises:
        ValueError: if there are no results yet.
        OSError: if the folder cannot be written.
    """
    return save_formats(FIGURES[name](results), folder, name)


def _evaluated_rows(results: Row) -> list[Row]:
    rows = [row for row in results["rows"] if row["n"]]
    if not rows:
        raise ValueError(NOTHING_TO_DRAW.format("been evaluated"))
    return rows


def _line_style(i: int) -> dict[str, Any]:
    dashes = DASHES[i // len(COLORS) % len(DASHES)]
    return {"color": COLORS[i % len(COLORS)], "linestyle": dashes}


def _seeds_note(variants: Sequence[Row]) -> str:
    counts = sorted({variant["n"] for variant in variants})
    if counts == [1]:
        return "one seed each"
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"median and range of {number} seeds"


def _evaluation_note(results: Row, rows: Sequence[Row]) -> str:
    ranges = next((row["untrained"] for row in rows if row["untrained"]), None)
    note = f"Up to {results['n_requested']:,} held-out sequences per length."
    if ranges:
        sides = ", ".join(
            f"{first} to {last} of the {side}" for side, (first, last) in ranges.items()
        )
        note += f" Learned encodings have untrained positions: {sides} (counted from 0)."
    return note


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width) or [""]


def _wrap_label(text: str) -> str:
    return "\n".join(_wrap(text, LABEL_WRAP))
