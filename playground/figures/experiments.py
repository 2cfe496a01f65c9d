"""The figures of experiments: results over seeds, and exact match by length.

Each takes the plain data of `ExperimentService.results` or `ExperimentService.lengths`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from .attention import COLORS, DASHES
from .training import (
    FOREGROUND,
    MUTED,
    add_axes_inches,
    colorbar,
    heatmap,
    new_figure,
    save,
    style_axes,
)

Row = Mapping[str, Any]
FIGURE_WIDTH_IN = 7.6  # inches
LINE_HEIGHT_IN = 0.16  # inches per line of text
MAX_CURVES = len(COLORS) * 2
CAPTION_WRAP = 112  # maximum characters per line of a caption


def experiment(results: Row) -> Figure:
    """Draw exact match over the steps, and the steps to 99 % exact match.

    Curves are the median and the full range over seeds. An open marker means that 99 % was not
    reached. `results`: fields, cells, summary.

    Raises:
        ValueError: if no run has finished.
    """
    cells = [cell for cell in results["cells"] if cell["n"]]
    if not cells:
        raise ValueError("no run has finished yet, so there is nothing to draw")
    drawn = cells[:MAX_CURVES]
    words = _wrap_text(results["summary"])
    rows, below = 0.24 * len(cells), 0.62 + LINE_HEIGHT_IN * len(words)
    left = 0.35 + 0.068 * max(len(cell["label"]) for cell in cells)
    height = below + rows + 0.8 + 2.1 + 0.35
    figure = new_figure(FIGURE_WIDTH_IN, height)
    curves = style_axes(
        figure,
        0.65,
        height - 0.35 - 2.1,
        FIGURE_WIDTH_IN - 0.9,
        2.1,
        f"Exact match on held-out sequences: {_caption_above(cells)}",
    )
    for at, cell in enumerate(drawn):
        curve, style = cell["curve"], _style(at)
        curves.plot(curve["steps"], curve["median"], linewidth=1.5, **style)
        curves.fill_between(
            curve["steps"],
            curve["low"],
            curve["high"],
            color=style["color"],
            alpha=0.15,
            linewidth=0,
        )
    curves.set_ylim(-0.03, 1.05)
    curves.set_yticks([0, 0.5, 1])
    curves.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    _steps(curves, max(cell["steps"] for cell in cells))
    bars = style_axes(
        figure,
        left,
        below,
        FIGURE_WIDTH_IN - left - 0.35,
        rows,
        "Steps to 99 % exact match: each seed, and the median",
    )
    for at, cell in enumerate(cells):
        style, y = _style(at), len(cells) - 1 - at
        times = [run["steps_to"] for run in cell["seeds"] if run["done"]]
        reached = [time for time in times if time is not None]
        missed = len(times) - len(reached)
        bars.plot(
            reached, [y] * len(reached), "o", color=style["color"], markersize=4.5, alpha=0.75
        )
        if cell["steps_to"]["median"] is not None:
            bars.plot(
                [cell["steps_to"]["median"]] * 2,
                [y - 0.32, y + 0.32],
                color=style["color"],
                linewidth=2.2,
            )
        if missed:
            bars.plot(
                [cell["steps"]],
                [y],
                ">",
                color=style["color"],
                markersize=5,
                markerfacecolor="white",
                clip_on=False,
            )
            bars.annotate(
                f"{missed} of {len(times)} not reached",
                (cell["steps"], y),
                (-7, 0),
                textcoords="offset points",
                fontsize=8,
                color=MUTED,
                ha="right",
                va="center",
            )
    bars.set_ylim(-0.6, len(cells) - 0.4)
    bars.set_yticks(range(len(cells)), [cell["label"] for cell in reversed(cells)])
    bars.tick_params(axis="y", length=0)
    for tick, at in zip(bars.get_yticklabels(), reversed(range(len(cells))), strict=True):
        tick.set_color(_style(at)["color"] if at < MAX_CURVES else FOREGROUND)
    _steps(bars, max(cell["steps"] for cell in cells))
    bars.set_xlabel("step", fontsize=9, color=FOREGROUND)
    _draw_caption(figure, words)
    return figure


def accuracy_by_length(results: Row) -> Figure:
    """Draw exact match by length for every position encoding.

    Curves are the median with the full range over seeds, or a single run with its 95 % interval.
    `results`: trained, max_length, n_requested, rows, summary.

    Raises:
        ValueError: if no run has been evaluated.
    """
    rows = [row for row in results["rows"] if row["n"]]
    if not rows:
        raise ValueError("no run has been evaluated yet, so there is nothing to draw")
    words = _wrap_text(f"{results['summary']} {_evaluation_note(results, rows)}")
    # Inches of a legend entry: its dash, its label and a gap.
    each = 0.7 + 0.076 * max(len(row["label"]) for row in rows)
    columns = max(1, min(3, int((FIGURE_WIDTH_IN - 0.65) / each)))
    legend = LINE_HEIGHT_IN * 1.25 * -(-len(rows) // columns)
    below = 0.62 + LINE_HEIGHT_IN * len(words)
    width, height = max(FIGURE_WIDTH_IN, 0.65 + each), below + 2.5 + 0.4 + legend
    figure = new_figure(width, height)
    axes = style_axes(figure, 0.65, below, width - 0.9, 2.5, "")
    axes.axvspan(
        results["trained"][0] - 0.5,
        results["trained"][1] + 0.5,
        color="#eef2f6",
        linewidth=0,
        zorder=0,
    )
    axes.text(
        results["trained"][1], -0.015, "trained ", fontsize=8, color=MUTED, ha="right", va="bottom"
    )
    for at, row in enumerate(rows):
        style = _style(at)
        if row["n"] == 1:
            lines = next(run["scores"] for run in row["runs"] if run["scores"])
            lines = [line for line in lines if line["n"]]
            lengths, low, high = (
                [line[name] for line in lines] for name in ("length", "low", "high")
            )
        else:
            lengths, low, high = row["lengths"], row["low"], row["high"]
        axes.plot(row["lengths"], row["median"], linewidth=1.5, label=row["label"], **style)
        axes.fill_between(lengths, low, high, color=style["color"], alpha=0.12, linewidth=0)
    axes.set_ylim(-0.03, 1.05)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlim(0.5, results["max_length"] + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlabel("length of the sequence", fontsize=9, color=FOREGROUND)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=8.5,
        labelcolor=FOREGROUND,
        borderaxespad=0.2,
        handlelength=2.6,
    )
    figure.text(
        0.65 / width,
        1 - 0.1 / height,
        "Exact match by length",
        fontsize=10.5,
        color=FOREGROUND,
        fontweight="bold",
        ha="left",
        va="top",
    )
    _draw_caption(figure, words)
    return figure


def lengths_heatmap(results: Row) -> Figure:
    """Draw the same medians as a heatmap: one row per position encoding, one column per length.

    Lengths without held-out sequences are hatched. `results` is as for `accuracy_by_length`.

    Raises:
        ValueError: if no run has been evaluated.
    """
    rows = [row for row in results["rows"] if row["n"]]
    if not rows:
        raise ValueError("no run has been evaluated yet, so there is nothing to draw")
    lengths = list(range(1, results["max_length"] + 1))
    shares = np.full((len(rows), len(lengths)), np.nan)
    for at, row in enumerate(rows):
        for length, share in zip(row["lengths"], row["median"], strict=True):
            shares[at, length - 1] = share
    words = _wrap_text(
        f"darker: higher exact match, from 0 to 100 %. {_evaluation_note(results, rows)}"
    )
    left = 0.35 + 0.082 * max(len(row["label"]) for row in rows)
    below, tall = 0.62 + LINE_HEIGHT_IN * len(words), 0.3 * len(rows)
    width, height = max(FIGURE_WIDTH_IN, left + 4.5), below + tall + 0.4
    figure = new_figure(width, height)
    figure.text(
        left / width,
        1 - 0.1 / height,
        "Exact match by length, median over seeds",
        fontsize=10.5,
        color=FOREGROUND,
        fontweight="bold",
        ha="left",
        va="top",
    )
    axes = add_axes_inches(figure, left, below, width - left - 0.75, tall)
    axes.patch.set(hatch="////", edgecolor="#cfd5dc", facecolor="white")
    heatmap(
        axes,
        shares,
        [row["label"] for row in rows],
        [str(length) for length in lengths],
        label_rows=True,
        label_columns=True,
    )
    axes.axvline(results["trained"][1] - 0.5, color=COLORS[1], linewidth=1.4)
    axes.set_xlabel(
        "length of the sequence; the line marks the maximum training length",
        fontsize=9,
        color=FOREGROUND,
    )
    colorbar(figure, width - 0.6, below, tall)
    _draw_caption(figure, words)
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
    figure = FIGURES[name](results)
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg", "pdf")]
    for path in paths:
        save(figure, path)
    return paths


def _style(at: int) -> dict[str, Any]:
    return {
        "color": COLORS[at % len(COLORS)],
        "linestyle": DASHES[at // len(COLORS) % len(DASHES)] if at >= len(COLORS) else "-",
    }


def _caption_above(cells: Sequence[Row]) -> str:
    seeds = sorted({cell["n"] for cell in cells})
    if seeds == [1]:
        return "one seed each"
    return (
        f"median and range of {seeds[0] if len(seeds) == 1 else f'{seeds[0]} to {seeds[-1]}'} seeds"
    )


def _evaluation_note(results: Row, rows: Sequence[Row]) -> str:
    tables = [row["untrained"] for row in rows if row["untrained"]]
    sentences = f"Up to {results['n_requested']:,} held-out sequences per length."
    if tables:
        sides = ", ".join(
            f"{first} to {last} of the {side}" for side, (first, last) in tables[0].items()
        )
        sentences += f" Learned encodings have untrained positions: {sides} (counted from 0)."
    return sentences


def _steps(axes: Any, last: int) -> None:
    axes.set_xlim(0, last * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.0f}"))


def _wrap_text(text: str) -> list[str]:
    return textwrap.wrap(text, CAPTION_WRAP)


def _draw_caption(figure: Figure, lines: Sequence[str]) -> None:
    width, height = figure.get_size_inches()
    figure.text(
        0.2 / width,
        0.1 / height,
        "\n".join(lines),
        fontsize=8,
        color=MUTED,
        ha="left",
        va="bottom",
        linespacing=1.4,
    )
